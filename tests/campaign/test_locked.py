"""Another process holds the database: what is asked meanwhile is refused whole or done later."""

import multiprocessing
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from chat.events import Retrieved
from host.errors import explain
from retrieval import database
from tests.campaign.test_faults import QUICK, WAIT_S, pending, prepared, settle, state
from tests.chat.conftest import SIZE_QUESTION, World, finished, first


def _hold(path: Path, pipe: Connection) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    pipe.send("held")
    pipe.recv()
    connection.execute("ROLLBACK")


@contextmanager
def held(world: World) -> Iterator[None]:
    """Nobody else writes to the database meanwhile."""
    here, there = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_hold, args=(world.database.path, there)
    )
    process.start()
    try:
        assert here.poll(WAIT_S)
        here.recv()
        yield
        here.send("let go")
    finally:
        process.join(WAIT_S)
        process.kill()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock is waited for as briefly as a test can wait."""
    monkeypatch.setattr(database, "BUSY_TIMEOUT_S", 0.2)
    monkeypatch.setattr("retrieval.indexing.RETRY_S", 0.05)


def test_what_cannot_be_written_is_refused_whole_and_said(
    impatient: None, make_world: Callable[..., World]
) -> None:
    world, session = prepared(make_world)
    before = state(world)
    [view] = world.library.documents()
    file = world.folder / "bread.md"
    file.write_text("# Bread\n\nDough rises for twelve hours.\n")
    refused: list[Callable[[], object]] = [
        lambda: world.library.add(file),
        lambda: world.library.remove(view.id),
        lambda: world.ask(SIZE_QUESTION, session, QUICK),
        lambda: world.ask(SIZE_QUESTION, None, QUICK),
        lambda: world.conversations.rename(session, "Another title"),
        lambda: world.conversations.delete(session),
    ]
    with held(world):
        for act in refused:
            with pytest.raises(OperationalError) as raised:
                act()
            told = explain(raised.value)
            assert told is not None
            assert "Another program" in told.sentence
        assert world.library.search(SIZE_QUESTION).passages, "reading waits for no writer"
    settle(world)
    assert state(world) == before
    assert world.library.check().ok
    for act in refused[:1] + refused[2:]:
        act()
    settle(world)


def test_an_answer_that_cannot_be_saved_is_saved_when_it_can(
    impatient: None, make_world: Callable[..., World]
) -> None:
    world, session = prepared(make_world)
    events = world.conversations.ask(SIZE_QUESTION, session_id=session, options=QUICK)
    first(events, Retrieved)
    with held(world):
        told = finished(events)
        shown = world.conversations.turns(session)[-1]
        assert shown.state != "pending", "nobody is to wait for what is not being written"
        assert told.turn == shown.turn
    deadline = time.monotonic() + WAIT_S
    while pending(world):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert world.ask(SIZE_QUESTION, session, QUICK).state == "done"
