"""The library: add, list, search and remove documents. What other packages use of `retrieval`."""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from retrieval import drafts, forgetting, search, sentence_rows, store
from retrieval.database import Database, is_storage_full
from retrieval.embedder import Embedder
from retrieval.errors import (
    CopyNotKept,
    DocumentNotFound,
    DocumentShared,
    RetrievalError,
    StorageFull,
    Unreadable,
)
from retrieval.evidence import Evidence, evidence
from retrieval.files import FileStore, Received
from retrieval.fts5 import Fts5Index
from retrieval.indexes import Indexes
from retrieval.indexing import Indexer
from retrieval.lexical import LexicalIndex
from retrieval.page_image import PageNotDrawn, draw_page
from retrieval.parsers.formats import format_of
from retrieval.parsers.identify import identify
from retrieval.parsers.process import ParseLimits
from retrieval.reranker import READ, Reranker
from retrieval.versioned import Versioned
from retrieval.views import DocumentView, IndexCheck, SearchResult

_POLL_S = 0.5
_EMPTY_FILE = "The file is empty (0 bytes). Check that it was saved or copied completely."


class Library:
    """Documents of all owners on one database and one folder; thread-safe.

    Every call is for one owner and sees that owner's documents and those of the shared library
    (`owners.SHARED`), which only its own owner changes. Callables in `on_removed` are called with
    (document id, owner) after a document is gone. What they have to forget is written down with
    the removal (`forgetting`), so that a process that dies before them leaves it to the next.
    Raises DataFolderNotWritable if `data_dir` cannot be used. The tables must exist already.
    """

    def __init__(
        self,
        database: Database,
        data_dir: Path,
        embedder: Embedder,
        *,
        reranker: Reranker | None = None,
        lexical: LexicalIndex | None = None,
        limits: ParseLimits | None = None,
    ) -> None:
        self.embedder = embedder
        self.on_removed: list[Callable[[str, str], None]] = []
        self._reranker = reranker
        self._database = database
        self._folder = data_dir
        self._files = FileStore(data_dir / "files")
        self._views: Versioned[list[DocumentView]] = Versioned(database)
        self._indexes = Indexes(database, data_dir, embedder, lexical or Fts5Index())
        self._lock = self._indexes.lock
        self._indexer = Indexer(
            database, self._files, embedder, self._indexes, limits or ParseLimits()
        )

    def start(self) -> None:
        """Begin indexing in the background, first of all what an earlier process left."""
        self._indexes.mend_lexical()
        with self._lock, self._database.reading() as session:
            self._files.sweep(store.content_hashes(session, refused=True))
        self._indexer.start()

    def close(self) -> None:
        """Stop indexing within a step, drop what is left of removed documents and write the index
        file. Unfinished work stays queued."""
        self._indexer.close()
        self._indexes.compact()
        self._indexes.save()

    # Adding

    def expand(self, paths: Iterable[Path]) -> list[Path]:
        """The files that `paths` stand for: folders walked in order, hidden entries left out.

        Files of any format are listed (adding says what is not supported), each once; a path
        that does not exist is kept, so that adding says so. Symbolic links to folders inside a
        folder are not followed: they can lead in circles.
        """
        found: dict[Path, None] = {}
        for path in paths:
            if not path.is_dir():
                found[path] = None
                continue
            for folder, names, files in os.walk(path):
                names[:] = sorted(name for name in names if not name.startswith("."))
                for name in sorted(files):
                    file = Path(folder, name)
                    if not name.startswith(".") and file.is_file():
                        found[file] = None
        return list(found)

    def add(self, path: Path, *, owner: str = "local", name: str | None = None) -> DocumentView:
        """Store a copy of a file and queue it; or say at once that it is refused.

        Content that this owner has already gives the existing document with `duplicate` set,
        unless it was refused: then it is tried again, under the new name.
        Raises Unreadable if there is no file to read, StorageFull if its copy does not fit.
        """
        # A name that is no valid text for the system may still be stored and shown.
        name = os.fsencode(name or path.name).decode("utf-8", errors="replace")
        with self._files.receive(path) as received, self._lock:
            format, reason = self._identify(received.size_bytes, received.copy, name)
            id, duplicate = self._record(name, format, received, owner, reason)
        self._indexer.wake()
        return replace(self.get(id, owner), duplicate=duplicate)

    def _identify(self, size_bytes: int, copy: Path, name: str) -> tuple[str, str | None]:
        """The format of a file, or why it is refused at once."""
        if not size_bytes:
            return format_of(name) or "", _EMPTY_FILE
        try:
            return identify(copy, name), None
        except Unreadable as error:
            return format_of(name) or "", error.reason

    def _record(
        self, name: str, format: str, received: Received, owner: str, reason: str | None
    ) -> tuple[str, bool]:
        """Write the document down and keep its copy, both or neither."""
        content_hash = received.content_hash
        new = store.new_document(
            owner, name, format, content_hash, received.size_bytes, reason=reason
        )
        if reason is None:
            self._files.accept(received)
        try:
            with self._database.session() as session:
                known = session.get(store.Document, new.id)
                if known is not None and known.state != "refused":
                    return new.id, True
                if known is not None:
                    session.delete(known)
                    session.flush()
                session.add(new)
            return new.id, False
        except Exception as error:
            if is_storage_full(error):
                self._drop_unwanted(content_hash)
                raise StorageFull(self._folder) from error
            raise

    def wait(self, document_id: str, timeout_s: float | None = None) -> DocumentView:
        """The document once it is ready or refused, or as it is after `timeout_s`.

        Raises what keeps indexing from going on (StorageFull, EmbedderUnavailable), and
        DocumentNotFound if the document is removed meanwhile.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            with self._indexer.changed:
                view = self._view(document_id)
                if view.settled:
                    return view
                if self._indexer.stalled is not None:
                    raise self._indexer.stalled
                if not self._indexer.is_running:
                    raise RetrievalError("Indexing does not run in this process; start it first.")
                remaining = _POLL_S if deadline is None else deadline - time.monotonic()
                if remaining <= 0:
                    return view
                self._indexer.changed.wait(min(remaining, _POLL_S))

    # Looking

    @property
    def version(self) -> tuple[object, ...]:
        """Changes whenever `documents` does."""
        stalled = str(self._indexer.stalled or "")
        return self._database.version, stalled, self._indexer.retries.reasons

    def documents(self, owner: str = "local") -> list[DocumentView]:
        """All that this owner sees, oldest first; counted once for all who ask until a change."""
        views = self._views.of(owner, lambda session: store.views(session, owner))
        return [self._explained(view) for view in views]

    def get(self, document_id: str, owner: str = "local") -> DocumentView:
        """Raises DocumentNotFound, also for a document of another owner."""
        return self._view(document_id, owner)

    def _view(self, document_id: str, owner: str | None = None) -> DocumentView:
        with self._database.reading() as session:
            view = store.view(session, document_id, owner)
        if view is None:
            raise DocumentNotFound(document_id)
        return self._explained(view)

    def _explained(self, view: DocumentView) -> DocumentView:
        """An unfinished document says why it waits, if something is wrong with the machine, and
        otherwise how long it will still take."""
        if view.state == "refused":
            return replace(view, kept=self._files.path(view.content_hash).is_file())
        if view.settled:
            return view
        if self._indexer.stalled is not None:
            return replace(view, reason=str(self._indexer.stalled))
        for id in (view.id, drafts.draft_id(view.id, view.content_hash)):  # it, or its draft
            if failed := self._indexer.retries.reason(id):
                return replace(view, reason=failed)
        if view.state != "embedding":
            return view
        left = self._indexer.seconds_left(view.passages - view.passages_done)
        return replace(view, seconds_left=left)

    def page_text(self, document_id: str, page: int, owner: str = "local") -> str:
        """The extracted text of a page counted from 1. Raises DocumentNotFound."""
        with self._database.reading() as session:
            text = store.page_text(session, document_id, page, owner)
        if text is None:
            raise DocumentNotFound(f"{document_id}, page {page}")
        return text

    def page_image(
        self, document_id: str, page: int, spans: Sequence[tuple[int, int]], owner: str = "local"
    ) -> bytes:
        """A page of a PDF as PNG, the words of these ranges of its text boxed.

        Raises DocumentNotFound, PageNotDrawn.
        """
        view = self.get(document_id, owner)
        if view.format != "pdf":
            raise PageNotDrawn("it is no page of a PDF")
        try:
            text = self.page_text(document_id, page, owner)
        except DocumentNotFound:
            raise PageNotDrawn("there is no such page") from None
        return draw_page(self._files.path(view.content_hash), page, text, spans)

    def is_empty(self, owner: str = "local") -> bool:
        """True if this owner sees no document that is ready or on its way."""
        with self._database.reading() as session:
            return not store.has_documents(session, owner)

    def search(
        self,
        question: str,
        *,
        earlier: Sequence[str] = (),
        owner: str = "local",
        limit: int = 4,
        documents: Sequence[str] | None = None,
    ) -> SearchResult:
        """The best passages for a question, among `documents` (ids) if they are given.

        `earlier` are the questions of the conversation before it, in order: what they were about
        is searched as well, at less weight. Raises EmbedderUnavailable and
        RerankerUnavailable.
        """
        start = time.perf_counter()
        if self.is_empty(owner) or not question.strip():
            return SearchResult((), time.perf_counter() - start)
        asked, passages = search.search(
            self._database,
            self._indexes,
            question,
            earlier=earlier,
            scope=search.Scope(owner, documents),
            limit=max(limit, READ) if self._reranker else limit,
        )
        if self._reranker:
            read = self._reranker.order(question, passages[:READ])
            passages = (*read, *passages[READ:])[:limit]
        return SearchResult(passages, time.perf_counter() - start, asked)

    def evidence(self, found: SearchResult) -> Evidence:
        """The sentences of the found passages, best first, and whether they hold an answer.

        Runs no model: the vectors of question and sentences are there already.
        """
        start = time.perf_counter()
        if found.asked is None:
            return Evidence((), 0.0, False, 0.0)
        with self._database.reading() as session:
            ids = [passage.passage_id for passage in found.passages]
            stored = sentence_rows.of_passages(session, ids, found.asked.embedder)
        made = evidence(found.asked, found.passages, stored)
        return made._replace(seconds=time.perf_counter() - start)

    # Indexing again

    def reindex(self, document_id: str, owner: str = "local") -> DocumentView:
        """Read the stored copy of a document and index it again, from the beginning.

        What was read before answers until that is done, and stays if it fails. One that is on its
        way already stays as it is. Raises DocumentNotFound, DocumentShared, and CopyNotKept where
        there is no copy.
        """
        with self._lock, self._database.session() as session:
            view = store.view(session, document_id, owner)
            if view is None:
                raise DocumentNotFound(document_id)
            if view.owner != owner:
                raise DocumentShared(view.name)
            if not view.settled:
                return self._explained(view)
            copy = self._files.path(view.content_hash)
            if not copy.is_file():
                raise CopyNotKept(view.name)
            document = session.get_one(store.Document, document_id)
            if view.state == "refused":
                format, reason = self._identify(view.size_bytes, copy, view.name)
                document.format, document.reason = format, reason
                document.state = "refused" if reason else "queued"
            else:
                document.reason = None
                session.add(drafts.draft_of(document))
        self._indexer.retries.forget(document_id)
        self._indexer.wake()
        return self.get(document_id, owner)

    # Removing

    def remove(self, document_id: str, owner: str = "local") -> DocumentView:
        """Take a document out of the database, the search and the disk, and tell the hooks.

        What the files of the indexes and the database's log hold of it goes soon after, when
        nothing more is removed, and at the latest when the library is closed or started again.

        Raises DocumentNotFound, and DocumentShared for one of the shared library.
        """
        with self._lock:
            with self._database.session() as session:
                view = store.view(session, document_id, owner)
                if view is None:
                    raise DocumentNotFound(document_id)
                if view.owner != owner:
                    raise DocumentShared(view.name)
                ids = store.delete_document(session, document_id)
                self._indexes.remove(session, owner, ids)
                forgetting.note(session, "document", document_id)
            self._drop_unwanted(view.content_hash)
            self._indexes.forget(ids)
        self._indexer.wake()
        for hook in self.on_removed:
            hook(document_id, owner)
        return view

    def _drop_unwanted(self, content_hash: str) -> None:
        with self._database.reading() as session:
            wanted = store.is_content_wanted(session, content_hash)
        if not wanted:
            self._files.remove(content_hash)

    # The derived indexes

    def rebuild_index(self) -> None:
        """Build both indexes again from the database.

        Documents that were embedded by another model are embedded anew in the background; see
        `passages_left`. Raises EmbedderUnavailable.
        """
        self._indexes.rebuild()
        self._indexer.wake()

    def passages_left(self) -> int:
        """How many passages of ready documents are still to be embedded by this embedder.

        Raises what keeps that from going on (StorageFull, EmbedderUnavailable).
        """
        if self._indexer.stalled is not None:
            raise self._indexer.stalled
        with self._database.reading() as session:
            return sentence_rows.count_incomplete(
                session, self.embedder.fingerprint, self._indexer.retries.given_up()
            )

    def check(self) -> IndexCheck:
        """Compare both indexes and the stored copies with the database; changes nothing.

        Raises EmbedderUnavailable.
        """
        check = self._indexes.check()
        with self._database.reading() as session:
            wanted = store.content_hashes(session, refused=False)
        bad = sum(not self._files.is_whole(name) for name in wanted)
        if not bad:
            return check
        problem = f"The stored copies of {bad} documents are missing or damaged; add them again."
        return check._replace(problems=(*check.problems, problem))
