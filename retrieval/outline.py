"""What stands where in Markdown text: headings, tables and code."""

import bisect
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

# Each of these takes time in proportion to the text, whatever the text: no two parts of a pattern
# that follow each other can match the same character.
_HEADING = re.compile(r"^(#{1,6})[ \t]+(?=[^ \t])(.*)$", re.MULTILINE)
# Every heading below one repeats its name.
_MAX_NAME = 200
_RULE_CELL = r"[ \t]*(?::?-+:?[ \t]*)?"
_TABLE = re.compile(
    rf"^(?P<header>[^\n|]*\|[^\n]*)\n(?=[^\n]*-){_RULE_CELL}(?:\|{_RULE_CELL})+\n"
    r"(?P<rows>(?:[^\n]*\|[^\n]*(?:\n|\Z))*)",
    re.MULTILINE,
)
_FENCE = re.compile(r"^(?P<fence>```+|~~~+).*?(?:^(?P=fence)[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A stretch of a page; of a table also where its rows begin and what its header says."""

    kind: Literal["prose", "table", "code"]
    start: int
    end: int
    rows: int = 0
    header: str = ""


def blocks(page: str) -> Iterator[Block]:
    """The whole page in order: tables, code, and the prose between them."""
    special = [Block("code", *match.span()) for match in _FENCE.finditer(page)]
    code = [(block.start, block.end) for block in special]
    for match in _TABLE.finditer(page):
        if not _is_inside(code, match.start()):
            end = match.end() - (page[match.end() - 1] == "\n")
            rows = min(match.start("rows"), end)
            special.append(Block("table", match.start(), end, rows, match.group("header").strip()))
    at = 0
    for block in sorted(special, key=lambda block: block.start):
        if block.start >= at:
            if page[at : block.start].strip():
                yield Block("prose", at, block.start)
            yield block
            at = block.end
    if page[at:].strip():
        yield Block("prose", at, len(page))


def _is_inside(spans: list[tuple[int, int]], offset: int) -> bool:
    index = bisect.bisect_right(spans, (offset, len(spans) and spans[-1][1])) - 1
    return index >= 0 and offset < spans[index][1]


class Marks(NamedTuple):
    """The headings of a page as (offset, path of all in force from there), and their own spans."""

    paths: list[tuple[int, str]]
    spans: list[tuple[int, int]]
    page: str

    def heading(self, offset: int) -> str:
        """The headings in force at an offset, outermost first."""
        index = bisect.bisect_right(self.paths, (offset, "\U0010ffff")) - 1
        return self.paths[index][1] if index >= 0 else ""

    def is_headings_only(self, start: int, end: int) -> bool:
        """Whether nothing but headings stands in a range."""
        at = start
        for begin, finish in self.spans[bisect.bisect_left(self.spans, (start, 0)) :]:
            if begin >= end:
                break
            if self.page[at:begin].strip():
                return False
            at = finish
        return at > start and not self.page[at:end].strip()


class Outline:
    """The headings of a document; they stay in force over the pages that follow."""

    def __init__(self) -> None:
        self._path: list[tuple[int, str]] = []

    def read(self, page: str) -> Marks:
        code = [match.span() for match in _FENCE.finditer(page)]
        marks = Marks([(0, self._joined())], [], page)
        for match in _HEADING.finditer(page):
            if _is_inside(code, match.start()):
                continue
            level, name = len(match.group(1)), match.group(2)[:_MAX_NAME].rstrip(" \t#")
            if not name:
                continue
            self._path = [(above, text) for above, text in self._path if above < level]
            self._path.append((level, name))
            marks.paths.append((match.start(), self._joined()))
            marks.spans.append(match.span())
        return marks

    def _joined(self) -> str:
        return " > ".join(name for _, name in self._path)
