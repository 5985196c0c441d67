"""From which score on a question counts as answered by the documents, for each embedding model.

Scores of different models are not comparable, so each one is tried on the shipped questions of
`calibration.json`: what it gives them decides where the line is. That takes a second or two, once,
when a model's first index is built; the outcome is stored with it.
"""

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

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
_WRONG_REFUSAL_COSTS = 3.0
# How far scores scatter around those of the shipped questions, in their standard deviations.
_BLUR = 0.5


class Thresholds(NamedTuple):
    """The lowest score of an answered question: with cosines in it, and by words alone."""

    meaning: float
    words: float


# Until a model's own are known: those of the default model.
DEFAULT = Thresholds(0.74, 0.19)


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
    library = _Library(data["passages"], embedder)
    asked = [*data["answerable"], *data["unanswerable"]]
    if known := [question for question in asked if embedder.handles(question)]:
        embedder.encode_questions(known)  # all at once: each is remembered
    scores = [
        (library.judge(question, embedder), kind == "answerable")
        for kind in ("answerable", "unanswerable")
        for question in data[kind]
    ]
    read = [(found, held) for (found, _), held in scores if found.by_meaning]
    # Words alone decide where the model knows no script of a question; where it knows all, never.
    unread = [(words, held) for (found, words), held in scores if not found.by_meaning]
    return Thresholds(
        _line(read) if read else DEFAULT.meaning,
        _line(unread) if unread else DEFAULT.words,
    )


def _line(scores: Iterable[tuple[Evidence, bool]]) -> float:
    """The score that leaves the least on its wrong side.

    Each score stands for those of the same question in other words to other documents, which lie
    around it: sharp edges between so few would be chance.
    """
    pairs = [(found.gate, held) for found, held in scores]
    gates = np.array([gate for gate, _ in pairs])
    held = np.array([held for _, held in pairs])
    cost = np.where(held, _WRONG_REFUSAL_COSTS, 1.0)
    lines = np.linspace(gates.min(), gates.max(), 101)
    beyond = (lines[:, None] - gates) / (_BLUR * gates.std() + 1e-6)
    refused = 1 / (1 + np.exp(np.clip(-1.7 * beyond, -50, 50)))  # close to a normal distribution
    wrong = np.where(held, refused, 1 - refused)
    return float(lines[np.argmin(wrong @ cost)])


class _Passage(NamedTuple):
    found: Found
    terms: frozenset[str]
    stored: StoredSentences


class _Library:
    """The shipped passages, searched as simply as so few can be: by rare terms and by meaning."""

    def __init__(self, texts: Sequence[str], embedder: Embedder) -> None:
        spans = [tuple(sentences(text)) for text in texts]
        parts = [
            tuple(text[start:end] for start, end in of)
            for text, of in zip(texts, spans, strict=True)
        ]
        # What the model cannot read gets no direction, and is found by words.
        read = [part for of in parts for part in of if embedder.handles(part)]
        vectors = dict(zip(read, embedder.encode(read), strict=True))
        unread = np.zeros(embedder.dim, dtype=np.float32)
        self._passages = []
        for number, text in enumerate(texts):
            matrix = np.array([vectors.get(part, unread) for part in parts[number]])
            found = Found(number, "", "", "", 1, 0, len(text), text, "", 0.0, None, None)
            stored = StoredSentences(spans[number], parts[number], matrix)
            self._passages.append(_Passage(found, frozenset(terms(text)), stored))
        self._having = Counter(term for passage in self._passages for term in passage.terms)

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
            words = coverage(asked.weights, passage.terms)
            if asked.vector is None or passage.stored.vectors is None:
                return words
            return words + float((passage.stored.vectors @ asked.vector).max())

        best = sorted(self._passages, key=nearness, reverse=True)[:_READ]
        stored = {passage.found.passage_id: passage.stored for passage in best}
        return evidence(asked, [passage.found for passage in best], stored)


def _data() -> dict[str, list[str]]:
    data: dict[str, list[str]] = json.loads(_FILE.read_text(encoding="utf-8"))
    return data


def _digest() -> str:
    return hashlib.sha256(_FILE.read_bytes()).hexdigest()
