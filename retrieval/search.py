"""From a question to passages: by words, by meaning, and the two lists made one."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from retrieval import store
from retrieval.database import Database
from retrieval.indexes import Indexes
from retrieval.views import Found

RANK_CONSTANT = 60
CANDIDATES = 50
# A model that does not know the question's script ranks almost at random: words must lead. At a
# tenth, the best guess by meaning moves a passage up by some ranks and never above a clear match.
UNKNOWN_SCRIPT_WEIGHT = 0.1

_Live: TypeAlias = Mapping[int, store.Hit]


class Fused(NamedTuple):
    id: int
    score: float
    lexical_rank: int | None
    dense_rank: int | None


def fuse(lexical: Sequence[int], dense: Sequence[int], dense_weight: float = 1.0) -> list[Fused]:
    """Reciprocal rank fusion: score = sum of weight / (60 + rank), ranks from 1.

    Cormack, Clarke and Buettcher, "Reciprocal rank fusion outperforms Condorcet and individual
    rank learning methods", SIGIR 2009.
    """
    lexical_ranks = {id: rank for rank, id in enumerate(lexical, 1)}
    dense_ranks = {id: rank for rank, id in enumerate(dense, 1)}

    def score(id: int) -> float:
        total = 0.0
        if id in lexical_ranks:
            total += 1 / (RANK_CONSTANT + lexical_ranks[id])
        if id in dense_ranks:
            total += dense_weight / (RANK_CONSTANT + dense_ranks[id])
        return total

    fused = [
        Fused(id, score(id), lexical_ranks.get(id), dense_ranks.get(id))
        for id in lexical_ranks | dense_ranks
    ]
    return sorted(fused, key=lambda hit: (-hit.score, hit.id))


def search(
    database: Database,
    indexes: Indexes,
    question: str,
    *,
    owner: str,
    limit: int,
    documents: Sequence[str] | None,
) -> tuple[Found, ...]:
    """The best passages of the ready documents this owner sees (or the `documents` among them)."""
    vectors, embedder = indexes.dense()
    vector = embedder.encode_question(question)
    with database.reading() as session:
        by_words = indexes.lexical.search(session, question, owner, documents, CANDIDATES)
        allowed = None
        if documents is not None or store.has_hidden(session, owner):
            allowed = store.visible_ids(session, owner, documents)
        by_meaning = vectors.search(vector, CANDIDATES, allowed)
        weight = 1.0 if embedder.handles(question) else UNKNOWN_SCRIPT_WEIGHT
        fused = fuse(by_words, by_meaning, weight)
        # Whatever an index says, only what the database has now, for this owner, is shown.
        live = store.hits(session, [hit.id for hit in fused], owner, documents)
        return tuple(_found(hit, live) for hit in _without_copies(fused, live)[:limit])


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
