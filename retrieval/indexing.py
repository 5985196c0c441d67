"""The background thread that takes documents from "queued" to "ready" or "refused".

A document that is read already is indexed again in a draft beside it, which takes its place in
one transaction: until then, and if that fails, what was read before answers. What fails and may
not fail another time is tried again after a pause (`retries.py`); a refusal keeps the stored copy.

Every step is one transaction, and the database alone says what is done: a document in `parsing`
is parsed again, one in `embedding` goes on with the passages that are not embedded. So a kill at
any moment costs at most one step, and nothing has to be remembered elsewhere.

A document that was embedded by another model stays ready while it is embedded anew, after those
that nobody can search yet: the index made before answers until the last one is done.
"""

import logging
import threading
from pathlib import PurePath

from sqlalchemy.orm import Session

from retrieval import drafts, retries, sentence_rows, store
from retrieval.database import Database, is_storage_full
from retrieval.embedder import Embedder
from retrieval.embedding import Embedding
from retrieval.errors import ParserStopped, RetrievalError, StorageFull, Unreadable
from retrieval.files import FileStore
from retrieval.gates import Gates
from retrieval.indexes import Indexes
from retrieval.lexical import indexed
from retrieval.parsers.process import ParsedFile, ParseLimits, parse
from retrieval.retries import Retries

log = logging.getLogger(__name__)

RETRY_S = 5.0
_COPY_DAMAGED = "The stored copy of the file is damaged or missing. Add the file again."


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
        self.retries = Retries()
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
                if self._indexes.compact_in_s() == 0.0:
                    self._indexes.compact()
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
                waits = self.retries.pause_s(), self._indexes.compact_in_s()
                self._wake.wait(min((wait for wait in waits if wait is not None), default=None))

    def step(self) -> bool:
        """One step of one document; False if nothing is left to do.

        Raises what concerns the machine (storage, database, embedder) rather than the document.
        """
        resting = self.retries.resting()
        with self._database.reading() as session:
            document = store.next_unfinished(session, resting) or sentence_rows.next_incomplete(
                session, self._embedder.fingerprint, resting
            )
        if document is None:
            self.retries.keep(resting)
            self._indexes.retire_previous()
            return False
        try:
            if document.state == "ready":
                self._renew(document)
            elif document.state == "embedding":
                self._embed(document)
            else:
                self._parse(document)
        except Exception as error:
            if retries.is_of_machine(error):
                raise
            self._failed(document, error)
        else:
            self.retries.forget(document.id)
        return True

    def _failed(self, document: store.Document, error: Exception) -> None:
        """Try a document again later, or show why it is not indexed; its stored copy is kept."""
        known = isinstance(error, Unreadable)
        log.warning("indexing %s failed: %s", document.id, error, exc_info=not known)
        reason = retries.reason(error)
        if retries.may_pass(error):
            if self.retries.again(document.id, f"{reason} It is tried again soon."):
                return
            reason += f" It was tried {retries.RETRIES + 1} times."
        with self._indexes.lock, self._database.session() as session:
            if session.get(store.Document, document.id) is None:  # removed meanwhile
                return
            if document.state == "ready":
                store.set_state(session, document.id, "ready", reason)
            elif document.replaces:
                self._give_up_draft(session, document, reason)
            else:
                self._forget_content(session, document)
                store.set_state(session, document.id, "refused", reason)
        if document.state == "ready":
            self.retries.set_aside(document.id)
        else:
            self.retries.forget(document.id)

    def _give_up_draft(self, session: Session, draft: store.Document, reason: str) -> None:
        """Go on with what was read before, with the passages as they are."""
        owner = drafts.owner_of(session, draft)
        self._indexes.remove(session, owner, store.delete_document(session, draft.id))
        document = session.get_one(store.Document, draft.replaces)
        document.reason = f"{reason} What was read before stays."
        session.flush()
        if document.embedder != self._embedder.fingerprint:
            self._forget_vectors(session, document.id)

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
        if not self._files.is_whole(document.content_hash):
            raise Unreadable(_COPY_DAMAGED)
        parsed = parse(
            self._files.path(document.content_hash),
            document.format,
            tokenizer_file=self._embedder.tokenizer_file,
            max_tokens=self._embedder.max_tokens,
            limits=self._limits,
            stop=self._stop,
        )
        self._store_parsed(document.id, document.name, parsed)
        self._embedding.forget_page()

    def _store_parsed(self, id: str, name: str, parsed: ParsedFile) -> None:
        pages = dict(enumerate(parsed.pages, 1))
        texts = [pages[cut.page][cut.char_start : cut.char_end] for cut in parsed.passages]
        title = parsed.title or PurePath(name).stem
        # What takes long comes before the transaction, in which others cannot write.
        words = [
            indexed(store.index_text(title, cut.heading, text))
            for cut, text in zip(parsed.passages, texts, strict=True)
        ]
        with self._database.session() as session:
            document = session.get(store.Document, id)
            if document is None:  # removed meanwhile
                return
            self._forget_content(session, document)
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
                        "text": text,
                        "heading": cut.heading,
                        "vector": None,
                    }
                    for cut, text in zip(parsed.passages, texts, strict=True)
                ],
            )
            document.title = title
            document.warnings = parsed.warnings
            document.pages_without_text = parsed.pages_without_text
            document.characters = parsed.characters
            document.seconds = parsed.seconds
            document.embedder = self._embedder.fingerprint
            document.state, document.reason = "embedding", None
            ids = store.passage_ids(session, id)
            owner = drafts.owner_of(session, document)
            self._indexes.lexical.add(session, owner, zip(ids, words, strict=True))

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
        """Drop the vectors of another embedder; if that read longer passages, cut anew."""
        with self._database.reading() as session:
            texts = [text for _, text in store.index_texts(session, id=document.id)]
        reads_whole = self._embedder.reads_whole(texts)
        with self._indexes.lock, self._database.session() as session:
            self._indexes.vectors()  # which looks for what was before, while that is there
            if session.get(store.Document, document.id) is None:  # removed meanwhile
                return
            if reads_whole:
                self._forget_vectors(session, document.id)
            elif document.state == "ready":
                session.add(drafts.draft_of(document))
            else:
                self._forget_content(session, document)
                store.set_state(session, document.id, "queued")

    def _forget_content(self, session: Session, document: store.Document) -> None:
        """Its pages, its passages and their words."""
        owner = drafts.owner_of(session, document)
        self._indexes.remove(session, owner, store.clear_content(session, document.id))

    def _forget_vectors(self, session: Session, id: str) -> None:
        sentence_rows.forget(session, id)
        store.forget_vectors(session, id, self._embedder.fingerprint)

    def _finish(self, id: str) -> None:
        self._gates.calibrate(self._embedder)
        with self._indexes.lock:
            vectors = self._indexes.vectors()
            before: list[int] = []
            with self._database.session() as session:
                document = session.get(store.Document, id)
                if document is None:  # removed meanwhile
                    return
                rows = store.document_vectors(session, id)
                if document.replaces is None:
                    store.set_state(session, id, "ready")
                else:
                    before = store.passage_ids(session, document.replaces)
                    self._indexes.remove(session, drafts.owner_of(session, document), before)
                    drafts.take(session, document)
            self._indexes.forget(before)
            vectors.add(rows)
