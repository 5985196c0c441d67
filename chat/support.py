"""Which words of which passage a sentence follows from, if any.

A sentence is supported by one sentence of a passage, or by two that follow each other, if

- they hold most of its words, weighed by how rare a word is among the passages (IDF), and as much
  of those that the question did not bring: repeating the question is no support. What it is about
  may stand in the passage's title or heading instead;
- they hold every number of it, in one sentence and in the same unit where it is measured, and
  every name;
- none of its words is denied in one of the two and not in the other.

Words that no passage holds weigh most, so a sentence that adds something of its own fails.
Comparing words, not vectors, keeps this exact, quick, and the same for every language that
``chat.words`` can cut.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

from chat.words import (
    content_words,
    denied,
    is_number,
    names,
    quantities,
    without_units,
)
from retrieval.sentences import Span, sentences

MIN_SUPPORT = 0.7
# What is said must stand there: title and heading can only say of what.
MIN_OWN_SUPPORT = 0.5
# A second sentence is taken in only where it adds this much.
WORTH_ANOTHER_SENTENCE = 0.15
# Fewer words in common are no support, unless one is new and telling: "The answer is 1."
MIN_COMMON_WORDS = 3


class Source(Protocol):
    """A passage: its text, where that begins in the text of its page, and what it is about."""

    @property
    def text(self) -> str: ...
    @property
    def char_start(self) -> int: ...
    @property
    def title(self) -> str: ...
    @property
    def heading(self) -> str: ...


class Claim(NamedTuple):
    """What a sentence says, as far as it can be compared."""

    words: frozenset[str]
    names: frozenset[str]
    denied: frozenset[str]

    @classmethod
    def of(cls, text: str) -> Claim:
        return cls(words_of(text), frozenset(names(without_units(text))), frozenset(denied(text)))

    def __or__(self, other: Claim) -> Claim:  # type: ignore[override]
        return Claim(*(own | its for own, its in zip(self, other, strict=True)))


@dataclass(frozen=True)
class Window:
    """One sentence of a passage, or two that follow each other.

    ``rank`` is the passage's place among the sources, ``span`` the range in its text, ``about``
    the words of its title and heading.
    """

    rank: int
    span: Span
    claims: tuple[Claim, ...]
    about: frozenset[str]

    @cached_property
    def claim(self) -> Claim:
        """What its sentences say together."""
        first, *others = self.claims
        return first | others[0] if others else first

    def holds_facts(self, claim: Claim) -> bool:
        """Numbers belong together: one sentence has all of them. Names may be said before."""
        numbers = {word for word in claim.words if is_number(word)}
        if not any(numbers <= one.words for one in self.claims):
            return False
        return claim.names <= self.claim.words | self.about

    def contradicts(self, claim: Claim) -> bool:
        said, saying = self.claim, claim
        only_here = (said.denied - saying.denied) & saying.words
        only_there = (saying.denied - said.denied) & said.words
        return bool(only_here or only_there)


class Passages:
    """The passages' sentences and how much each of their words weighs."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._windows: list[Window] = []
        self._counts: Counter[str] = Counter()
        self._sentences = 0
        for rank, source in enumerate(sources):
            about = words_of(f"{source.title}\n{source.heading}")
            spans = sentences(source.text)
            claims = [Claim.of(source.text[start:end]) for start, end in spans]
            self._windows += [
                Window(rank, span, (claim,), about)
                for span, claim in zip(spans, claims, strict=True)
            ]
            self._windows += [
                Window(rank, Span(a.start, b.end), (one, two), about)
                for a, b, one, two in zip(spans, spans[1:], claims, claims[1:], strict=False)
            ]
            self._counts.update(word for claim in claims for word in claim.words)
            self._sentences += len(spans)

    def support(
        self, sentence: str, question: frozenset[str], *, is_clause: bool = False
    ) -> Window | None:
        """The best window that a sentence follows from; ``question`` are the question's words.

        A clause must say something that these do not.
        """
        claim = Claim.of(sentence)
        new = claim.words - question
        if is_clause and not new:
            return None
        if len(claim.words) < MIN_COMMON_WORDS and not any(map(_is_telling, new)):
            return None
        best, best_score = None, 0.0
        for window in self._windows:
            known = window.claim.words | window.about
            if min(self._coverage(claim.words, known), self._coverage(new, known)) < MIN_SUPPORT:
                continue
            score = self._coverage(claim.words, window.claim.words)
            if score < MIN_OWN_SUPPORT:
                continue
            score -= WORTH_ANOTHER_SENTENCE * (len(window.claims) - 1)
            if score > best_score and window.holds_facts(claim) and not window.contradicts(claim):
                best, best_score = window, score
        return best

    def _coverage(self, words: frozenset[str], by: frozenset[str]) -> float:
        """The part of ``words``, by weight, that is among ``by``; 1.0 of no words."""
        whole = sum(map(self._weight, words))
        return sum(map(self._weight, words & by)) / whole if whole else 1.0

    def _weight(self, word: str) -> float:
        count = self._counts[word]
        return math.log(1 + (self._sentences - count + 0.5) / (count + 0.5))


def words_of(text: str) -> frozenset[str]:
    """The words that carry meaning; a measured number goes with its unit, whatever its name."""
    return frozenset(content_words(without_units(text))) | frozenset(quantities(text))


def _is_telling(word: str) -> bool:
    return not is_number(word) or len(word) > 1
