"""Words of a text, as far as comparing an answer with its sources needs them.

English endings are cut, runs of Chinese, Japanese and Korean become overlapping pairs, and a
number is one word, written in one way (``1,024`` and ``1024``, ``0.50`` and ``0.5``).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORD = re.compile(
    rf"(?P<number>\d+(?:,\d{{3}})+(?:\.\d+)?|\d+(?:\.\d+)?)|(?P<cjk>[{_CJK}]+)"
    rf"|(?P<word>[^\W\d_{_CJK}](?:[^\W_{_CJK}]|['’](?=\w))*)"
)
# Particles and question words: they join or ask, and say nothing themselves.
_CJK_EMPTY = re.compile(
    "什么|多少|怎么|怎样|如何|为什么|哪些|哪个|请问|有多|可以|一个|这个|那个|いくつ|どう|です|ます"
    "|[的了是吗呢么吧着过很也都就把被和与或在对从为其它们之而且但并更は が を の に と で か へ も]"
)
_STOP_WORDS = frozenset(
    """a about above after all also am an and any are as at be because been before being below
    between both but by can could did do does doing down during each either else for from further
    had has have having he her here hers him his how however i if in into is it its itself just
    let many may me might more most much must my no nor not of off on one only onto or other our
    out over own please per same shall she should since so some such than that the their them then
    there therefore these they this those through thus to too under until up upon us very was we
    were what when where whether which while who whom whose why will with within without would yes
    yet you your explain describe tell give list name passage passages question answer according
    based following mentioned stated""".split()  # noqa: SIM905
)
_NUMBER_WORDS = {
    word: str(value)
    for value, word in enumerate(
        "two three four five six seven eight nine ten eleven twelve".split(),  # noqa: SIM905
        start=2,
    )
}
_ENDINGS = ("ing", "edly", "ed", "ies", "es", "ly", "s", "e", "y")

# Where a sentence begins, a large letter names nothing.
_BEGIN = frozenset('.!?:;…。！？：；\n*#>|("“‘-')
_OPENING = frozenset('*_"“‘(')
_NOT = re.compile(
    r"\b(?:not|never|cannot|neither|nor|without|no longer|no)\b|n['’]t\b", re.IGNORECASE
)
_CLAUSE_END = re.compile(r"[,.;:!?]\s|\b(?:but|and|while)\b")
_CJK_NOT = re.compile(rf"[不没无未](?:会|能|是|有|再|应当?|可以?|必)?([{_CJK}]{{2}})")

# A number alone may stand anywhere in a passage; a measured one must be measured in the same unit.
_QUANTITY = re.compile(
    r"(?<!\d)(?P<number>\d+(?:,\d{3}){1,9}(?:\.\d+)?|\d+(?:\.\d+)?)[ \u00a0-]?"
    r"(?P<unit>[kmgt]i?b|bytes?|b|bits?|%|percent|[µmn]?s|seconds?|minutes?|hours?|days?|weeks?"
    r"|months?|years?|[kmg]?hz|[km]?w|[kmµ]?g|[kcmµn]?m|tok/s|gb/s|[gt]?flops?(?:/s)?)(?![\w/])",
    re.IGNORECASE,
)
_UNIT_NAMES = {
    "bytes": "b", "byte": "b", "bits": "bit", "percent": "%", "seconds": "s", "second": "s",
    "minutes": "minute", "hours": "hour", "days": "day", "weeks": "week", "months": "month",
    "years": "year",
}  # fmt: skip


def content_words(text: str) -> list[str]:
    """The words that carry meaning, in order, repeats included."""
    return list(_words(unicodedata.normalize("NFKC", text)))


def quantities(text: str) -> list[str]:
    """Numbers with the unit of measurement behind them: ``0.50 GiB`` is ``0.5 gib``."""
    text = unicodedata.normalize("NFKC", text)
    return [
        f"{_plain_number(match['number'])} {_UNIT_NAMES.get(unit, unit)}"
        for match in _QUANTITY.finditer(text)
        if (unit := match["unit"].casefold())
    ]


def without_units(text: str) -> str:
    """The text with the numbers of its `quantities` alone."""
    return _QUANTITY.sub(lambda match: match["number"], unicodedata.normalize("NFKC", text))


def is_number(word: str) -> bool:
    return word[0].isdigit()


def names(text: str) -> list[str]:
    """Its names as `content_words` has them: words that are written large where not every word
    is (inside a sentence), and words of capitals or with a digit among their letters."""
    text = unicodedata.normalize("NFKC", text)
    found: list[str] = []
    for match in _WORD.finditer(text):
        word = match["word"]
        if word is None:
            continue
        large = word[0].isupper() and not _begins(text, match.start())
        if large or sum(map(str.isupper, word)) > 1 or any(map(str.isdigit, word)):
            found += _words(word)
    return found


def _begins(text: str, at: int) -> bool:
    """Whether a sentence, a line or a quotation begins at this place."""
    while at > 0:
        before = text[at - 1]
        if before in _BEGIN:
            return True
        if before not in _OPENING and not before.isspace():
            return False
        at -= 1
    return True


def denied(text: str) -> list[str]:
    """The words right behind a "not", as `content_words` has them."""
    text = unicodedata.normalize("NFKC", text)
    found: list[str] = []
    for match in _NOT.finditer(text):
        clause = _CLAUSE_END.split(text[match.end() :], maxsplit=1)[0]
        found += next(([word] for word in _words(clause[:80])), [])
    for match in _CJK_NOT.finditer(text):
        found.append(match[1])
    return found


def _words(text: str) -> Iterator[str]:
    for match in _WORD.finditer(text):
        if number := match["number"]:
            yield _plain_number(number)
        elif run := match["cjk"]:
            for part in _CJK_EMPTY.split(run):
                if len(part) == 1:
                    yield part
                yield from (part[i : i + 2] for i in range(len(part) - 1))
        else:
            word = match["word"].casefold().replace("’", "'").removesuffix("'s")
            if word in _NUMBER_WORDS:
                yield _NUMBER_WORDS[word]
            elif word not in _STOP_WORDS:
                yield _stem(word)


def _plain_number(number: str) -> str:
    whole, _, fraction = number.replace(",", "").partition(".")
    fraction = fraction.rstrip("0")
    return (whole.lstrip("0") or "0") + (f".{fraction}" if fraction else "")


def _stem(word: str) -> str:
    """Without its English ending, if at least three letters stay: cache, caches, cached."""
    if not word.isascii():
        return word
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            stem = word.removesuffix(ending)
            # stopped, stopping: the doubled letter belongs to the ending
            doubled = ending in ("ing", "ed") and stem[-1] == stem[-2] and stem[-1] not in "lsz"
            return stem[:-1] if doubled else stem
    return word
