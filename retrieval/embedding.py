"""Embeds the passages of a document and their sentences, one batch and transaction at a time."""

import time
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from sqlalchemy.orm import Session

from retrieval import sentence_rows, store
from retrieval.database import Database
from retrieval.embedder import Embedder, Vectors
from retrieval.sentence_rows import Unembedded
from retrieval.sentences import Span, sentences
from retrieval.vectors import to_bytes

BATCH_PASSAGES = 16


class _Page(NamedTuple):
    document_id: str
    number: int
    text: str
    sentences: list[Span]

    def within(self, start: int, end: int) -> list[Span]:
        """The sentences that have a part in `text[start:end]`."""
        first = bisect_right(self.sentences, start, key=lambda span: span.end)
        last = bisect_left(self.sentences, end, key=lambda span: span.start)
        return self.sentences[first:last]


class Embedding:
    """What it has done is in the database alone: a kill costs the batch that was being made."""

    def __init__(self, database: Database, embedder: Embedder) -> None:
        self._database = database
        self._embedder = embedder
        # A book in plain text is one page: it is cut once, not again for each batch of passages.
        self.passages_per_s = 0.0
        self.forget_page()

    def forget_page(self) -> None:
        """To be called when pages have changed."""
        self._page = _Page("", 0, "", [])

    def step(self, document_id: str) -> list[tuple[int, bytes]] | None:
        """Embed the next passages of a document and their sentences; None if all of them are.

        Returns (id, vector) of those passages that had no vector. Raises EmbedderUnavailable.
        """
        with self._database.reading() as session:
            batch = sentence_rows.to_embed(session, document_id, BATCH_PASSAGES)
            if not batch:
                return None
            spans, texts = [], []
            for passage in batch:
                page = self._page_of(session, document_id, passage)
                spans.append(page.within(passage.char_start, passage.char_end))
                texts.append([page.text[start:end] for start, end in spans[-1]])
        start = time.monotonic()
        own = {p.id: f"{p.heading}\n{p.text}".strip() for p in batch if not p.has_vector}
        vectors = self._encode([*own.values(), *(text for of in texts for text in of)])
        made = [(id, to_bytes(vectors[text])) for id, text in own.items()]
        with self._database.session() as session:
            if session.get(store.Document, document_id) is None:  # removed meanwhile
                return []
            store.save_vectors(session, made)
            for passage, of, parts in zip(batch, spans, texts, strict=True):
                matrix = np.array([vectors[text] for text in parts], dtype=np.float32)
                sentence_rows.save(session, passage.id, of, matrix)
        rate = len(batch) / (time.monotonic() - start)
        # The first batch waits for the model to be loaded; what follows soon outweighs that.
        self.passages_per_s = (self.passages_per_s + rate) / 2 if self.passages_per_s else rate
        return made

    def _page_of(self, session: Session, document_id: str, passage: Unembedded) -> _Page:
        if (self._page.document_id, self._page.number) != (document_id, passage.page):
            text = sentence_rows.page(session, document_id, passage.page)
            self._page = _Page(document_id, passage.page, text, sentences(text))
        return self._page

    def _encode(self, texts: Sequence[str]) -> dict[str, Vectors]:
        """Vectors by text: a sentence that two passages share is embedded once."""
        unique = list(dict.fromkeys(texts))
        return dict(zip(unique, self._embedder.encode(unique), strict=True))
