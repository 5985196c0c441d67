"""The two indexes that are derived from the database, and whether they agree with it."""

import logging
import math
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from sqlalchemy.orm import Session

from retrieval import removed, sentence_rows, store, vectors
from retrieval.database import Database
from retrieval.embedder import Embedder
from retrieval.errors import EmbedderUnavailable
from retrieval.lexical import LexicalIndex, indexed
from retrieval.vectors import IndexIdentity, VectorIndex
from retrieval.views import IndexCheck

log = logging.getLogger(__name__)


# What is removed in a row is dropped together, and at last after a while.
COMPACT_AFTER_S = 1.0
COMPACT_AT_LAST_S = 10.0


class _Left(NamedTuple):
    """Since when something that was removed is left to be dropped, and of when the newest is."""

    since_s: float
    newest_s: float


class Dense(NamedTuple):
    """An index of vectors, and the embedder that made them and reads questions for them."""

    vectors: VectorIndex
    embedder: Embedder


class Indexes:
    """`lexical` changes within the database's own transactions; the vectors are in memory and in
    a file, and follow each commit. `lock` is held wherever database and vectors change together;
    search does not wait for it. What is removed is found no more at once, and what the indexes
    still hold of it is dropped by `compact`, soon after.

    After a change of the embedder the file is the previous one's for as long as documents are
    embedded anew; it answers (if that model is still there), and is kept as it is until then.
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
        self._previous: Dense | None = None
        with database.reading() as session:
            self._left = _Left(-math.inf, -math.inf) if removed.left(session) else None

    def dense(self) -> Dense:
        """What searches by meaning now. Raises EmbedderUnavailable."""
        current = self._vectors or self.vectors()
        return self._previous or Dense(current, self._embedder)

    def vectors(self) -> VectorIndex:
        """The index of this embedder, at its first use checked against the database or built.

        Raises EmbedderUnavailable.
        """
        with self.lock:
            if self._vectors is None:
                index = VectorIndex(self._folder, self._embedder.fingerprint, self._embedder.dim)
                with self._database.reading() as session:
                    if not index.load(store.searchable_ids(session, index.fingerprint)):
                        index.rebuild(store.searchable_vectors(session, index.fingerprint))
                        if sentence_rows.next_incomplete(session, index.fingerprint):
                            self._previous = self._load_previous()
                self._vectors = index
            return self._vectors

    def _load_previous(self) -> Dense | None:
        """The file's index, if it is another embedder's that is still on this machine."""
        identity = vectors.stored_identity(self._folder)
        if identity is None or identity.fingerprint == self._embedder.fingerprint:
            return None
        embedder = Embedder(identity.model, self._embedder.device)
        index = VectorIndex(self._folder, identity.fingerprint, identity.dim)
        try:
            usable = embedder.fingerprint == identity.fingerprint and index.load_as(identity)
        except EmbedderUnavailable:
            return None
        return Dense(index, embedder) if usable else None

    def retire_previous(self) -> None:
        """Every document is embedded by the current model: its index answers from now on."""
        with self.lock:
            if self._previous is None:
                return
            with self._database.reading() as session:
                if sentence_rows.count_incomplete(session, self._embedder.fingerprint):
                    return  # some could not be done, and are tried at the next start
            self._previous = None
            self.save()

    def remove(self, session: Session, owner: str, ids: Sequence[int]) -> None:
        """Take an owner's passages out of the words, in the session's transaction, and list them
        as removed.

        Once that is committed, `forget` takes them out of the vectors. Called by the thread that
        calls `compact`, or under the lock.
        """
        self.lexical.remove(session, owner, ids)
        removed.note(session, ids)
        if ids:
            now = time.monotonic()
            self._left = _Left(self._left.since_s if self._left else now, now)

    def forget(self, ids: Sequence[int]) -> None:
        """Find passages no more by their vectors."""
        with self.lock:
            for index in (self._vectors, self._previous and self._previous.vectors):
                if index is not None:
                    index.remove(ids)

    def compact_in_s(self) -> float | None:
        """How long `compact` may wait for more to be removed; None if there is nothing for it."""
        left = self._left
        if left is None:
            return None
        due_s = min(left.since_s + COMPACT_AT_LAST_S, left.newest_s + COMPACT_AFTER_S)
        return max(0.0, due_s - time.monotonic())

    def compact(self) -> None:
        """Drop what the indexes, their file and the database's log still hold of what is gone."""
        with self.lock:
            if self._left is None:
                return
            self._left = None
            with self._database.reading() as session:
                ids = removed.left(session)
            if self._vectors is None:
                vectors.discard(self._folder)
        try:
            if self._previous is not None:
                self._previous.vectors.compact()
            if self._vectors is not None:
                self._vectors.compact()
            self.save()
            begin = True
            while self._merge(begin):
                begin = False
            with self._database.session() as session:
                removed.done(session, ids)
            self._database.checkpoint()
        except Exception:
            self._left = self._left or _Left(time.monotonic(), time.monotonic())
            raise

    def _merge(self, begin: bool) -> bool:
        with self._database.session() as session:
            return self.lexical.compact(session, begin)

    def save(self) -> None:
        """Write the vectors to their file. Failing costs a rebuild at the next start, no more."""
        with self.lock:
            index = self._previous.vectors if self._previous else self._vectors
            if index is None:
                return
            embedder = self._previous.embedder if self._previous else self._embedder
            try:
                index.save(embedder.model)
            except OSError:
                vectors.discard(self._folder)
                log.warning("the vector index could not be written", exc_info=True)

    def mend_lexical(self) -> None:
        """Fill the word index again if it does not hold just what the database has.

        They change in the same transactions, so this finds only what somebody else broke.
        """
        with self._database.reading() as session:
            fits = self.lexical.ids(session) == store.all_passage_ids(session)
        if not fits:
            log.warning("the word index did not fit the database and is built again")
            self._fill_lexical()

    def _fill_lexical(self) -> None:
        """Cutting the texts takes long, so that is done before others have to wait."""
        with self._database.reading() as session:
            words = {
                id: indexed(passage)
                for owner in store.owners(session)
                for id, passage in store.index_texts(session, owner=owner)
            }
        with self._database.session() as session:
            self.lexical.clear(session)
            for owner in store.owners(session):
                texts = store.index_texts(session, owner=owner)
                live = [(id, words.get(id) or indexed(passage)) for id, passage in texts]
                self.lexical.add(session, owner, live)

    def rebuild(self) -> None:
        """Build both again from the database. Raises EmbedderUnavailable."""
        with self.lock:
            self._fill_lexical()
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
            left = sentence_rows.count_incomplete(session, fingerprint)
            lexical = self.lexical.ids(session)
            identity = self._identity()
        problems = []
        if lexical != passages:
            problems.append("The word index does not fit the database; rebuild the index.")
        expected = IndexIdentity.of(
            self._embedder.model, fingerprint, self._embedder.dim, searchable
        )
        if left:
            problems.append(
                f"{left} passages are not embedded by this model yet; the server does that when it "
                "runs, and so does `python app.py rebuild-index`."
            )
        elif identity is not None and not identity.holds_same(expected):
            problems.append("The vector index does not fit the database; rebuild the index.")
        count = None if identity is None else identity.passages
        return IndexCheck(documents, len(passages), count, len(lexical), tuple(problems))

    def _identity(self) -> IndexIdentity | None:
        """What the vectors in memory are of, or else those in the file; None if there is none."""
        index = self._vectors
        if index is None:
            return vectors.stored_identity(self._folder)
        return IndexIdentity.of(self._embedder.model, index.fingerprint, index.dim, index.ids())
