"""From a question to passages: by words, by meaning, and the two made one."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from sqlalchemy.orm import Session

from retrieval import store
from retrieval.database import Database
from retrieval.embedder import Embedder, Vectors
from retrieval.evidence import Asked
from retrieval.indexes import Dense, Indexes
from retrieval.lexical import LexicalHit, Terms, query_terms, terms
from retrieval.vectors import DenseHit
from retrieval.views import Found

Side: TypeAlias = Literal["both", "words", "meaning"]

CANDIDATES = 100
# What words count beside meaning. The nearest passage stands out from the rest by a usual margin,
# in standard deviations; by how much it does so less, words count more, and the other way round.
LEXICAL_WEIGHT = 0.6
USUAL_MARGIN = 4.5
WEIGHT_PER_MARGIN = 0.08
LEAST_WEIGHT, MOST_WEIGHT = 0.4, 0.9
# Where the embedder does not know the question's script, it ranks almost at random: it only says
# in which order passages come that are alike by words.
LEXICAL_WEIGHT_UNKNOWN_SCRIPT = 0.98
# How far BM25 is measured by what the best passage has, and not by what any passage could have.
BEST_SHARE = 0.25
# A question is read in the light of so many before it, the last of which counts half of it and
# each one before half of the next.
EARLIER = 4
EARLIER_SHARE = 0.5
# Passages that have this part of all their terms in common can say the same.
SAME_TERMS = 0.9
# Rows that are fetched at once: enough for a usual question, few enough to be quick.
_BATCH = 24


class Scope(NamedTuple):
    """Whose ready documents are searched, and which of them (None: all)."""

    owner: str
    documents: Sequence[str] | None


class Fused(NamedTuple):
    id: int
    score: float
    lexical_rank: int | None
    dense_rank: int | None


class Result(NamedTuple):
    asked: Asked
    passages: tuple[Found, ...]


def search(
    database: Database,
    indexes: Indexes,
    question: str,
    *,
    earlier: Sequence[str],
    scope: Scope,
    limit: int,
    side: Side = "both",
) -> Result:
    """The best passages for a question, in the light of the `earlier` ones, the last one last.

    With one `side` alone the other finds nothing; that is for comparing them.
    """
    earlier = earlier[-EARLIER:]
    dense = indexes.dense()
    vector = question_vector(dense.embedder, question, earlier)
    known = dense.embedder.handles(question)
    with database.reading() as session:
        carried = [term for one in earlier for term in query_terms(one)]
        wanted = indexes.lexical.terms(session, scope.owner, query_terms(question), carried)
        by_words: list[LexicalHit] = []
        by_meaning: list[DenseHit] = []
        if side != "meaning":
            by_words = indexes.lexical.search(session, wanted, *scope, CANDIDATES)
        if side != "words":
            by_meaning = _by_meaning(session, dense, vector, scope)
        ranked = {hit.id for hit in by_meaning}
        missing = [hit.id for hit in by_words if hit.id not in ranked]
        weight = LEXICAL_WEIGHT_UNKNOWN_SCRIPT
        if known and by_meaning:
            # A vector drawn towards other questions stands out less, whatever the model knows.
            best = by_meaning[0].cosine
            margin = None
            if not earlier:
                margin = dense.vectors.stands_out(
                    vector, best, scope.owner, lambda: _visible(session, scope.owner)
                )
            weight = lexical_weight(margin)
        fused = fuse(
            by_words,
            by_meaning,
            lexical_weight=1.0 if side == "words" else weight,
            best_possible=wanted.best_possible,
            more_cosines=dense.vectors.cosines(vector, missing),
        )
        found = _distinct(_live(session, fused, scope), wanted, limit)
    fingerprint = dense.vectors.fingerprint
    asked = Asked(question, wanted.weights, vector if known else None, fingerprint)
    return Result(asked, tuple(found))


def question_vector(embedder: Embedder, question: str, earlier: Sequence[str]) -> Vectors:
    """The question's direction, drawn towards those of the ones before it, float32 [dim]."""
    vectors = embedder.encode_questions([question, *reversed(earlier)])
    vector = (EARLIER_SHARE ** np.arange(len(vectors), dtype=np.float32)) @ vectors
    return vector / np.linalg.norm(vector)


def _by_meaning(session: Session, dense: Dense, vector: Vectors, scope: Scope) -> list[DenseHit]:
    """The nearest passages in the scope.

    The nearest of all are asked first whether they are in it: usually enough of them are, and
    naming every passage of a large scope takes longer than searching.
    """
    if scope.documents is None and not store.has_hidden(session, scope.owner):
        return dense.vectors.search(vector, CANDIDATES)
    nearest = dense.vectors.search(vector, 5 * CANDIDATES)
    visible = store.visible_ids(session, *scope, among=[hit.id for hit in nearest])
    hits = [hit for hit in nearest if hit.id in visible][:CANDIDATES]
    if len(hits) < CANDIDATES < len(nearest):
        hits = dense.vectors.search(vector, CANDIDATES, list(store.visible_ids(session, *scope)))
    return hits


