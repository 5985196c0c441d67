"""The parts put together on one data folder, and the actions that the command line offers.

Every part is made when it is first needed, with its imports: listing documents must load neither
PyTorch nor a model, and indexing must not load the chat model.

The actions give plain JSON values, the same whether they are carried out here or by a running
server (`host.client.Client` has the same methods).
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from host.models import location, resolve
from host.settings import Settings
from retrieval.owners import SHARED

if TYPE_CHECKING:
    from chat.conversation import Conversations
    from engine import Engine
    from retrieval.database import Database
    from retrieval.library import Library
    from retrieval.views import DocumentView

OWNER = "local"  # whose everything is where nobody is named
DATABASE_FILE = "pageturn.sqlite3"
_POLL_S = 0.2

Event = dict[str, Any]


class Workspace:
    """Database, library, engine and conversations of one data folder. Close it after use."""

    def __init__(self, settings: Settings, say: Callable[[str], None] = lambda _: None) -> None:
        """`say` is told, in a few words each, what takes long while a part is made."""
        self.settings = settings
        self._say = say
        self._indexing = False

    @cached_property
    def database(self) -> "Database":
        from retrieval.database import Database

        return Database(f"sqlite:///{(self.settings.data_dir / DATABASE_FILE).absolute()}")

    @cached_property
    def library(self) -> "Library":
        from retrieval.embedder import Embedder
        from retrieval.library import Library
        from retrieval.reranker import Reranker

        settings = self.settings
        # Whether the embedding model is there matters to `add` and `ask` only: they check it.
        embedder = Embedder(location(settings.embedder, settings.models_dir), settings.device)
        reranker = None
        if settings.reranker:
            where = location(settings.reranker, settings.models_dir)
            reranker = Reranker(where, settings.device)
        return Library(self.database, settings.data_dir, embedder, reranker=reranker)

    @cached_property
    def engine(self) -> "Engine":
        from engine import Engine, EngineConfig

        settings = self.settings
        return Engine(
            EngineConfig(
                model=resolve(settings.model, settings.models_dir),
                device=settings.device,
                dtype=settings.dtype,
                backend=settings.backend,
                weights=settings.weights,
                kv_memory=settings.kv_memory,
                kv_dtype=settings.kv_dtype,
                refresh_tokens=settings.refresh_tokens,
                page_size=settings.page_size,
                max_sessions=settings.max_sessions,
            ),
            on_progress=self._say,
        )

    @cached_property
    def conversations(self) -> "Conversations":
        from chat.conversation import Conversations
        from chat.options import AskOptions

        defaults = AskOptions(answer=self.settings.answer, rewrite=self.settings.rewrite)
        conversations = Conversations(self.database, self.library, self.engine, defaults)
        # The folder is held by this process, so a turn that is still pending was cut off by a kill.
        conversations.recover()
        return conversations

    def migrate(self) -> None:
        """Bring the tables to this version; the data folder must be held by this process.

        A restore or a backup that was killed is brought to its end first, and then the removal of
        a person.
        """
        from chat.store import migrate
        from host import backup, restore
        from retrieval import forgetting

        restore.finish(self.settings.data_dir)
        backup.sweep(self.settings.data_dir)
        migrate(self.database)
        with self.database.reading() as session:
            leaving = forgetting.left(session, "owner")
        for name in leaving:
            self.remove_owner(name)

    def check_embedder(self) -> None:
        """Raises ModelMissing, before anything is queued for an embedder that cannot come."""
        resolve(self.settings.embedder, self.settings.models_dir)

    def start_indexing(self) -> None:
        """Index in the background, from where an earlier process left off. Once for a process."""
        if not self._indexing:
            self.library.start()
            self._indexing = True

    def warm_embedder(self) -> None:
        """Load the embedding model in the background, so that the first question finds it loaded.

        What is wrong with it is said by whatever uses it.
        """

        def load() -> None:
            from retrieval.errors import RetrievalError

            with suppress(RetrievalError):
                self.library.embedder.encode_question("warm")

        Thread(target=load, name="warm-embedder", daemon=True).start()

    def stop_turns(self, wait_s: float = 5.0) -> None:
        """End every running turn and wait until each has saved what it has."""
        deadline = time.monotonic() + wait_s
        while self.conversations.stop_all() and time.monotonic() < deadline:
            time.sleep(0.05)

    def close(self) -> None:
        """Stop turns, indexing and the engine, in this order, as far as they were started."""
        made = self.__dict__  # where cached_property keeps what it made
        if "conversations" in made:
            self.stop_turns()
            self.conversations.close()
        if "library" in made:
            self.library.close()
        if "engine" in made:
            self.engine.shutdown()
        if "database" in made:
            self.database.close()

    # The actions ---------------------------------------------------------------------------

    def documents(self, owner: str = OWNER) -> list[Event]:
        """Every document that the owner sees as `DocumentView.to_json()`, oldest first."""
        return [view.to_json() for view in self.library.documents(self._known(owner))]

    def remove(self, document_id: str, owner: str = OWNER) -> Event:
        """Remove a document; returns what it was. Raises DocumentNotFound, DocumentShared."""
        from chat.store import ConversationStore

        self.library.get(document_id, self._known(owner))
        if ConversationStore(self.database).is_in_conversations(document_id):
            # Made here, if not before, for what it does when a document goes: citations are
            # marked, and turns that read the document are rendered without it.
            _ = self.conversations
        return self.library.remove(document_id, owner).to_json()

    def rebuild_index(self) -> Iterator[Event]:
        """Build the indexes again, and embed anew what another model embedded.

        Events: `progress` (passages_left) and, at the end, `rebuilt` (documents, passages,
        problems). Embedding goes on when the iterator is closed. Raises RetrievalError.
        """
        self.check_embedder()
        self.start_indexing()
        self.library.rebuild_index()
        while left := self.library.passages_left():
            yield {"event": "progress", "passages_left": left}
            time.sleep(_POLL_S)
        check = self.library.check()
        yield {
            "event": "rebuilt",
            "documents": check.documents,
            "passages": check.passages,
            "problems": list(check.problems),
        }

    def note_leaving(self, name: str) -> None:
        """Everything of a person is to go: what `remove_owner` does not come to, `migrate` does.

        Said before the account goes, so that no kill leaves things that nobody has.
        """
        from retrieval import forgetting

        with self.database.session() as session:
            forgetting.note(session, "owner", name)

    def remove_owner(self, name: str) -> Event:
        """Remove all of a person's conversations and documents; returns how many there were."""
        from chat.store import ConversationStore
        from retrieval import forgetting

        if "conversations" in self.__dict__:
            conversations = self.conversations.delete_all(name)
        else:  # no engine here holds anything of theirs
            conversations = ConversationStore(self.database).delete_all(name)
        own = [view for view in self.library.documents(name) if view.owner == name]
        for view in own:
            self.library.remove(view.id, name)
        with self.database.session() as session:
            forgetting.done(session, "owner", name)
        self.database.checkpoint()
        return {"conversations": conversations, "documents": len(own)}

    def _known(self, owner: str) -> str:
        """The owner, if there are such things as theirs. Raises AccountRefused."""
        if owner not in (OWNER, SHARED):
            from host.users import Users, check_name, no_such_user

            check_name(owner)
            if self.settings.auth is not None and not Users(self.settings.auth).credential(owner):
                raise no_such_user(owner)
        return owner

    def memory(self) -> Event:
        """The engine's MemoryReport."""
        from dataclasses import asdict

        return asdict(self.engine.memory())

    def add(self, paths: Sequence[Path], owner: str = OWNER) -> Iterator[Event]:
        """Index files and folders; yields what happens until each file is settled.

        Events: `listed` (files), `progress` (document) and `file` (path, outcome, reason,
        document), whose outcome is indexed, duplicate, refused or waiting (it stays queued, and
        `reason` says for what). Indexing goes on when the iterator is closed.
        """
        from retrieval.errors import RetrievalError

        owner = self._known(owner)
        self.check_embedder()
        files = self.library.expand(paths)
        yield {"event": "listed", "files": len(files)}
        self.start_indexing()
        pending: list[tuple[Path, str]] = []
        for path in files:
            try:
                view = self.library.add(path, owner=owner)
            except RetrievalError as error:  # one bad file never stops a batch
                yield _settled(path, "refused", str(error), None)
                continue
            if view.settled or view.duplicate:
                yield _outcome(path, view)
            else:
                pending.append((path, view.id))
        for path, document_id in pending:  # they are indexed in this order
            yield from self._follow(path, document_id, owner)

    def _follow(self, path: Path, document_id: str, owner: str) -> Iterator[Event]:
        from retrieval.errors import DocumentNotFound, RetrievalError

        while True:
            try:
                view = self.library.wait(document_id, _POLL_S)
            except DocumentNotFound:
                yield _settled(path, "refused", "It was removed while it was being indexed.", None)
                return
            except RetrievalError as error:  # the disk is full, or the embedder is broken
                view = self.library.get(document_id, owner)
                yield _settled(path, "waiting", str(error), view.to_json())
                return
            if view.settled:
                yield _outcome(path, view)
                return
            yield {"event": "progress", "document": view.to_json()}

    def ask(
        self,
        question: str,
        *,
        session: str | None = None,
        options: dict[str, Any] | None = None,
        owner: str = OWNER,
    ) -> Iterator[Event]:
        """One turn. Closing the iterator stops it; what was written is saved.

        Events: `started` (session, turn), `retrieved` (passages, retrieve_s), `quoted` (evidence,
        answerable, evidence_s), `delta` (text) and `finished` (turn: the object of `ask --json`).
        `options` are fields of AskOptions; the others are the conversation's own.
        """
        from chat.errors import LibraryEmpty
        from chat.events import Delta, Finished, Quoted, Retrieved, Started
        from chat.options import AskOptions

        owner = self._known(owner)
        modes = {"answer": self.settings.answer, "rewrite": self.settings.rewrite}
        how = AskOptions(**modes | (options or {}))
        self.check_embedder()
        if self.library.is_empty(owner):  # said before the model is loaded for nothing
            raise LibraryEmpty
        if session:
            how = replace(self.conversations.options(session, owner), **(options or {}))
        turn = self.conversations.ask(question, session_id=session, owner=owner, options=how)
        try:
            for event in turn:
                match event:
                    case Started(session_id, turn_id):
                        yield {"event": "started", "session": session_id, "turn": turn_id}
                    case Retrieved(passages, retrieve_s):
                        found = len(passages)
                        yield {"event": "retrieved", "passages": found, "retrieve_s": retrieve_s}
                    case Quoted(evidence, answerable, evidence_s):
                        yield {
                            "event": "quoted",
                            "evidence": [quote.to_json() for quote in evidence],
                            "answerable": answerable,
                            "evidence_s": evidence_s,
                        }
                    case Delta(text):
                        yield {"event": "delta", "text": text}
                    case Finished(view):
                        yield {"event": "finished", "turn": view.to_json()}
        finally:
            turn.close()

    def stop(self, session: str, owner: str = OWNER) -> bool:
        """Stop the running turn of a conversation; False where none runs."""
        return self.conversations.stop(session, owner)


def _outcome(path: Path, view: "DocumentView") -> Event:
    outcome = "indexed" if view.state == "ready" else "refused"
    return _settled(path, "duplicate" if view.duplicate else outcome, view.reason, view.to_json())


def _settled(path: Path, outcome: str, reason: str | None, document: Event | None) -> Event:
    return {
        "event": "file",
        "path": str(path),
        "name": path.name,
        "outcome": outcome,
        "reason": reason,
        "document": document,
    }
