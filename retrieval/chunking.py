"""Cuts pages into passages that fit the embedder, each with its exact range and its headings.

    page    # Caches\\n\\nA cache keeps ...\\n\\n## Size\\n\\n| model | bytes |\\n| 7B ...
            ^ char_start             ^ char_end = char_start + len(text)

A passage never crosses a page, and page[char_start:char_end] is its text, to the character. The
headings above it, and the header of a table whose later rows it holds, are kept beside it as
`heading`: they are embedded and searched with the text, and they are not part of the range.
"""

import bisect
import re
from collections.abc import Sequence
from typing import NamedTuple

from semantic_text_splitter import MarkdownSplitter, TextSplitter
from tokenizers import Tokenizer

# Beside the text, room for the headings and for the model's own two or three special tokens.
HEADING_TOKENS = 48
RESERVED_TOKENS = HEADING_TOKENS + 4
# A passage is long enough at this share of what fits, at the next good place to cut.
ENOUGH = 0.6
# A word piece can stand for a very long "word" (a hash, base64), so characters are limited too.
MAX_CHARACTERS = 2_000

_HEADING = re.compile(r"^(#{1,6})[ \t]+(.+?)[ \t]*#*$", re.MULTILINE)
_TABLE = re.compile(
    r"^(?P<header>[ \t]*\|?[^\n|]*\|[^\n]*)\n[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-*:?[ \t]*)+\n"
    r"(?P<rows>(?:[^\n]*\|[^\n]*(?:\n|\Z))*)",
    re.MULTILINE,
)
_FENCE = re.compile(r"^(```+|~~~+).*?^\1", re.MULTILINE | re.DOTALL)


class Cut(NamedTuple):
    """A passage: its 1-based page, its range in that page's text, and the headings above it."""

    page: int
    char_start: int
    char_end: int
    heading: str


class Chunker:
    """Cuts for one embedder, given by its tokenizer file and its `max_tokens`."""

    def __init__(self, tokenizer_file: str, max_tokens: int) -> None:
        tokenizer = Tokenizer.from_file(tokenizer_file)
        # The file may say "cut and fill to 128"; counting needs the true length.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        limit = max_tokens - RESERVED_TOKENS
        if limit < 16:
            raise ValueError(f"An embedder with {max_tokens} tokens is too small for passages.")
        capacity = (int(limit * ENOUGH), limit)
        self._markdown = MarkdownSplitter.from_huggingface_tokenizer(tokenizer, capacity)
        self._plain = TextSplitter.from_huggingface_tokenizer(tokenizer, capacity)
        self._by_length = TextSplitter(MAX_CHARACTERS)

    def cut(self, pages: Sequence[str], markdown: bool) -> list[Cut]:
        cuts = []
        outline = _Outline() if markdown else None
        for number, page in enumerate(pages, 1):
            marks = outline.read(page) if outline else _Marks([], [])
            splitter = self._markdown if markdown else self._plain
            chunks = splitter.chunk_indices(page)
            for start, text in chunks:
                if markdown and start != chunks[-1][0] and _is_heading_only(text):
                    continue  # what follows carries it as its heading
                for offset, part in self._fit(text):
                    begin = start + offset
                    heading = self._shorten(marks.heading(begin))
                    cuts.append(Cut(number, begin, begin + len(part), heading))
        return cuts

    def _fit(self, text: str) -> list[tuple[int, str]]:
        if len(text) <= MAX_CHARACTERS:
            return [(0, text)]
        return self._by_length.chunk_indices(text)

    def _shorten(self, heading: str) -> str:
        """At most HEADING_TOKENS of a heading; its end says more than its beginning."""
        encoding = self._tokenizer.encode(heading, add_special_tokens=False)
        if len(encoding.ids) <= HEADING_TOKENS and len(heading) <= MAX_CHARACTERS // 4:
            return heading
        start = encoding.offsets[-HEADING_TOKENS:][0][0]
        return heading[max(start, len(heading) - MAX_CHARACTERS // 4) :].lstrip(" >|")


def _is_heading_only(text: str) -> bool:
    return not _HEADING.sub("", text).strip()


class _Table(NamedTuple):
    start: int
    end: int
    header: str


class _Marks(NamedTuple):
    """What stands where on a page: (offset, path of headings), and tables by their rows."""

    headings: list[tuple[int, str]]
    tables: list[_Table]

    def heading(self, offset: int) -> str:
        """The headings in force at an offset, and the table's header if rows begin there."""
        index = bisect.bisect_right(self.headings, (offset, "\U0010ffff")) - 1
        path = self.headings[index][1] if index >= 0 else ""
        for table in self.tables:
            if table.start <= offset < table.end:
                return f"{path} > {table.header}" if path else table.header
        return path


class _Outline:
    """The headings of a document; they stay in force over the pages that follow."""

    def __init__(self) -> None:
        self._path: list[tuple[int, str]] = []

    def read(self, page: str) -> _Marks:
        code = [match.span() for match in _FENCE.finditer(page)]
        headings = [(0, " > ".join(name for _, name in self._path))]
        for match in _HEADING.finditer(page):
            if any(start <= match.start() < end for start, end in code):
                continue
            level, name = len(match.group(1)), match.group(2)
            self._path = [(above, text) for above, text in self._path if above < level]
            self._path.append((level, name))
            headings.append((match.start(), " > ".join(text for _, text in self._path)))
        tables = [
            _Table(match.start("rows"), match.end("rows"), match.group("header").strip())
            for match in _TABLE.finditer(page)
        ]
        return _Marks(headings, tables)
