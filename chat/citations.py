"""Markers behind the sentences of an answer: the passage that one follows from, or that none does.

``[1]`` stands behind what passage 1 supports (``chat.support``), ``[?]`` behind a sentence that no
passage supports as a whole. Of such a sentence the clauses are tried, so that the right half of a
half-right one is still cited.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from chat.notes import NOT_SUPPORTED
from chat.support import MIN_COMMON_WORDS, Passages, Source, Window, words_of
from retrieval.sentences import Span, sentences

UNSUPPORTED = "[?]"

# What begins a clause that can be right or wrong on its own.
_CLAUSE = re.compile(
    r"[,;](?=\s+(?:which|and|but|so|because|since|while|where|whereas|compared)\b)|[，；]"
)
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_FULL_WIDTH_ENDS = "。！？；」』”’）"
_MARKERS = re.compile(r"(?:(?<![ \t])[ \t]+)?\[(?:\d{1,2}|\?)\](?!\()")
# It asks, or names what follows.
_STATES_NOTHING = ("?", "？", ":", "：")


class Support(NamedTuple):
    """The words of the passage at ``rank`` (from 0) that support a sentence.

    ``start``/``end`` are offsets into the text of the passage's page, ``marker`` the number that
    stands behind the sentence.
    """

    rank: int
    marker: int
    start: int
    end: int


class Checked(NamedTuple):
    """A sentence of an answer, and what it follows from as a whole."""

    text: str
    support: Support | None


class Cited(NamedTuple):
    """An answer with its markers, and what they stand for, in the order of the markers."""

    answer: str
    supports: tuple[Support, ...] = ()
    sentences: tuple[Checked, ...] = ()
    notes: tuple[str, ...] = ()


class Citer:
    """Checks one turn's answer against its passages, as often as more of it is written.

    ``sources`` are all that the model was given: this turn's passages, then those of earlier ones.
    """

    def __init__(self, question: str, sources: Sequence[Source]) -> None:
        self._asked = words_of(question)
        self._sources = sources
        self._passages = Passages(sources)

    def cite(self, answer: str) -> Cited:
        """Put markers behind the sentences that state something.

        Numbers count the cited passages in the order of their first use. What the model wrote in
        the form of a marker itself is taken out: it did not check.
        """
        answer = without_markers(answer).rstrip()
        markers: dict[int, int] = {}
        supports: dict[Support, None] = {}
        checked: list[Checked] = []
        pieces, done = [], 0

        def mark(end: int, marker: str) -> None:
            nonlocal done
            space = "" if answer[end - 1] in _FULL_WIDTH_ENDS else " "
            pieces.append(f"{answer[done:end]}{space}{marker}")
            done = end

        def found(end: int, window: Window) -> Support:
            marker = markers.setdefault(window.rank, len(markers) + 1)
            offset = self._sources[window.rank].char_start
            span = window.span
            support = Support(window.rank, marker, offset + span.start, offset + span.end)
            supports[support] = None
            mark(end, f"[{marker}]")
            return support

        for sentence in _stating(answer):
            text = answer[sentence.start : sentence.end]
            support = None
            if window := self._passages.support(text, self._asked):
                support = found(sentence.end, window)
            else:
                for start, end in _clauses(answer, sentence):
                    clause = answer[start:end]
                    if window := self._passages.support(clause, self._asked, is_clause=True):
                        found(end, window)
                mark(sentence.end, UNSUPPORTED)
            checked.append(Checked(text, support))
        pieces.append(answer[done:])
        in_order = tuple(sorted(supports, key=lambda s: (s.marker, s.start)))
        notes = () if in_order or not answer else (NOT_SUPPORTED,)
        return Cited("".join(pieces), in_order, tuple(checked), notes)


def without_markers(answer: str) -> str:
    """The answer without ``[1]``, ``[?]`` and the like, code left as it is."""
    pieces, done = [], 0
    for code in _CODE.finditer(answer):
        pieces += [_MARKERS.sub("", answer[done : code.start()]), code[0]]
        done = code.end()
    return "".join([*pieces, _MARKERS.sub("", answer[done:])])


def complete(text: str) -> int:
    """Where the last sentence ends that is complete while a text is being written; 0: none is."""
    spans = sentences(text)
    return spans[-2].end if len(spans) > 1 else 0


def _clauses(answer: str, sentence: Span) -> list[Span]:
    """The clauses of a sentence that say enough by themselves, each up to its comma."""
    cuts = [m.start() for m in _CLAUSE.finditer(answer, sentence.start, sentence.end)]
    if not cuts:
        return []
    starts, ends = [sentence.start, *(cut + 1 for cut in cuts)], [*cuts, sentence.end]
    clauses = map(Span, starts, ends)
    return [c for c in clauses if len(words_of(answer[c.start : c.end])) >= MIN_COMMON_WORDS]


def _stating(answer: str) -> list[Span]:
    """The sentences that say something, outside of code: a marker inside of it would change it."""
    blocks = [Span(*match.span()) for match in _CODE.finditer(answer)]
    return [
        span
        for span in sentences(answer)
        if not answer[: span.end].endswith(_STATES_NOTHING)
        and answer[span.start] != "#"
        and not any(span.start < block.end and block.start < span.end for block in blocks)
        and any(map(str.isalnum, answer[span.start : span.end]))
    ]
