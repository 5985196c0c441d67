"""Numbers and dates as a spreadsheet shows them, from the value and the cell's number format."""

import re
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

# The formats that a file names by a number and does not spell out (ECMA-376, 18.8.30). Those that
# depend on the reader's country are given the international form.
_ISO = "yyyy-mm-dd"
BUILTIN = {
    1: "0", 2: "0.00", 3: "#,##0", 4: "#,##0.00", 9: "0%", 10: "0.00%", 11: "0.00E+00",
    14: _ISO, 15: "d-mmm-yy", 16: "d-mmm", 17: "mmm-yy", 18: "h:mm AM/PM", 19: "h:mm:ss AM/PM",
    20: "h:mm", 21: "h:mm:ss", 22: f"{_ISO} h:mm", 37: "#,##0;(#,##0)", 38: "#,##0;(#,##0)",
    39: "#,##0.00;(#,##0.00)", 40: "#,##0.00;(#,##0.00)", 45: "mm:ss", 46: "[h]:mm:ss",
    47: "mm:ss.0", 48: "0.0E+0",
    **dict.fromkeys((*range(27, 32), 36, *range(50, 55), 57, 58), _ISO),
}  # fmt: skip
_MAX_DAYS = 2_958_465  # the end of the year 9999
_TOKEN = re.compile(
    r'"(?P<text>[^"]*)"|\\(?P<escaped>.)|_.|\*.|\[\$(?P<currency>[^\]-]{0,99}+)[^\]]{0,99}+\]'
    r"|\[(?P<elapsed>h+|m+|s+)\]|\[[^\]]{0,99}+\]|(?P<half>AM/PM|A/P|上午/下午)"
    r"|(?P<date>y+|m+|d+|h+|s+(?:\.0+)?|e+)|(?P<number>[#0?][#0?,]*(?:\.[#0?]*)?(?:E[+-]0+)?,*)"
    r"|(?P<general>general)|(?P<percent>%)|(?P<at>@)|(?P<other>.)",
    re.IGNORECASE | re.DOTALL,
)


class _Token(NamedTuple):
    kind: str
    text: str


def shown(value: float, code: str, is_1904: bool) -> str:
    """A number in the form of a format code; as it is where the code says nothing."""
    sections = _sections(code)
    negative = value < 0 and len(sections) > 1
    zero = value == 0 and len(sections) > 2
    tokens = sections[1 if negative else 2 if zero else 0]
    kinds = {token.kind for token in tokens}
    if kinds & {"date", "elapsed"}:
        return _date(value, tokens, is_1904)
    if "number" in kinds:
        return _number(abs(value) if negative else value, tokens)
    if kinds <= {"other", "text", "escaped"} and kinds:  # only words: the format hides the number
        return "".join(token.text for token in tokens).strip()
    return plain(value)


def plain(value: float) -> str:
    """A number without a format: 11 digits, as far as they say anything."""
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.11g}"


@lru_cache(maxsize=1_000)
def _sections(code: str) -> list[list[_Token]]:
    sections: list[list[_Token]] = [[]]
    for match in _TOKEN.finditer(code[:500]):
        kind = match.lastgroup
        if kind == "other" and match.group() == ";":
            sections.append([])
        elif kind is not None:
            sections[-1].append(_Token(kind, match.group(kind)))
    return sections


def _number(value: float, tokens: list[_Token]) -> str:
    pattern = next(token.text for token in tokens if token.kind == "number")
    digits, _, exponent = pattern.upper().partition("E")
    scaled = value * 100 ** sum(token.kind == "percent" for token in tokens)
    while digits.endswith(","):
        digits, scaled = digits[:-1], scaled / 1_000
    whole, _, fraction = digits.partition(".")
    if exponent:
        text = f"{scaled:.{len(fraction)}E}"
    else:
        text = f"{scaled:{',' if ',' in whole else ''}.{min(len(fraction), 20)}f}"
        optional = len(fraction) - len(fraction.rstrip("#?"))
        if optional:
            kept = len(text) - optional
            text = text[:kept] + text[kept:].rstrip("0")
            text = text.removesuffix(".")
        least = whole.count("0")
        if "," not in whole and least > 1:
            sign, number = ("-", text[1:]) if text.startswith("-") else ("", text)
            integer, point, rest = number.partition(".")
            text = f"{sign}{integer.zfill(min(least, 30))}{point}{rest}"
    return _filled(tokens, "number", text)


def _filled(tokens: list[_Token], kind: str, text: str) -> str:
    """The tokens with the first of a kind replaced by its text, the others of it left out."""
    parts, is_done = [], False
    for token in tokens:
        if token.kind == kind:
            parts.append("" if is_done else text)
            is_done = True
        elif token.kind not in ("general", "at", "half"):
            parts.append(token.text)
    return "".join(parts).strip()


def _date(value: float, tokens: list[_Token], is_1904: bool) -> str:
    if not 0 <= value <= _MAX_DAYS:
        return plain(value)
    # Day 60 is a 29 February 1900 that never was; days before it count one less.
    epoch = datetime(1904, 1, 1) if is_1904 else datetime(1899, 12, 30 if value >= 60 else 31)
    moment = epoch + timedelta(milliseconds=round(value * 86_400_000))
    has_half = any(token.kind == "half" for token in tokens)
    timed = [i for i, token in enumerate(tokens) if token.kind in ("date", "elapsed")]
    parts = []
    for i, token in enumerate(tokens):
        if token.kind == "half":
            parts.append("AM" if moment.hour < 12 else "PM")
        elif token.kind == "elapsed":
            seconds = value * 86_400
            unit = {"h": 3_600, "m": 60, "s": 1}[token.text[0].lower()]
            parts.append(str(int(round(seconds, 3) // unit)).zfill(len(token.text)))
        elif token.kind == "date":
            at = timed.index(i)
            before = tokens[timed[at - 1]].text[0].lower() if at else ""
            after = tokens[timed[at + 1]].text[0].lower() if at + 1 < len(timed) else ""
            is_minute = before == "h" or after == "s"
            parts.append(_part(moment, token.text.lower(), has_half, is_minute))
        elif token.kind not in ("general", "at", "number", "percent"):
            parts.append(token.text)
    return "".join(parts).strip()


def _part(moment: datetime, token: str, has_half: bool, is_minute: bool) -> str:
    letter, width = token[0], len(token)
    if letter in "ye":
        return f"{moment.year % 100:02d}" if width < 3 and letter == "y" else str(moment.year)
    if letter == "m" and not is_minute:
        names = {3: f"{moment:%b}", 4: f"{moment:%B}", 5: f"{moment:%b}"[0]}
        return names.get(width) or f"{moment.month:0{min(width, 2)}d}"
    if letter == "d":
        return {3: f"{moment:%a}", 4: f"{moment:%A}"}.get(width) or f"{moment.day:0{width}d}"
    if letter == "s":
        seconds, point, fraction = token.partition(".")
        digits = f"{moment.microsecond:06d}"[: len(fraction)]
        return f"{moment.second:0{min(len(seconds), 2)}d}{point}{digits}"
    number = moment.minute if letter == "m" else moment.hour
    if letter == "h" and has_half:
        number = number % 12 or 12
    return f"{number:0{min(width, 2)}d}"
