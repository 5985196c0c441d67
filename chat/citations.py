"""Which words of which passage support which sentence of an answer.

A sentence is supported by one sentence of a passage, or by two that follow each other, if they
hold enough of its words, weighed by how rare a word is among the passages (IDF):

- of all its words at least MIN_SUPPORT, and of those that the question did not bring as much again,
  for repeating the question is no support;
- every number of it, in the same unit where it is measured.

Words that no passage holds weigh most, so a sentence that adds something of its own fails. Of a
sentence that fails as a whole, the clauses are tried, and the marker stands behind the clause.
Comparing words, not vectors, keeps this exact, quick, and the same for every language that
``chat.words`` can cut.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from chat.notes import NOT_SUPPORTED
from chat.words import Span, content_words, is_number, quantities, sentences

MIN_SUPPORT = 0.6
# A second sentence is taken in only where it adds this much.
WORTH_ANOTHER_SENTENCE = 0.15
# Fewer words in common are no support, unless one is new and telling: "The answer is 1."
MIN_COMMON_WORDS = 3
# The passages' best sentence for the question, and how far the answer has to agree with it.
MIN_QUESTION = 0.6
MIN_AGREEMENT = 0.3


# What begins a clause that can be right or wrong on its own.
_CLAUSE = re.compile(
    r"[,;](?=\s+(?:which|and|but|so|because|since|while|where|whereas|compared)\b)|[，；]"
)
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_FULL_WIDTH_ENDS = "。！？；」』”’）"
_OWN_MARKERS = re.compile(r"[ \t]*\[\d{1,2}\](?!\()")


class Source(Protocol):
    """A passage: its text, and where that begins in the text of its page."""

    @property
    def text(self) -> str: ...
    @property
    def char_start(self) -> int: ...


class Support(NamedTuple):
    """The words of the passage at ``rank`` (from 0) that support a sentence.

    ``start``/``end`` are offsets into the text of the passage's page, ``marker`` the number that
    stands behind the sentence.
    """

    rank: int
    marker: int
    start: int
    end: int


class Cited(NamedTuple):
    """An answer with its markers, and what they stand for, in the order of the markers."""

    answer: str
    supports: tuple[Support, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Window:
    """One sentence of a passage, or two that follow each other."""

    rank: int
    span: Span
    words: frozenset[str]
    sentences: int

    def holds_numbers(self, words: frozenset[str]) -> bool:
        return all(word in self.words for word in words if is_number(word))


class _Evidence:
    """The passages' sentences and how much each of their words weighs."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.singles: list[_Window] = []
        self._pairs: list[_Window] = []
        for rank, source in enumerate(sources):
            spans = sentences(source.text)
            words = [_words(source.text[a:b]) for a, b in spans]
            self.singles += [_Window(rank, s, w, 1) for s, w in zip(spans, words, strict=True)]
            self._pairs += [
                _Window(rank, Span(a.start, b.end), v | w, 2)
                for a, b, v, w in zip(spans, spans[1:], words, words[1:], strict=False)
            ]
        self._counts = Counter(word for window in self.singles for word in window.words)

    def coverage(self, words: frozenset[str], by: frozenset[str]) -> float:
        """The part of ``words``, by weight, that is among ``by``; 1.0 of no words."""
        whole = sum(map(self._weight, words))
        return sum(map(self._weight, words & by)) / whole if whole else 1.0

    def support(self, words: frozenset[str], question: frozenset[str]) -> _Window | None:
        """The best window that supports a sentence of these words."""
        new = words - question
        if len(words) < MIN_COMMON_WORDS and not any(map(_is_telling, new)):
            return None
        best, best_score = None, 0.0
        for window in self.singles + self._pairs:
            score = self.coverage(words, window.words)
            enough = score >= MIN_SUPPORT and self.coverage(new, window.words) >= MIN_SUPPORT
            score -= WORTH_ANOTHER_SENTENCE * (window.sentences - 1)
            if enough and score > best_score and window.holds_numbers(words):
                best, best_score = window, score
        return best

    def agreeing(self, words: frozenset[str], question: frozenset[str]) -> _Window | None:
        """The sentence that answers the question best, if the answer's words agree with it."""
        best = max(self.singles, key=lambda w: self.coverage(question, w.words), default=None)
        if (
            best is None
            or self.coverage(question, best.words) < MIN_QUESTION
            or self.coverage(words, best.words) < MIN_AGREEMENT
            or not (words - question) & best.words
            or not best.holds_numbers(words)
        ):
            return None
        return best

    def _weight(self, word: str) -> float:
        count = self._counts[word]
        return math.log(1 + (len(self.singles) - count + 0.5) / (count + 0.5))