def _visible(session: Session, owner: str) -> set[int] | None:
    """The passages that an owner sees, None where that is all there are."""
    if not store.has_hidden(session, owner):
        return None
    return store.visible_ids(session, owner, None)


def lexical_weight(margin: float | None) -> float:
    """What words count if the nearest passage stands out by this margin (None: not known)."""
    if margin is None:
        return LEXICAL_WEIGHT
    weight = LEXICAL_WEIGHT + WEIGHT_PER_MARGIN * (USUAL_MARGIN - margin)
    return min(max(weight, LEAST_WEIGHT), MOST_WEIGHT)


def fuse(
    lexical: Sequence[LexicalHit],
    dense: Sequence[DenseHit],
    *,
    lexical_weight: float,
    best_possible: float,
    more_cosines: Mapping[int, float],
) -> list[Fused]:
    """The weighted sum of both scores, best first.

    Scores say more than ranks: a clear first place counts as one, and cosines that are all alike
    decide nothing (Bruch, Gai and Ingber, "An analysis of fusion functions for hybrid retrieval",
    TOIS 2023). Cosines stay as they are. BM25 is divided by what lies between the best passage's
    score and the best possible one: by the first alone, a weak best hit would be as good as a
    strong one; by the second alone, a long question, of which no passage has every word, would
    leave the words too little weight.
    """
    best = max((hit.score for hit in lexical), default=0.0)
    unit = best**BEST_SHARE * best_possible ** (1 - BEST_SHARE) or 1.0
    by_words = {hit.id: (rank, hit.score / unit) for rank, hit in enumerate(lexical, 1)}
    by_meaning = {hit.id: (rank, hit.cosine) for rank, hit in enumerate(dense, 1)}
    fused = []
    for id in by_words | by_meaning:
        lexical_rank, words = by_words.get(id, (None, 0.0))
        dense_rank, cosine = by_meaning.get(id, (None, more_cosines.get(id, 0.0)))
        score = lexical_weight * words + (1 - lexical_weight) * cosine
        fused.append(Fused(id, score, lexical_rank, dense_rank))
    return sorted(fused, key=lambda hit: (-hit.score, hit.id))


def _live(session: Session, fused: Sequence[Fused], scope: Scope) -> Iterator[Found]:
    """Whatever an index says, only what the database has now, for this owner, is shown."""
    for start in range(0, len(fused), _BATCH):
        batch = fused[start : start + _BATCH]
        hits = store.hits(session, [hit.id for hit in batch], *scope)
        yield from (_found(hit, hits[hit.id]) for hit in batch if hit.id in hits)


def _distinct(ranked: Iterable[Found], wanted: Terms, limit: int) -> list[Found]:
    """The first `limit` passages that each say something else.

    Of passages that say the same (a file and its copy, a text that a document repeats), the one
    that was there first stands for all, at the place of the best.
    """
    kept: list[Found] = []
    contents: list[_Content] = []
    for found in ranked:
        content = _Content.of(found, wanted)
        same = next((n for n, other in enumerate(contents) if content.says_same(other)), None)
        if same is None:
            if len(kept) == limit:
                break
            kept.append(found)
            contents.append(content)
        elif found.passage_id < kept[same].passage_id:
            kept[same] = replace(found, score=kept[same].score)
    return kept


class _Content(NamedTuple):
    """What decides whether two passages say the same."""

    terms: frozenset[str]
    asked: frozenset[str]
    numbers: frozenset[str]

    @classmethod
    def of(cls, found: Found, wanted: Terms) -> "_Content":
        held = frozenset(terms(found.text))
        numbers = frozenset(term for term in held if any(map(str.isdigit, term)))
        return cls(held, held & wanted.having.keys(), numbers)

    def says_same(self, other: "_Content") -> bool:
        if (self.asked, self.numbers) != (other.asked, other.numbers):
            return False
        common = len(self.terms & other.terms)
        return common >= SAME_TERMS * len(self.terms | other.terms)


def _found(hit: Fused, live: store.Hit) -> Found:
    passage, document, page_label, ocr = live
    return Found(
        passage_id=passage.id,
        document_id=document.id,
        title=document.title,
        name=document.name,
        page=passage.page,
        char_start=passage.char_start,
        char_end=passage.char_end,
        text=passage.text,
        heading=passage.heading,
        score=hit.score,
        lexical_rank=hit.lexical_rank,
        dense_rank=hit.dense_rank,
        page_label=page_label,
        ocr=ocr,
    )
