"""The two indexes that are derived from the database, and whether they agree with it."""

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy.orm import Session

from retrieval import store, vectors
from retrieval.database import Database
from retrieval.embedder import Embedder
from retrieval.lexical import LexicalIndex
from retrieval.vectors import IndexIdentity, VectorIndex
from retrieval.views import IndexCheck

log = logging.getLogger(__name__)


class Indexes:
    """`lexical` changes within the database's own transactions; the vectors are in memory and in
    a file, and follow each commit. `lock` is held wherever database and vectors change together.
    """

    def __init__(
        self, database: Database, folder: Path, embedder: Embedder, lexical: LexicalIndex
    ) -> None:
        self.lexical = lexical
        self.lock = threading.RLock()
        self._database = database
        self._folder = folder
        self._embedder = embedder
        self._vectors: VectorIndex | None = None

    def vectors(self) -> VectorIndex:
        """The vector index, at its first use checked against the database or built from it.

        Raises EmbedderUnavailable.
        """
        with self.lock:
            if self._vectors is None:
                index = VectorIndex(self._folder, self._embedder.fingerprint, self._embedder.dim)
                with self._database.reading() as session:
                    if not index.load(store.searchable_ids(session, index.fingerprint)):
                        index.rebuild(store.searchable_vectors(session, index.fingerprint))
                self._vectors = index
            return self._vectors

    def forget(self, ids: Sequence[int]) -> None:
        """Take passages out of the vectors, in memory and on disk, at once."""
        with self.lock:
            if self._vectors is not None:
                self._vectors.remove(ids)
                self.save()
            elif ids:
                vectors.discard(self._folder)

    def save(self) -> None:
        """Write the vectors to their file. Failing costs a rebuild at the next start, no more."""
        with self.lock:
            if self._vectors is None:
                return
            try:
                self._vectors.save()
            except OSError:
                vectors.discard(self._folder)
                log.warning("the vector index could not be written", exc_info=True)

    def mend_lexical(self) -> None:
        """Make the word index, and fill it again if it does not hold just what the database has.

        They change in the same transactions, so this finds only what somebody else broke.
        """
        with self._database.session() as session:
            self.lexical.create(session)
            if self.lexical.ids(session) != store.all_passage_ids(session):
                log.warning("the word index did not fit the database and is built again")
                self._fill_lexical(session)

    def _fill_lexical(self, session: Session) -> None:
        self.lexical.clear(session)
        self.lexical.add(session, store.index_texts(session))

    def rebuild(self) -> None:
        """Build both again from the database. Raises EmbedderUnavailable."""
        with self.lock:
            with self._database.session() as session:
                self._fill_lexical(session)
            index = self.vectors()
            with self._database.reading() as session:
                index.rebuild(store.searchable_vectors(session, index.fingerprint))
            self.save()

    def check(self) -> IndexCheck:
        """Compare both with the database; changes nothing. Raises EmbedderUnavailable."""
        fingerprint = self._embedder.fingerprint
        with self.lock, self._database.reading() as session:
            documents = store.ready_count(session)
            passages = store.all_passage_ids(session)
            searchable = store.searchable_ids(session, fingerprint)
            foreign = len(store.outdated(session, fingerprint))
            lexical = self.lexical.ids(session)
            identity = self._identity()
        problems = []
        if lexical != passages:
            problems.append("The word index does not fit the database; rebuild the index.")
        expected = IndexIdentity.of(fingerprint, self._embedder.dim, searchable)
        if foreign:
            problems.append(
                f"{foreign} documents were embedded by another model; "
                "they are indexed again when the app starts."
            )
        elif identity is not None and identity != expected:
            problems.append("The vector index does not fit the database; rebuild the index.")
        count = None if identity is None else identity.passages
        return IndexCheck(documents, len(passages), count, len(lexical), tuple(problems))

    def _identity(self) -> IndexIdentity | None:
        """What the vectors in memory are of, or else those in the file; None if there is none."""
        index = self._vectors
        if index is None:
            return vectors.stored_identity(self._folder)
        return IndexIdentity.of(index.fingerprint, index.dim, index.ids())
