"""The background thread that takes documents from "queued" to "ready" or "refused".

Every step is one transaction, and the database alone says what is done: a document in `parsing`
is parsed again, one in `embedding` goes on with the passages that are not embedded. So a kill at
any moment costs at most one step, and nothing has to be remembered elsewhere.

A document that was embedded by another model stays ready while it is embedded anew, after those
that nobody can search yet: the index made before answers until the last one is done.
"""

import logging
import threading
from pathlib import PurePath

from sqlalchemy.exc import OperationalError

from retrieval import sentence_rows, store
from retrieval.database import Database, is_storage_full
from retrieval.embedder import Embedder
from retrieval.embedding import Embedding
from retrieval.errors import (
    EmbedderUnavailable,
    ParserStopped,
    RetrievalError,
    StorageFull,
    Unreadable,
)
from retrieval.files import FileStore
from retrieval.gates import Gates
from retrieval.indexes import Indexes
from retrieval.parsers.process import ParsedFile, ParseLimits, parse

log = logging.getLogger(__name__)

RETRY_S = 5.0


class Indexer:
    """Works through the unfinished documents, one step at a time.

    `stalled` is why nothing moves (disk full, no embedding model), None while all is well. It
    tries again by itself every few seconds, and at once when woken.
    """

    def __init__(
        self,
        database: Database,
        files: FileStore,
        embedder: Embedder,
        indexes: Indexes,
        limits: ParseLimits,
    ) -> None:
        self._database = database
        self._files = files
        self._embedder = embedder
        self._embedding = Embedding(database, embedder)
        self._indexes = indexes
        self._gates = Gates(database)
        self._limits = limits
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self.changed = threading.Condition()
        self.stalled: RetrievalError | None = None

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        if not self.is_running:
            self._stop.clear()
            self._thread = threading.Thread(target=self._run, name="indexer", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop after the current step; a parser that runs is ended and its file stays queued."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        self._notify()

    def wake(self) -> None:
        self.stalled = None
        self._wake.set()

    def _notify(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            try:
                busy = self.step()
                self.stalled = None
            except ParserStopped:
                return
            except Exception as error:
                self.stalled = self._explain(error)
                self._notify()
                self._wake.wait(RETRY_S)
                continue
            self._notify()
            if not busy:
                self._indexes.save()
                self._wake.wait()

    def step(self) -> bool:
        """One step of one document; False if nothing is left to do.

        Raises what concerns the machine (storage, database, embedder) rather than the document.
        """
        with self._database.reading() as session:
            document = store.next_unfinished(session) or sentence_rows.next_incomplete(
                session, self._embedder.fingerprint
            )
        if document is None:
            self._indexes.retire_previous()
            return False
        try:
            if document.state == "ready":
                self._renew(document)
            elif document.state == "embedding":
                self._embed(document)
            else:
                self._parse(document)
        except Unreadable as error:
            self.refuse(document.id, error.reason)
        except Exception as error:
            # What could be searched before is not given up.
            if _is_of_machine(error) or document.state == "ready":
                raise
            log.exception("indexing %s failed", document.id)
            self.refuse(
                document.id,
                f"Indexing the file failed ({type(error).__name__}: {error}). "
                "The log has the details; adding the file again tries again.",
            )
        return True

    def _explain(self, error: Exception) -> RetrievalError:
        if is_storage_full(error):
            return StorageFull(self._files.folder.parent)
        if isinstance(error, RetrievalError):
            return error
        log.error("indexing waits", exc_info=error)
        return RetrievalError(f"Indexing waits and tries again: {error}")

    def _parse(self, document: store.Document) -> None:
        with self._database.session() as session:
            store.set_state(session, document.id, "parsing")
        self._notify()
        path = self._files.path(document.content_hash)
        parsed = parse(
            path,
            document.format,
            tokenizer_file=self._embedder.tokenizer_file,
            max_tokens=self._embedder.max_tokens,
            limits=self._limits,
            stop=self._stop,
        )
        self._store_parsed(document.id, parsed)
        self._embedding.forget_page()

    def _store_parsed(self, id: str, parsed: ParsedFile) -> None:
        with self._database.session() as session:
            document = session.get(store.Document, id)
            if document is None:  # removed meanwhile
                return
            self._indexes.lexical.remove(session, document.owner, store.clear_content(session, id))
            pages = dict(enumerate(parsed.pages, 1))
            store.insert_rows(
                session,
                store.PageText,
                [
                    {
                        "document_id": id,
                        "page": n,
                        "text": text,
                        "label": parsed.label(n),
                        "ocr": n in parsed.ocr_pages,
                    }
                    for n, text in pages.items()
                ],
            )
            store.insert_rows(
                session,
                store.Passage,
                [
                    {
                        "document_id": id,
                        "page": cut.page,
                        "char_start": cut.char_start,
                        "char_end": cut.char_end,
                        "text": pages[cut.page][cut.char_start : cut.char_end],
                        "heading": cut.heading,
                        "vector": None,
                    }
                    for cut in parsed.passages
                ],
            )
            document.title = parsed.title or PurePath(document.name).stem
            document.warnings = parsed.warnings
            document.pages_without_text = parsed.pages_without_text
            document.characters = parsed.characters
            document.seconds = parsed.seconds
            document.embedder = self._embedder.fingerprint
            document.state, document.reason = "embedding", None
            session.flush()
            self._indexes.lexical.add(session, document.owner, store.index_texts(session, id=id))

    def _embed(self, document: store.Document) -> None:
        if document.embedder != self._embedder.fingerprint:
            self._begin_anew(document)
        elif self._embedding.step(document.id) is None:
            self._finish(document.id)

    def seconds_left(self, passages: int) -> float | None:
        """How long embedding so many more passages takes, at the rate of the last ones."""
        rate = self._embedding.passages_per_s
        return passages / rate if rate else None

    def _renew(self, document: store.Document) -> None:
        """Embed some more of a ready document that lacks vectors of this embedder."""
        if document.embedder != self._embedder.fingerprint:
            self._begin_anew(document)
            return
        with self._indexes.lock:
            self._indexes.vectors()  # before the step, so that what it makes is added once
        self._gates.calibrate(self._embedder)
        made = self._embedding.step(document.id)
        with self._indexes.lock, self._database.reading() as session:
            live = set(store.passage_ids(session, document.id))
            self._indexes.vectors().add([row for row in made or () if row[0] in live])

    def _begin_anew(self, document: store.Document) -> None:
        """Drop the vectors of another embedder; if that read longer passages, them as well."""
        with self._indexes.lock, self._database.session() as session:
            self._indexes.vectors()  # which looks for what was before, while that is there
            texts = [text for _, text in store.index_texts(session, id=document.id)]
            if self._embedder.reads_whole(texts):
                sentence_rows.forget(session, document.id)
                store.forget_vectors(session, document.id, self._embedder.fingerprint)
            else:
                self._indexes.lexical.remove(
                    session, document.owner, store.clear_content(session, document.id)
                )
                store.set_state(session, document.id, "queued")

    def _finish(self, id: str) -> None:
        self._gates.calibrate(self._embedder)
        with self._indexes.lock:
            vectors = self._indexes.vectors()
            with self._database.session() as session:
                if session.get(store.Document, id) is None:
                    return
                store.set_state(session, id, "ready")
                rows = store.document_vectors(session, id)
            vectors.add(rows)

    def refuse(self, id: str, reason: str) -> None:
        """Remember why a document is not indexed, and keep nothing else of it."""
        with self._indexes.lock:
            with self._database.session() as session:
                document = session.get(store.Document, id)
                if document is None:
                    return
                self._indexes.lexical.remove(
                    session, document.owner, store.clear_content(session, id)
                )
                document.state, document.reason = "refused", reason
                session.flush()
                wanted = store.is_content_wanted(session, document.content_hash)
            if not wanted:
                self._files.remove(document.content_hash)


def _is_of_machine(error: Exception) -> bool:
    """Whether the fault lies outside the document, so that trying again later makes sense."""
    if isinstance(error, (ParserStopped, EmbedderUnavailable, OperationalError)):
        return True
    return is_storage_full(error) or isinstance(error, OSError)
