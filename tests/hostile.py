"""Texts that are hard for a regular expression, made from the expression itself.

Every repetition in it is fed with what it repeats, some 10,000 characters of that, with and without
what may stand before it, and then with something that the rest cannot match: that is where a
backtracking matcher tries all the ways in which the repetitions can share the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

_MOST_SAMPLES = 4
_MANY = 8  # a repetition that may go on for so long is fed
_CANDIDATES = "aZ5 你\n\t-_*`#|.,;:!?'\"()[]{}<>=/\\~$%^&+@é、。！Å\u200b\u0300\ufffe\x00\xad"
_ENDS = ("", "\x01", "x", "!", "\n", " ")


def hostile(pattern: re.Pattern[Any], characters: int) -> Iterator[Any]:
    """Texts of so many characters, of the pattern's own type."""
    tree = parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE | _unicode(pattern))
    seen = set()
    for before, unit in _fed(list(tree)):
        for text in (before + unit * characters, (before + unit) * characters):
            for end in _ENDS:
                made = text[: characters - len(end)] + end
                if made not in seen:
                    seen.add(made)
                    yield made.encode("latin-1", "ignore") if _is_bytes(pattern) else made


def _is_bytes(pattern: re.Pattern[Any]) -> bool:
    return isinstance(pattern.pattern, bytes)


def _unicode(pattern: re.Pattern[Any]) -> int:
    return 0 if _is_bytes(pattern) else re.UNICODE


def _fed(nodes: list[Any], before: str = "") -> Iterator[tuple[str, str]]:
    """(what may stand before a repetition, what it repeats) for every repetition."""
    for place, (code, value) in enumerate(nodes):
        reached = before + "".join(_first(one) for one in nodes[:place])
        if code in _REPEATS:
            _, most, body = value
            if most >= _MANY:
                for unit in _samples(list(body)):
                    for start in dict.fromkeys(("", reached, reached[-1:])):
                        if unit:
                            yield start, unit
            yield from _fed(list(body), reached)
        for inner in _inside(code, value):
            if code not in _REPEATS:
                yield from _fed(list(inner), reached)


_REPEATS = {codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT}


def _inside(code: Any, value: Any) -> list[Any]:
    if code is codes.BRANCH:
        return list(value[1])
    if code is codes.SUBPATTERN:
        return [value[3]]
    if code is codes.ATOMIC_GROUP:
        return [value]
    if code in (codes.ASSERT, codes.ASSERT_NOT):
        return [value[1]]
    return [value[2]] if code in _REPEATS else []


def _first(node: Any) -> str:
    return next(iter(_samples([node])), "")


def _samples(nodes: list[Any]) -> list[str]:
    """Some texts that the nodes match, one after another."""
    made = [""]
    for code, value in nodes:
        parts = _of(code, value) or [""]
        made = [text + part for text in made for part in parts][:_MOST_SAMPLES]
    return list(dict.fromkeys(made))


def _of(code: Any, value: Any) -> list[str]:
    if code is codes.LITERAL:
        return [chr(value)]
    if code in (codes.IN, codes.ANY, codes.NOT_LITERAL, codes.CATEGORY):
        return _members(code, value)
    if code is codes.BRANCH:
        return [text for branch in value[1] for text in _samples(list(branch))][:_MOST_SAMPLES]
    if code is codes.SUBPATTERN:
        return _samples(list(value[3]))
    if code is codes.ATOMIC_GROUP:
        return _samples(list(value))
    if code in _REPEATS:
        least, _, body = value
        texts = _samples(list(body))
        return [text * max(least, 1) for text in texts] + ([""] if not least else [])
    return []


def _members(code: Any, value: Any) -> list[str]:
    """Characters of a class: of the usual ones, or the first of its own."""
    if code is codes.ANY:
        return ["a", " "]
    one = re.compile(_as_pattern(code, value))
    found = [character for character in _CANDIDATES if one.fullmatch(character)]
    if not found and code is codes.IN:
        found = [
            chr(what if kind is codes.LITERAL else what[0])
            for kind, what in value
            if kind in (codes.LITERAL, codes.RANGE)
        ]
    return found[:_MOST_SAMPLES]


_CATEGORIES = {
    codes.CATEGORY_DIGIT: r"\d",
    codes.CATEGORY_NOT_DIGIT: r"\D",
    codes.CATEGORY_SPACE: r"\s",
    codes.CATEGORY_NOT_SPACE: r"\S",
    codes.CATEGORY_WORD: r"\w",
    codes.CATEGORY_NOT_WORD: r"\W",
}


def _as_pattern(code: Any, value: Any) -> str:
    if code is codes.NOT_LITERAL:
        return f"[^{re.escape(chr(value))}]"
    if code is codes.CATEGORY:
        return _CATEGORIES[value]
    negated, inner = "", ""
    for kind, what in value:
        if kind is codes.NEGATE:
            negated = "^"
        elif kind is codes.LITERAL:
            inner += re.escape(chr(what))
        elif kind is codes.RANGE:
            inner += f"{re.escape(chr(what[0]))}-{re.escape(chr(what[1]))}"
        elif kind is codes.CATEGORY:
            inner += _CATEGORIES[what]
    return f"[{negated}{inner}]"
