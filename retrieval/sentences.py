"""The sentences of a page, each with its exact range in the page's text.

sentencex (MIT, by the Wikimedia Foundation) knows full stops of some three hundred languages and
their abbreviations. It knows no layout: headings, items of a list and rows of a table end with
their line here, and what goes on for too long without a full stop is cut.
"""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import sentencex

# What a person reads as one statement, and less than an embedder reads of a text.
MAX_CHARACTERS = 500
# A language is guessed from the beginning of a text.
_SAMPLE_CHARACTERS = 4_000

# A line that is a statement of its own: heading, item of a list, row of a table, quotation.
_OWN_LINE = re.compile(r"[ \t]*(?:#{1,6}[ \t]|[-*+•‣–][ \t]|\d{1,3}[.)][ \t]|\||>)")
# ... and that ends with its line: the next one does not go on with it.
_WHOLE_LINE = re.compile(r"[ \t]*(?:#{1,6}[ \t]|\|)")
_WORD = re.compile(r"[^\W\d_]+")
_EMPHASIS = re.compile(r"[*_]+")
# What a paragraph is about, set off before it as glossaries do: "**Page table.** It maps ...".
_LEAD_IN = re.compile(
    r"(?:(?:[-*+•‣–>]|\d{1,3}[.)])[ \t]+)?([*_]{1,3})[^*_\n]{1,60}[.:。：!?！？]?\1[.:。：]?"
)
# Good places to cut what is too long, the best first.
_CUTS = (
    re.compile(r"\n"),
    re.compile(r"[;；:：]\s*"),
    re.compile(r"[,，、]\s*"),
    re.compile(r"\s"),
)

# Words that are frequent in one language and in none of the others.
_FREQUENT = {
    "en": "the of and is that was with which",
    "de": "der und das ist nicht von mit den auch werden",
    "fr": "les des est dans une sur qui avec au",
    "es": "los las del una por para con es como",
    "it": "di che il della per sono gli nel è",
    "pt": "do da não uma os em são pelo",
    "nl": "het een van zijn niet voor dat wordt",
}
_LANGUAGES = {word: language for language, text in _FREQUENT.items() for word in text.split()}


class Span(NamedTuple):
    """A stretch `text[start:end]`."""

    start: int
    end: int


def sentences(text: str) -> list[Span]:
    """The sentences of a text in order, without the white space around them.

    Every character that is no white space is in exactly one of them, and none is longer than
    MAX_CHARACTERS.
    """
    language = _language(text)
    found: list[Span] = []
    for block in _blocks(text):
        words = text[block.start : block.end]
        pieces = [
            Span(block.start + piece["start_index"], block.start + piece["end_index"])
            for piece in sentencex.get_sentence_boundaries(language, words)
        ]
        for span in _joined(text, pieces):
            found.extend(_short(text, span))
    return found


def _language(text: str) -> str:
    """Whose abbreviations a text has, by its most frequent words; English if nothing tells."""
    counts = Counter(
        _LANGUAGES[word]
        for word in _WORD.findall(text[:_SAMPLE_CHARACTERS].lower())
        if word in _LANGUAGES
    )
    return counts.most_common(1)[0][0] if counts else "en"


def _blocks(text: str) -> Iterator[Span]:
    """Paragraphs, and the lines that stand for themselves."""
    start = 0
    ended = True
    for line in re.finditer(r"[^\n]*(?:\n|\Z)", text):
        blank = not line[0].strip()
        if ended or blank or _OWN_LINE.match(line[0]):
            if start < line.start():
                yield Span(start, line.start())
            start = line.start()
        ended = blank or _WHOLE_LINE.match(line[0]) is not None
    if start < len(text):
        yield Span(start, len(text))


def _joined(text: str, pieces: list[Span]) -> list[Span]:
    """Trimmed, and a piece without a word ("1.", "...") made part of its neighbour.

    So is what only says what the paragraph is about.
    """
    found: list[Span] = []
    waiting: int | None = None
    for piece in _emphasis_ended(text, pieces):
        start, end = trimmed(text, piece)
        if start == end:
            continue
        if not found and _LEAD_IN.fullmatch(text, start, end):
            waiting = start if waiting is None else waiting
        elif any(map(str.isalpha, text[start:end])):
            found.append(Span(start if waiting is None else waiting, end))
            waiting = None
        elif found:
            found[-1] = Span(found[-1].start, end)
        elif waiting is None:
            waiting = start
    if waiting is not None:
        found.append(trimmed(text, Span(waiting, pieces[-1].end)))
    return found


def _emphasis_ended(text: str, pieces: list[Span]) -> list[Span]:
    """The pieces, each with the marks that end its own emphasis: "**A page." + "** It is full."."""
    ended = list(pieces)
    for number, (before, piece) in enumerate(pairwise(pieces)):
        marks = _EMPHASIS.match(text, piece.start, piece.end)
        if marks and text.count(marks[0], before.start, before.end) % 2:
            ended[number] = ended[number]._replace(end=marks.end())
            ended[number + 1] = piece._replace(start=marks.end())
    return ended


def _short(text: str, span: Span) -> Iterator[Span]:
    """The span in parts of at most MAX_CHARACTERS, cut where it hurts least."""
    start = span.start
    while span.end - start > MAX_CHARACTERS:
        cut = _cut(text, start, start + MAX_CHARACTERS)
        part = trimmed(text, Span(start, cut))
        if part.start < part.end:
            yield part
        start = cut
    part = trimmed(text, Span(start, span.end))
    if part.start < part.end:
        yield part


def _cut(text: str, start: int, limit: int) -> int:
    """The end of the last good place in the second half of what may be kept."""
    middle = start + MAX_CHARACTERS // 2
    for place in _CUTS:
        ends = [match.end() for match in place.finditer(text, middle, limit)]
        if ends:
            return ends[-1]
    return limit


def trimmed(text: str, span: Span) -> Span:
    """A span without the white space at its ends."""
    start, end = span
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return Span(start, end)
