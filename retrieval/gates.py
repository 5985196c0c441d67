"""From which score on a question counts as answered by the documents, for each embedding model.

Scores of different models are not comparable, so each one is tried on the shipped questions of
`calibration.json`: what it gives them decides where the line is. That takes a second or two, once,
when a model's first index is built; the outcome is stored with it.
"""

import hashlib
import json
import math
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sqlalchemy import Float, String
from sqlalchemy.orm import Mapped, mapped_column

from retrieval.database import Base, Database
from retrieval.embedder import Embedder
from retrieval.evidence import Asked, Evidence, coverage, evidence
from retrieval.lexical import Terms, query_terms, terms
from retrieval.sentence_rows import StoredSentences
from retrieval.sentences import sentences
from retrieval.views import Found

_FILE = Path(__file__).with_name("calibration.json")
_READ = 4
# Refusing what is there is worse than quoting what does not answer: that can be seen.
_WRONG_REFUSAL_COSTS = 2.0


class Thresholds(NamedTuple):
    """The lowest score of an answered question: with cosines in it, and by words alone."""

    meaning: float
    words: float


# Until a model's own are known: those of the default model.
DEFAULT = Thresholds(0.66, 0.33)


class Gate(Base):
    """The thresholds of an embedder, by fingerprint, and the questions that they were made with."""

    __tablename__ = "gates"

    embedder: Mapped[str] = mapped_column(String(64), primary_key=True)
    questions: Mapped[str] = mapped_column(String(64))
    meaning: Mapped[float] = mapped_column(Float)
    words: Mapped[float] = mapped_column(Float)


class Gates:
    """The stored thresholds of a database's embedders. Thread-safe."""

    # What was found out in this process, whichever database asks.
    _made: ClassVar[dict[tuple[str, str], Thresholds]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[str, Thresholds] = {}

    def threshold(self, embedder: str, by_meaning: bool) -> float:
        known = self._known.get(embedder) or self._load(embedder) or DEFAULT
        return known.meaning if by_meaning else known.words

    def calibrate(self, embedder: Embedder) -> None:
        """Find and store an embedder's thresholds, unless that was done with these questions."""
        fingerprint = embedder.fingerprint
        if fingerprint in self._known or self._load(fingerprint):
            return
        questions = _digest()
        with self._lock:
            made = self._made.get((fingerprint, questions)) or measured(embedder)
            self._made[fingerprint, questions] = made
        with self._database.session() as session:
            session.merge(Gate(embedder=fingerprint, questions=questions, **made._asdict()))
        self._known[fingerprint] = made

    def _load(self, fingerprint: str) -> Thresholds | None:
        with self._database.reading() as session:
            row = session.get(Gate, fingerprint)
        if row is None or row.questions != _digest():
            return None
        self._known[fingerprint] = Thresholds(row.meaning, row.words)
        return self._known[fingerprint]


def measured(embedder: Embedder) -> Thresholds:
    """The thresholds that tell the shipped questions apart best."""
    data = _data()
    passages = [_Passage.of(number, text, embedder) for number, text in enumerate(data["passages"])]
    library = _Library(passages)
    scores = [
        (library.judge(asked, embedder), kind == "answerable")
        for kind in ("answerable", "unanswerable")
        for asked in data[kind]
    ]
    read = [(found, held) for (found, _), held in scores if found.by_meaning]
    # Words alone decide where the model knows no script of a question; where it knows all, never.
    unread = [(words, held) for (found, words), held in scores if not found.by_meaning]
    return Thresholds(
        _line(read) if read else DEFAULT.meaning,
        _line(unread) if unread else DEFAULT.words,
    )


def _line(scores: Iterable[tuple[Evidence, bool]]) -> float:
    """The score between two neighbours that leaves the least on its wrong side."""
    ranked = sorted((found.gate, held) for found, held in scores)
    gates = [gate for gate, _ in ranked]
    best, least = 0.0, math.inf
    for low, high in pairwise(gates):
        line = (low + high) / 2
        cost = sum(
            _WRONG_REFUSAL_COSTS if held else 1.0 for gate, held in ranked if held == (gate < line)
        )
        if cost < least:
            best, least = line, cost
    return best


class _Passage(NamedTuple):
    found: Found
    terms: frozenset[str]
    vector: Any
    stored: StoredSentences

    @classmethod
    def of(cls, number: int, text: str, embedder: Embedder) -> "_Passage":
        spans = tuple(sentences(text))
        texts = tuple(text[start:end] for start, end in spans)
        vectors = np.zeros((1 + len(texts), embedder.dim), dtype=np.float32)
        if embedder.handles(text):
            vectors = embedder.encode([text, *texts])
        found = Found(number, "", "", "", 1, 0, len(text), text, "", 0.0, None, None)
        stored = StoredSentences(spans, texts, vectors[1:])
        return cls(found, frozenset(terms(text)), vectors[0], stored)


class _Library:
    """The shipped passages, searched as simply as so few can be: by cosine and rare terms."""

    def __init__(self, passages: Sequence[_Passage]) -> None:
        self._passages = passages
        self._having = Counter(term for passage in passages for term in passage.terms)

    def judge(self, question: str, embedder: Embedder) -> tuple[Evidence, Evidence]:
        """What the best passages show by meaning, where the embedder can, and words; by words."""
        asked = query_terms(question)
        having = {term: self._having[term] for term in asked}
        weights = Terms(len(self._passages), having, frozenset(asked)).weights
        known = embedder.handles(question)
        vector = embedder.encode_question(question) if known else None
        by_both = Asked(question, weights, vector, embedder.fingerprint)
        by_words = Asked(question, weights, None, embedder.fingerprint)
        return self._evidence(by_both), self._evidence(by_words)

    def _evidence(self, asked: Asked) -> Evidence:
        def nearness(passage: _Passage) -> float:
            cosine = 0.0 if asked.vector is None else float(passage.vector @ asked.vector)
            return coverage(asked.weights, passage.terms) + cosine

        best = sorted(self._passages, key=nearness, reverse=True)[:_READ]
        stored = {passage.found.passage_id: passage.stored for passage in best}
        return evidence(asked, [passage.found for passage in best], stored)


def _data() -> dict[str, list[str]]:
    data: dict[str, list[str]] = json.loads(_FILE.read_text(encoding="utf-8"))
    return data


def _digest() -> str:
    return hashlib.sha256(_FILE.read_bytes()).hexdigest()
