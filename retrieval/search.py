"""From a question to passages: by words, by meaning, and the two made one."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from retrieval import store
from retrieval.database import Database
from retrieval.evidence import Asked
from retrieval.indexes import Indexes
from retrieval.lexical import LexicalHit, query_terms
from retrieval.vectors import DenseHit
from retrieval.views import Found

CANDIDATES = 100
# What words count beside meaning, where the embedder knows the question's script ...
LEXICAL_WEIGHT = 0.4
# ... and where it does not, and ranks almost at random: then meaning only breaks ties.
LEXICAL_WEIGHT_UNKNOWN_SCRIPT = 0.9

_Live: TypeAlias = Mapping[int, store.Hit]


class Fused(NamedTuple):
    id: int
    score: float
    lexical_rank: int | None
    dense_rank: int | None


class Result(NamedTuple):
    asked: Asked
    passages: tuple[Found, ...]


def fuse(
    lexical: Sequence[LexicalHit], dense: Sequence[DenseHit], lexical_weight: float
) -> list[Fused]:
    """Weighted sum of both scores: cosines as they are, BM25 as a part of the best.

    Scores say more than ranks: a clear first place counts as one, and cosines that are all alike
    decide nothing. Bruch, Gai and Ingber, "An analysis of fusion functions for hybrid retrieval",
    TOIS 2023.
    """
    best = max((hit.score for hit in lexical), default=0.0) or 1.0
    by_words = {hit.id: (rank, hit.score / best) for rank, hit in enumerate(lexical, 1)}
    by_meaning = {hit.id: (rank, hit.cosine) for rank, hit in enumerate(dense, 1)}
    fused = []
    for id in by_words | by_meaning:
        lexical_rank, words = by_words.get(id, (None, 0.0))
        dense_rank, cosine = by_meaning.get(id, (None, 0.0))
        score = lexical_weight * words + (1 - lexical_weight) * cosine
        fused.append(Fused(id, score, lexical_rank, dense_rank))
    return sorted(fused, key=lambda hit: (-hit.score, hit.id))


def search(
    database: Database,
    indexes: Indexes,
    question: str,
    *,
    owner: str,
    limit: int,
    documents: Sequence[str] | None,
) -> Result:
    """The best passages of the ready documents this owner sees (or the `documents` among them)."""
    vectors, embedder = indexes.dense()
    vector = embedder.encode_question(question)
    known = embedder.handles(question)
    with database.reading() as session:
        frequencies = indexes.lexical.frequencies(session, query_terms(question))
        by_words = indexes.lexical.search(session, frequencies, owner, documents, CANDIDATES)
        allowed = None
        if documents is not None or store.has_hidden(session, owner):
            allowed = store.visible_ids(session, owner, documents)
        by_meaning = vectors.search(vector, CANDIDATES, allowed)
        weight = LEXICAL_WEIGHT if known else LEXICAL_WEIGHT_UNKNOWN_SCRIPT
        fused = fuse(by_words, by_meaning, weight)
        # Whatever an index says, only what the database has now, for this owner, is shown.
        live = store.hits(session, [hit.id for hit in fused], owner, documents)
        passages = tuple(_found(hit, live) for hit in _without_copies(fused, live)[:limit])
        asked = Asked(
            question, frequencies.weights, vector if known else None, embedder.fingerprint
        )
        return Result(asked, passages)


def _without_copies(fused: Sequence[Fused], live: _Live) -> list[Fused]:
    """Live hits, each text once: a person's own file may be in the shared library as well."""
    kept: dict[tuple[str, int, int], Fused] = {}
    for hit in fused:
        if hit.id in live:
            passage, document = live[hit.id].passage, live[hit.id].document
            kept.setdefault((document.content_hash, passage.page, passage.char_start), hit)
    return list(kept.values())


def _found(hit: Fused, live: _Live) -> Found:
    passage, document, page_label, ocr = live[hit.id]
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
