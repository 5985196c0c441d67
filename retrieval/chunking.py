"""Cuts pages into passages that fit the embedder, each with its exact range and its headings.

    page    # Caches\\n\\nA cache keeps ...\\n\\n## Size\\n\\n| model | bytes |\\n| 7B ...
            ^ char_start             ^ char_end = char_start + len(text)

A passage never crosses a page, and page[char_start:char_end] is its text, to the character. The
headings above it, and the header of a table whose later rows it holds, are kept beside it as
`heading`: they are embedded and searched with the text, and they are not part of the range.

Prose goes to the splitter in pieces, since its time grows faster than the length of a text.
Tables and code too long for one passage are cut here, between rows and between lines.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from semantic_text_splitter import MarkdownSplitter, TextSplitter
from tokenizers import Tokenizer

from retrieval.outline import Block, Marks, Outline, blocks

# Beside the text, room for the headings and for the model's own two or three special tokens.
HEADING_TOKENS = 48
SPECIAL_TOKENS = 4
RESERVED_TOKENS = HEADING_TOKENS + SPECIAL_TOKENS
# A passage is long enough at this share of what fits, at the next good place to cut.
ENOUGH = 0.6
# A word piece can stand for a very long "word" (a hash, base64), so characters are limited too.
MAX_CHARACTERS = 2_000
# The header of a table may take up to this share of a passage of its rows.
HEADER_SHARE = 0.4
_PIECE_CHARACTERS = 8_000
# Where a long text without an empty line is cut into pieces, best first.
_PAUSE = re.compile(r"[\s.,;:!?。，、；：！？।؟]")
_SEAMS = ("\n\n", "\n", "。", ". ", " ")


class Cut(NamedTuple):
    """A passage: its 1-based page, its range in that page's text, and the headings above it."""

    page: int
    char_start: int
    char_end: int
    heading: str


class _Part(NamedTuple):
    """A passage of the page at hand; `is_block`: it holds a table or code that is kept whole."""

    start: int
    end: int
    heading: str
    is_block: bool = False


