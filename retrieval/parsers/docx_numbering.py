"""The numbers of a Word document's lists and headings, which the file holds only as rules."""

import re
from typing import Any, NamedTuple

from retrieval.parsers.docx_styles import ListPlace, W, is_on, value

LEVELS = 9
_PLACE = re.compile(r"%([1-9])")
_ROMAN = (
    *((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l")),
    *((40, "xl"), (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i")),
)


class _Level(NamedTuple):
    format: str
    text: str
    start: int
    all_decimal: bool


class Numbering:
    """Counts along as the paragraphs of a document are read in order."""

    def __init__(self, root: Any | None) -> None:
        self._lists: dict[str, str] = {}
        self._restarts: dict[str, dict[int, int]] = {}
        self._levels: dict[str, dict[int, _Level]] = {}
        self._counts: dict[str, list[int | None]] = {}
        if root is not None:
            self._read(root)

    def _read(self, root: Any) -> None:
        for definition in root.iterchildren(f"{W}abstractNum"):
            self._levels[definition.get(f"{W}abstractNumId", "")] = {
                _int(level.get(f"{W}ilvl"), 0): _Level(
                    value(level, "numFmt") or "decimal",
                    value(level, "lvlText") or "",
                    _int(value(level, "start"), 1),
                    is_on(level, "isLgl"),
                )
                for level in definition.iterchildren(f"{W}lvl")
            }
        for number in root.iterchildren(f"{W}num"):
            id = number.get(f"{W}numId", "")
            self._lists[id] = value(number, "abstractNumId") or ""
            starts = {
                _int(override.get(f"{W}ilvl"), 0): value(override, "startOverride")
                for override in number.iterchildren(f"{W}lvlOverride")
            }
            self._restarts[id] = {
                level: _int(start, 1) for level, start in starts.items() if start is not None
            }

    def label(self, place: ListPlace) -> str:
        """What stands before the next paragraph of a list: "2.1.", "(b)", "-", or nothing."""
        definition = self._lists.get(place.list_id)
        levels = self._levels.get(definition or "", {})
        level = levels.get(place.level)
        if definition is None or level is None:
            return "-"
        if level.format == "bullet":
            return "-"
        counts = self._counts.setdefault(definition, [None] * LEVELS)
        # A list that starts anew does so once, where it is first used.
        for at, start in self._restarts.pop(place.list_id, {}).items():
            if at < LEVELS:
                counts[at:] = [start - 1] + [None] * (LEVELS - 1 - at)
        for at in range(place.level + 1):
            known = counts[at]
            first = levels[at].start if at in levels else 1
            if at == place.level:
                counts[at] = first if known is None else known + 1
            elif known is None:
                counts[at] = first
        counts[place.level + 1 :] = [None] * (LEVELS - 1 - place.level)
        if level.format == "none":
            return ""

        def number(match: re.Match[str]) -> str:
            at = int(match.group(1)) - 1
            format = "decimal" if level.all_decimal or at not in levels else levels[at].format
            return _formatted(counts[at] or 0, format)

        return _PLACE.sub(number, level.text).strip()


def _formatted(number: int, format: str) -> str:
    if format in ("lowerLetter", "upperLetter") and number > 0:
        letter = chr(ord("a") + (number - 1) % 26) * min((number - 1) // 26 + 1, 5)
        return letter.upper() if format == "upperLetter" else letter
    if format in ("lowerRoman", "upperRoman") and 0 < number < 4_000:
        roman = ""
        for step, letters in _ROMAN:
            roman += letters * (number // step)
            number %= step
        return roman.upper() if format == "upperRoman" else roman
    return f"{number:02d}" if format == "decimalZero" else str(number)


def _int(text: str | None, otherwise: int) -> int:
    return int(text) if text is not None and text.isdigit() and len(text) < 7 else otherwise
