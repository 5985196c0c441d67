"""Each commit fails once: what was begun is then undone or done, and can be done again."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from sqlalchemy import event, select
from sqlalchemy.exc import OperationalError

from chat.errors import ChatError
from chat.options import AskOptions
from chat.tables import Conversation, Turn
from retrieval import forgetting, store
from retrieval.database import Database
from retrieval.errors import RetrievalError
from tests.chat.conftest import SIZE_QUESTION, World

QUICK = AskOptions(answer="evidence", passages=2)
WAIT_S = 120
Act = Callable[[World, str], object]


@dataclass(eq=False)
class Commits:
    """Counts the commits of a database; the one that `fails` (from 0) raises instead, once."""

    fails: int | None = None
    count: int = 0

    def __call__(self, connection: Any) -> None:
        number, self.count = self.count, self.count + 1
        if number == self.fails:
            raise OperationalError("COMMIT", {}, sqlite3.OperationalError("disk I/O error"))


@contextmanager
def counted(database: Database, fails: int | None = None) -> Iterator[Commits]:
    commits = Commits(fails)
    event.listen(database.engine, "commit", commits)
    try:
        yield commits
    finally:
        event.remove(database.engine, "commit", commits)


def add(world: World, session: str) -> object:
    file = world.folder / "bread.md"
    file.write_text("# Bread\n\nDough rises for twelve hours before the bread is baked.\n")
    return world.library.wait(world.library.add(file).id, WAIT_S)


def ask(world: World, session: str) -> object:
    return world.ask(SIZE_QUESTION, session, QUICK)


def ask_again(world: World, session: str) -> object:
    [turn] = world.conversations.turns(session)
    return world.ask(SIZE_QUESTION, session, QUICK, instead_of=turn.turn)


def begin(world: World, session: str) -> object:
    return world.ask(SIZE_QUESTION, None, QUICK)


def rename(world: World, session: str) -> object:
    return world.conversations.rename(session, "Another title")


def configure(world: World, session: str) -> object:
    return world.conversations.configure(session, AskOptions(max_tokens=33))


def delete(world: World, session: str) -> object:
    return world.conversations.delete(session)


def delete_all(world: World, session: str) -> object:
    return world.conversations.delete_all("local")


def remove(world: World, session: str) -> object:
    [view] = world.library.documents()
    return world.library.remove(view.id)


def reindex(world: World, session: str) -> object:
    [view] = world.library.documents()
    return world.library.wait(world.library.reindex(view.id).id, WAIT_S)


ACTS = [add, ask, ask_again, begin, rename, configure, delete, delete_all, remove, reindex]


class State(NamedTuple):
    """All that a person would see, without ids and times."""

    documents: list[str]
    passages: int
    conversations: list[tuple[str, str]]
    turns: list[tuple[str, bool, list[tuple[int, int, bool]]]]


def state(world: World) -> State:
    with world.database.reading() as session:
        return State(
            sorted(
                session.scalars(
                    select(store.Document.name).where(store.Document.replaces.is_(None))
                )
            ),
            len(session.scalars(select(store.Passage.id)).all()),
            sorted((one.title, str(one.options)) for one in session.scalars(select(Conversation))),
            sorted(
                (
                    turn.question,
                    turn.parent_id is None,
                    sorted((row.page, row.char_start, row.removed) for row in turn.passages),
                )
                for turn in session.scalars(select(Turn))
            ),
        )


def prepared(make_world: Callable[..., World]) -> tuple[World, str]:
    """A document that is ready and a conversation with one turn."""
    world = make_world()
    file = world.folder / "size.md"
    file.write_text(
        "# Sizes\n\nThe KV cache of a 7B model for 1,024 tokens is 512 MiB large in 16 bits.\n"
    )
    world.library.wait(world.library.add(file).id, WAIT_S)
    return world, world.ask(SIZE_QUESTION, None, QUICK).session


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
def test_a_commit_that_fails_leaves_all_as_it_was_or_as_it_should_be(
    act: Act, make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retrieval.indexing.RETRY_S", 0.05)
    world, session = prepared(make_world)
    before = state(world)
    with counted(world.database) as commits:
        act(world, session)
    done = state(world)
    assert commits.count, "nothing was tried"
    for number in range(commits.count):
        world, session = prepared(make_world)
        with counted(world.database, fails=number) as failing:
            error = attempted(act, world, session)
        assert error is None or isinstance(error, OperationalError | RetrievalError | ChatError)
        assert failing.count > number, "no commit failed"
        settle(world)
        seen = state(world)
        if seen not in (before, done):
            # A turn that failed in the middle keeps its question, and says that it failed.
            assert act in (ask, ask_again, begin), f"commit {number}: {seen}"
            assert [turn[:2] for turn in seen.turns] == [turn[:2] for turn in done.turns]
        # Nothing is locked, claimed or half-way: life goes on.
        if not world.library.documents():
            add(world, session)
        assert world.ask(SIZE_QUESTION, None, QUICK).state == "done"
        assert world.library.check().ok


def attempted(act: Act, world: World, session: str) -> Exception | None:
    """What an act raises."""
    try:
        act(world, session)
    except Exception as error:
        return error
    return None


def pending(world: World) -> list[str]:
    with world.database.reading() as session:
        return list(session.scalars(select(Turn.id).where(Turn.state == "pending")))


def settle(world: World) -> None:
    """Wait for what is tried again by itself: indexing, ends of turns, what is left to forget."""

    def is_settled() -> bool:
        with world.database.reading() as session:
            left = forgetting.left(session, "document")
        documents = world.library.documents()
        return not (left or pending(world) or any(not view.settled for view in documents))

    deadline = time.monotonic() + WAIT_S
    while not is_settled():
        assert time.monotonic() < deadline, (world.library.documents(), pending(world))
        time.sleep(0.02)
