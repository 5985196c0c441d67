"""The parts put together on one data folder, and the actions that the command line offers.

Every part is made when it is first needed, with its imports: listing documents must load neither
PyTorch nor a model, and indexing must not load the chat model.

The actions give plain JSON values, the same whether they are carried out here or by a running
server (`host.client.Client` has the same methods).
"""

import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from host.models import location, resolve
from host.settings import Settings

if TYPE_CHECKING:
    from chat.conversation import Conversations
    from engine import Engine
    from retrieval.database import Database
    from retrieval.library import Library
    from retrieval.views import DocumentView

OWNER = "local"
DATABASE_FILE = "pageturn.sqlite3"
_POLL_S = 0.2

Event = dict[str, Any]


class Workspace:
    """Database, library, engine and conversations of one data folder. Close it after use."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @cached_property
    def database(self) -> "Database":
        from retrieval.database import Database

        return Database(f"sqlite:///{(self.settings.data_dir / DATABASE_FILE).absolute()}")

    @cached_property
    def library(self) -> "Library":
        from retrieval.embedder import Embedder
        from retrieval.library import Library

        settings = self.settings
        # Whether the embedding model is there matters to `add` and `ask` only: they check it.
        embedder = Embedder(location(settings.embedder, settings.models_dir), settings.device)
        return Library(self.database, settings.data_dir, embedder)

    @cached_property
    def engine(self) -> "Engine":
        from engine import Engine, EngineConfig

        settings = self.settings
        return Engine(
            EngineConfig(
                model=resolve(settings.model, settings.models_dir),
                device=settings.device,
                dtype=settings.dtype,
                kv_memory=settings.kv_memory,
                page_size=settings.page_size,
                max_sessions=settings.max_sessions,
            )
        )

    @cached_property
    def conversations(self) -> "Conversations":
        from chat.conversation import Conversations

        return Conversations(self.database, self.library, self.engine)

    def migrate(self) -> None:
        """Bring the tables to this version; the data folder must be held by this process."""
        from chat.store import migrate

        migrate(self.database)

    def check_embedder(self) -> None:
        """Raises ModelMissing, before anything is queued for an embedder that cannot come."""
        resolve(self.settings.embedder, self.settings.models_dir)

    def stop_turns(self) -> None:
        """End every running turn; each saves what it has."""
        self.conversations.close()

    def close(self) -> None:
        """Stop turns, indexing and the engine, in this order, as far as they were started."""
        made = self.__dict__  # where cached_property keeps what it made
        if "conversations" in made:
            self.conversations.close()
        if "library" in made:
            self.library.close()
        if "engine" in made:
            self.engine.shutdown()
        if "database" in made:
            self.database.close()

    # The actions ---------------------------------------------------------------------------

    def documents(self) -> list[Event]:
        """Every document as `DocumentView.to_json()`, oldest first."""
        return [view.to_json() for view in self.library.documents(OWNER)]

    def remove(self, document_id: str) -> Event:
        """Remove a document; returns what it was. Raises DocumentNotFound."""
        return self.library.remove(document_id, OWNER).to_json()

    def memory(self) -> Event:
        """The engine's MemoryReport."""
        from dataclasses import asdict

        return asdict(self.engine.memory())

    def add(self, paths: Sequence[Path]) -> Iterator[Event]:
        """Index files and folders; yields what happens until each file is settled.

        Events: `listed` (files), `progress` (document) and `file` (path, outcome, reason,
        document), whose outcome is indexed, duplicate, refused or waiting (it stays queued, and
        `reason` says for what). Indexing goes on when the iterator is closed.
        """
        self.check_embedder()
        files: list[Path] = []
        for path in paths:
            if path.exists():
                files += self.library.expand([path])
            else:
                yield _settled(path, "refused", "There is no such file or folder.", None)
        yield {"event": "listed", "files": len(files)}
        self.library.start()
        pending: dict[str, Path] = {}
        for path in files:
            yield from self._queue(path, pending)
        while pending:
            for document_id, path in list(pending.items()):
                view = self.library.get(document_id, OWNER)
                if view.settled or view.reason:
                    del pending[document_id]
                    yield _outcome(path, view)
                else:
                    yield {"event": "progress", "document": view.to_json()}
            time.sleep(_POLL_S if pending else 0)

    def _queue(self, path: Path, pending: dict[str, Path]) -> Iterator[Event]:
        from retrieval.errors import RetrievalError

        try:
            view = self.library.add(path, owner=OWNER)
        except RetrievalError as error:  # one bad file never stops a batch
            yield _settled(path, "refused", str(error), None)
            return
        if view.settled:
            yield _outcome(path, view)
        else:
            pending[view.id] = path

    def ask(
        self, question: str, *, session: str | None = None, options: dict[str, Any] | None = None
    ) -> Iterator[Event]:
        """One turn. Closing the iterator stops it; what was written is saved.

        Events: `started` (session, turn), `retrieved` (passages, retrieve_s), `delta` (text) and
        `finished` (turn: the object of `ask --json`). `options` are fields of AskOptions.
        """
        from chat.events import Delta, Finished, Retrieved, Started
        from chat.options import AskOptions

        self.check_embedder()
        turn = self.conversations.ask(
            question, session_id=session, owner=OWNER, options=AskOptions(**(options or {}))
        )
        try:
            for event in turn:
                match event:
                    case Started(session_id, turn_id):
                        yield {"event": "started", "session": session_id, "turn": turn_id}
                    case Retrieved(passages, retrieve_s):
                        found = len(passages)
                        yield {"event": "retrieved", "passages": found, "retrieve_s": retrieve_s}
                    case Delta(text):
                        yield {"event": "delta", "text": text}
                    case Finished(view):
                        yield {"event": "finished", "turn": view.to_json()}
        finally:
            turn.close()

    def stop(self, session: str) -> bool:
        """Stop the running turn of a conversation; False where none runs."""
        return self.conversations.stop(session, OWNER)


def _outcome(path: Path, view: "DocumentView") -> Event:
    if view.duplicate:
        outcome = "duplicate"
    elif view.settled:
        outcome = "indexed" if view.state == "ready" else "refused"
    else:
        outcome = "waiting"
    return _settled(path, outcome, view.reason, view.to_json())


def _settled(path: Path, outcome: str, reason: str | None, document: Event | None) -> Event:
    return {
        "event": "file",
        "path": str(path),
        "name": path.name,
        "outcome": outcome,
        "reason": reason,
        "document": document,
    }