class Chunker:
    """Cuts for one embedder, given by its tokenizer file and its `max_tokens`."""

    def __init__(self, tokenizer_file: str, max_tokens: int) -> None:
        tokenizer = Tokenizer.from_file(tokenizer_file)
        # The file may say "cut and fill to 128"; counting needs the true length.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._limit = max_tokens - RESERVED_TOKENS
        if self._limit < 16:
            raise ValueError(f"An embedder with {max_tokens} tokens is too small for passages.")
        capacity = (int(self._limit * ENOUGH), self._limit)
        self._markdown = MarkdownSplitter.from_huggingface_tokenizer(tokenizer, capacity)
        self._plain = TextSplitter.from_huggingface_tokenizer(tokenizer, capacity)
        self._by_length = TextSplitter(MAX_CHARACTERS)

    def cut(self, pages: Sequence[str], markdown: bool) -> list[Cut]:
        cuts: list[Cut] = []
        outline = Outline()
        for number, page in enumerate(pages, 1):
            if markdown:
                parts = self._merged(page, self._markdown_parts(page, outline.read(page)))
            else:
                ranges = self._prose(page, 0, len(page), self._plain)
                parts = (_Part(start, end, "") for start, end in ranges)
            cuts += [Cut(number, part.start, part.end, part.heading) for part in parts]
        return cuts

    def _markdown_parts(self, page: str, marks: Marks) -> Iterator[_Part]:
        last = len(page.rstrip())
        for block in blocks(page):
            path = marks.heading(block.start)
            if block.kind != "prose" and not self._is_long(page[block.start : block.end]):
                yield _Part(block.start, block.end, self._shorten(path, HEADING_TOKENS), True)
            elif block.kind == "table":
                yield from self._rows(page, block, path)
            else:
                splitter = self._plain if block.kind == "code" else self._markdown
                for start, end in self._prose(page, block.start, block.end, splitter):
                    # What follows a heading carries it; only the last of a page stands alone.
                    if end == last or not marks.is_headings_only(start, end):
                        heading = self._shorten(marks.heading(start), HEADING_TOKENS)
                        yield _Part(start, end, heading)

    def _merged(self, page: str, parts: Iterable[_Part]) -> Iterator[_Part]:
        """Short tables and code together with the prose around them, as far as they fit."""
        held: _Part | None = None
        for part in parts:
            if held is not None and self._belong_together(page, held, part):
                held = held._replace(end=part.end, is_block=True)
                continue
            if held is not None:
                yield held
            held = part
        if held is not None:
            yield held

    def _belong_together(self, page: str, held: _Part, part: _Part) -> bool:
        if not (held.is_block or part.is_block) or held.heading != part.heading:
            return False
        if part.end - held.start > MAX_CHARACTERS:
            return False
        if self._count(page[held.start : held.end]) >= ENOUGH * self._limit:
            return False
        return self._count(page[held.start : part.end]) <= self._limit

    def _is_long(self, text: str) -> bool:
        """Whether a text is too long for one passage."""
        if len(text) > MAX_CHARACTERS:
            return True
        return len(text) > self._limit and self._count(text) > self._limit

    def _count(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def _prose(
        self, page: str, start: int, end: int, splitter: MarkdownSplitter | TextSplitter
    ) -> Iterator[tuple[int, int]]:
        """The ranges of the passages of a part of a page."""
        for piece_start, piece_end in _pieces(page, start, end):
            piece = page[piece_start:piece_end]
            # Text without any place to pause takes the splitter long and gives it nothing to find.
            found = splitter.chunk_indices(piece) if _PAUSE.search(piece) else self._even(piece)
            for offset, text in found:
                begin = piece_start + offset
                if len(text) <= MAX_CHARACTERS:
                    yield begin, begin + len(text)
                    continue
                for inner, part in self._by_length.chunk_indices(text):
                    yield begin + inner, begin + inner + len(part)

    def _even(self, piece: str) -> Iterator[tuple[int, str]]:
        """A text cut after every so many tokens, between whole characters."""
        offsets = self._tokenizer.encode(piece, add_special_tokens=False).offsets
        start = 0
        for index in range(self._limit, len(offsets), self._limit):
            end = offsets[index][0]
            while end > start and _joins(piece[end]):
                end -= 1
            if end > start:
                yield start, piece[start:end]
                start = end
        if piece:
            yield start, piece[start:]

    def _rows(self, page: str, block: Block, path: str) -> Iterator[_Part]:
        """The passages of a long table: as many rows as fit beside its header."""
        total = self._limit + HEADING_TOKENS
        path = self._shorten(path, HEADING_TOKENS // 2)
        header = self._cut_off(block.header, int(total * HEADER_SHARE))
        later = f"{path} > {header}" if path else header
        headings = (path, later)
        room = min(self._limit, total - self._count(later))
        starts = [block.start, *_line_starts(page, block.rows, block.end)]
        ends = [*starts[1:], block.end]
        sizes = self._sizes([page[a:b] for a, b in zip(starts, ends, strict=True)])
        begin, used = block.start, 0
        for start, end, size in zip(starts, ends, sizes, strict=True):
            is_full = used + size > room or end - begin > MAX_CHARACTERS
            if is_full and start > begin:
                yield from self._row_parts(page, block, begin, start, headings, room)
                begin, used = start, 0
            used += size
        yield from self._row_parts(page, block, begin, block.end, headings, room)

    def _sizes(self, texts: list[str]) -> list[int]:
        """Tokens of each text; of one that is too long in any case, only that it is."""
        short = [text if len(text) <= MAX_CHARACTERS else "" for text in texts]
        encodings = self._tokenizer.encode_batch(short, add_special_tokens=False)
        return [
            len(encoding.ids) if kept or not text else self._limit + 1
            for text, kept, encoding in zip(texts, short, encodings, strict=True)
        ]

    def _row_parts(
        self, page: str, block: Block, start: int, end: int, headings: tuple[str, str], room: int
    ) -> Iterator[_Part]:
        text = page[start:end]
        heading = headings[start != block.start]
        if len(text.strip()) <= MAX_CHARACTERS and self._count(text) <= room:
            begin = start + len(text) - len(text.lstrip())
            yield _Part(begin, start + len(text.rstrip()), heading)
            return
        # A row that is longer than a passage is cut like prose.
        for begin, finish in self._prose(page, start, end, self._plain):
            yield _Part(begin, finish, self._shorten(heading, HEADING_TOKENS))

    def _shorten(self, heading: str, tokens: int) -> str:
        """At most so many tokens of a heading; its end says more than its beginning."""
        heading = heading[-MAX_CHARACTERS // 4 :]
        offsets = self._tokenizer.encode(heading, add_special_tokens=False).offsets
        return heading if len(offsets) <= tokens else heading[offsets[-tokens][0] :].lstrip(" >|")

    def _cut_off(self, header: str, tokens: int) -> str:
        """At most so many tokens of a table's header, from its beginning."""
        header = header[: MAX_CHARACTERS // 2]
        offsets = self._tokenizer.encode(header, add_special_tokens=False).offsets
        return header if len(offsets) <= tokens else header[: offsets[tokens - 1][1]]


def _line_starts(page: str, start: int, end: int) -> Iterator[int]:
    while start < end:
        yield start
        line = page.find("\n", start, end)
        start = line + 1 if line >= 0 else end


def _pieces(page: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """A part of a page in pieces of bounded length, cut where a reader would pause."""
    while end - start > 1.5 * _PIECE_CHARACTERS:
        # The later half only: a piece of a few words would become a passage of a few words.
        half, limit = start + _PIECE_CHARACTERS // 2, start + _PIECE_CHARACTERS
        for seam in _SEAMS:
            at = page.rfind(seam, half, limit)
            if at >= 0:
                cut = at + len(seam)
                break
        else:
            cut = limit
            while cut < end and _joins(page[cut]):
                cut += 1
        yield start, cut
        start = cut
    yield start, end


def _joins(character: str) -> bool:
    """Whether a character belongs to the one before it, as accents and parts of emoji do."""
    return unicodedata.combining(character) > 0 or character in "\u200d\ufe0f"
