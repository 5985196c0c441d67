"""The real engine, the real embedder, and worlds of a database, a library and conversations."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from chat.conversation import Conversations
from chat.events import Event, Finished
from chat.options import AskOptions
from chat.store import migrate
from chat.tables import Turn
from chat.views import TurnView
from engine import Engine, EngineConfig
from retrieval.database import Database
from retrieval.embedder import Embedder
from retrieval.library import Library

SHORT = AskOptions(max_tokens=24, passages=2)
SIZE_QUESTION = "How large is the KV cache of a 7B model for 1,024 tokens?"
PAGE_QUESTION = "How many token slots can a session waste with a page size of 16?"

T = TypeVar("T")


@dataclass
class World:
    """Everything below the page, on one data folder."""

    folder: Path
    database: Database
    library: Library
    engine: Engine
    conversations: Conversations

    def ask(
        self, question: str, session: str | None = None, options: AskOptions = SHORT, **kwargs: str
    ) -> TurnView:
        events = self.conversations.ask(question, session_id=session, options=options, **kwargs)
        return finished(events)

    def add(self, path: Path, owner: str = "local") -> str:
        view = self.library.wait(self.library.add(path, owner=owner).id, timeout_s=60)
        assert view.state == "ready", view.reason
        return view.id

    def write(self, name: str, text: str, owner: str = "local") -> str:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return self.add(path, owner)

    def row(self, turn_id: str) -> Turn:
        with self.database.reading() as session:
            return session.get_one(Turn, turn_id)

    def restarted(self, engine: Engine) -> "World":
        """The same data folder as the next process sees it, on an engine that knows nothing."""
        self.conversations.close()
        again = Conversations(self.database, self.library, engine)
        return World(self.folder, self.database, self.library, engine, again)

    def tokens(self, *turn_ids: str) -> int:
        """How many tokens a conversation of these turns has, the static ones included."""
        rows = [self.row(id) for id in turn_ids]
        turns = sum(len(row.prompt_tokens) + len(row.answer_tokens) for row in rows)
        return len(self.engine.static_tokens) + turns


def finished(events: Iterator[Event]) -> TurnView:
    """The turn that a stream of events ends with."""
    last = list(events)[-1]
    assert isinstance(last, Finished)
    return last.turn


def first(events: Iterator[Event], kind: type[T]) -> T:
    """Read on to the first event of a kind."""
    return next(event for event in events if isinstance(event, kind))


@pytest.fixture(scope="session")
def engine(chat_model: str) -> Iterator[Engine]:
    engine = Engine(EngineConfig(chat_model, device="cpu", kv_memory="256MB"))
    yield engine
    engine.check()
    engine.shutdown()


@pytest.fixture(scope="session")
def other_engine(chat_model: str) -> Iterator[Engine]:
    """A second one, as the next process has it."""
    engine = Engine(EngineConfig(chat_model, device="cpu", kv_memory="128MB"))
    yield engine
    engine.check()
    engine.shutdown()


@pytest.fixture(scope="session")
def embedder(embedder_folder: str) -> Embedder:
    return Embedder(embedder_folder, device="cpu")


@pytest.fixture(scope="session")
def make_world(
    engine: Engine, embedder: Embedder, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., World]]:
    """Makes worlds with no documents yet, on the shared engine or on another."""
    worlds: list[World] = []

    def make(engine: Engine = engine) -> World:
        folder = tmp_path_factory.mktemp("world")
        database = Database(f"sqlite:///{folder / 'pageturn.db'}")
        migrate(database)
        library = Library(database, folder, embedder)
        library.start()
        conversations = Conversations(database, library, engine)
        worlds.append(World(folder, database, library, engine, conversations))
        return worlds[-1]

    yield make
    for world in worlds:
        world.conversations.close()
        world.library.close()
        world.database.close()


@pytest.fixture(scope="module")
def world(make_world: Callable[..., World], library_dir: Path) -> World:
    """A world with two documents of the sample library, shared by a module's tests."""
    world = make_world()
    world.add(library_dir / "kv-cache-size.md")
    world.add(library_dir / "paged-attention.md")
    return world