def cite(answer: str, question: str, sources: Sequence[Source]) -> Cited:
    """Put markers such as ``[1]`` behind the sentences of an answer that a passage supports.

    Markers number the cited passages in the order of their first use. What the model wrote in the
    form of a marker itself is taken out: it did not check. If no sentence is supported, the
    sentence that answers the question best is cited at the end, provided that the answer agrees
    with it; otherwise a note says that nothing supports the answer.
    """
    answer = without_markers(answer).rstrip()
    asked = _words(question)
    evidence = _Evidence(sources)
    found: list[tuple[int, _Window]] = []
    checked = _checked_sentences(answer)
    for span in checked:
        for part in [span], _clauses(answer, span):
            supported = [
                (end, window)
                for start, end in part
                if (window := evidence.support(_words(answer[start:end]), asked))
            ]
            if supported:
                found += supported
                break
    if checked and not found:
        window = evidence.agreeing(_words(answer), asked)
        found = [(len(answer), window)] if window else []
    cited = _marked(answer, found, sources)
    return cited if cited.supports or not answer else cited._replace(notes=(NOT_SUPPORTED,))


def without_markers(answer: str) -> str:
    """The answer without ``[1]`` and the like, code left as it is."""
    pieces, done = [], 0
    for code in _CODE.finditer(answer):
        pieces += [_OWN_MARKERS.sub("", answer[done : code.start()]), code[0]]
        done = code.end()
    return "".join([*pieces, _OWN_MARKERS.sub("", answer[done:])])


def _words(text: str) -> frozenset[str]:
    return frozenset(content_words(text)) | frozenset(quantities(text))


def _is_telling(word: str) -> bool:
    return not is_number(word) or len(word) > 1


def _clauses(answer: str, sentence: Span) -> list[Span]:
    """The clauses of a sentence that say enough by themselves, each up to its comma."""
    cuts = [m.start() for m in _CLAUSE.finditer(answer, sentence.start, sentence.end)]
    if not cuts:
        return []
    starts, ends = [sentence.start, *(cut + 1 for cut in cuts)], [*cuts, sentence.end]
    clauses = map(Span, starts, ends)
    return [c for c in clauses if len(_words(answer[c.start : c.end])) >= MIN_COMMON_WORDS]


def _marked(answer: str, found: Sequence[tuple[int, _Window]], sources: Sequence[Source]) -> Cited:
    markers: dict[int, int] = {}
    supports: dict[Support, None] = {}
    pieces, done = [], 0
    for end, window in found:
        marker = markers.setdefault(window.rank, len(markers) + 1)
        offset = sources[window.rank].char_start
        supports[
            Support(window.rank, marker, offset + window.span.start, offset + window.span.end)
        ] = None
        space = "" if answer[end - 1] in _FULL_WIDTH_ENDS else " "
        pieces.append(f"{answer[done:end]}{space}[{marker}]")
        done = end
    pieces.append(answer[done:])
    return Cited("".join(pieces), tuple(sorted(supports, key=lambda s: (s.marker, s.start))), ())


def _checked_sentences(answer: str) -> list[Span]:
    """The sentences that say something, outside of code: a marker inside of it would change it."""
    blocks = [Span(*match.span()) for match in _CODE.finditer(answer)]
    return [
        span
        for span in sentences(answer)
        if answer[span.end - 1] not in "?？"
        and answer[span.start] != "#"
        and not any(span.start < block.end and block.start < span.end for block in blocks)
    ]
