"""The page in English and in Simplified Chinese.

Every string of the page has a key and stands in a file of ``words/`` in both languages. What the
server draws takes it from ``Words``; what Gradio's own components show takes it from
``gradio_words.t``, which Gradio translates in the browser. Both follow the same choice:
``?lang=zh`` or the switch of the page, kept in a cookie, and otherwise the browser's language.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from chat.ui.words import WORDS

Language: TypeAlias = Literal["en", "zh"]
COOKIE = "pageturn_lang"
_EARLY = ("language.js", "cheap.js", "door.js")
_COLUMNS: Mapping[Language, int] = {"en": 0, "zh": 1}


def both(key: str) -> str:
    """A string of HTML that the server draws before it knows who reads: the styles show one."""
    english, chinese = WORDS[key]
    return f'<span lang="en">{english}</span><span lang="zh">{chinese}</span>'


class Asked(Protocol):
    """A request, Gradio's or FastAPI's."""

    @property
    def headers(self) -> Any: ...
    @property
    def cookies(self) -> Any: ...


@dataclass(frozen=True)
class Words:
    """The words of one language: ``words("open")``, ``words("room", count=3)``."""

    language: Language = "en"

    def __call__(self, key: str, **values: object) -> str:
        """The string of a key with its ``{places}`` filled in. Raises KeyError for an unknown key.

        Whatever is filled in must be escaped by whoever puts the string into HTML.
        """
        text = WORDS[key][_COLUMNS[self.language]]
        return text.format(**values) if values else text

    def count(self, number: int, key: str) -> str:
        """A number with its noun: "1 page", "12 pages", "12 页".

        The English text of the key holds both forms: ``{n} page|{n} pages``.
        """
        text = WORDS[key][_COLUMNS[self.language]]
        forms = text.split("|")
        return forms[0 if number == 1 else -1].format(n=f"{number:,}")


EN = Words("en")
ZH = Words("zh")


def words_for(request: Asked) -> Words:
    """The language that a request's page is shown in."""
    cookies = getattr(request, "cookies", None) or {}
    match cookies.get(COOKIE):
        case "en":
            return EN
        case "zh":
            return ZH
    headers = getattr(request, "headers", None) or {}
    return Words(_preferred(headers.get("accept-language") or ""))


def _preferred(accepted: str) -> Language:
    """The first of the browser's languages that is ours; its order is its preference."""
    for tag in accepted.split(","):
        match re.split("[-;]", tag.strip().lower())[0]:
            case "zh":
                return "zh"
            case "en":
                return "en"
    return "en"


@functools.cache
def early_script() -> str:
    """A script for the beginning of the page, login form included, before all of Gradio's."""
    here = Path(__file__).parent
    return "\n".join((here / name).read_text(encoding="utf-8") for name in _EARLY)
