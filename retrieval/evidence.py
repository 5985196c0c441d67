"""Which sentences of the found passages answer a question, and whether any does.

A sentence speaks to a question by meaning (the cosine of their embeddings, both made before: the
question's for the search, the sentence's when its document was indexed) and by words (the part of
the question's terms, by weight, that it has). The two are added up. No model runs here.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from retrieval.embedder import Vectors
from retrieval.lexical import terms
from retrieval.sentence_rows import StoredSentences
from retrieval.sentences import Span
from retrieval.views import Found

# A heading names what follows and says nothing itself; a question asks.
_STATES_NOTHING = re.compile(r"#{1,6}[ \t]|.*[?？]$", re.DOTALL)


@dataclass(frozen=True, eq=False)
class Asked:
    """A question as the library reads it.

    `weights` are its terms (stems, pairs of CJK characters) with how much each tells in this
    library (inverse document frequency). `vector` is its embedding, float32 [dim], or None if the
    embedder does not know its script, and would answer at random; `embedder` its fingerprint.
    """

    text: str
    weights: Mapping[str, float]
    vector: Vectors | None
    embedder: str


@dataclass(frozen=True, eq=False)
class Sentence:
    """A sentence of a found passage: `text` is the page's text[span.start:span.end].

    It may reach beyond its passage, which is cut without regard to it. `vector` is its embedding,
    float32 [dim], None while it is not made yet. `cosine` says how near it is to the question by
    meaning (None where `Asked.vector` is), `coverage` what part of the question's terms, by
    weight, it has: half of it by itself, half together with the sentence before it and the
    headings above. `score` is the sum of both.
    """

    passage: Found
    span: Span
    text: str
    vector: Vectors | None
    cosine: float | None
    coverage: float
    score: float


class Evidence(NamedTuple):
    """The sentences of the found passages that state something, best first.

    `gate` says how likely the documents hold an answer at all. It compares between questions that
    have the same `by_meaning`: whether cosines are in it.
    """

    sentences: tuple[Sentence, ...]
    gate: float
    by_meaning: bool
    seconds: float = 0.0


def evidence(
    asked: Asked, found: Sequence[Found], stored: Mapping[int, StoredSentences]
) -> Evidence:
    """The sentences of `found` by falling score; those of `stored` by passage id.

    Where passages meet, a sentence is in two of them; it comes once, with the better passage.
    """
    sentences: dict[tuple[str, int, Span], Sentence] = {}
    for passage in found:
        for sentence in _sentences(asked, passage, stored.get(passage.passage_id)):
            place = (passage.document_id, passage.page, sentence.span)
            sentences.setdefault(place, sentence)
    ranked = tuple(sorted(sentences.values(), key=lambda sentence: -sentence.score))
    return Evidence(
        ranked,
        max((sentence.score for sentence in ranked), default=0.0),
        asked.vector is not None,
    )


def _sentences(asked: Asked, passage: Found, stored: StoredSentences | None) -> Iterator[Sentence]:
    if stored is None:
        return
    heading = set(terms(passage.heading))
    before: set[str] = set()
    for number, (span, text) in enumerate(zip(stored.spans, stored.texts, strict=True)):
        own = set(terms(text))
        if _STATES_NOTHING.match(text) or not own:
            continue
        vector = None if stored.vectors is None else stored.vectors[number]
        cosine = None
        if vector is not None and asked.vector is not None:
            cosine = float(vector @ asked.vector)
        # "It was built in 1964": what it is stands in the sentence before, or in the heading.
        in_context = coverage(asked.weights, own | before | heading)
        covered = (coverage(asked.weights, own) + in_context) / 2
        yield Sentence(passage, span, text, vector, cosine, covered, covered + (cosine or 0.0))
        before = own


def coverage(weights: Mapping[str, float], held: AbstractSet[str]) -> float:
    """The part of a question's terms, by their weights, that is held; 0 if it has no terms."""
    whole = sum(weights.values())
    return sum(weights[term] for term in weights.keys() & held) / (whole or 1.0)
