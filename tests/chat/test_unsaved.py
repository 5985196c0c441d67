"""A turn whose end cannot be saved: its text is kept and shown, and saved when that is possible."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from chat.errors import NotSaved
from chat.events import Delta, Started
from chat.notes import NOT_SAVED, NOT_WRITTEN
from chat.options import AskOptions
from chat.retries import Retries
from tests.chat.conftest import PAGE_QUESTION, SIZE_QUESTION, World, finished, first

LONG = AskOptions(max_tokens=60, passages=1)
HANG_S = 60


@pytest.fixture
def impatient(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A world that gives up on a locked database at once, and then does not wait either."""
    monkeypatch.setattr("retrieval.database.BUSY_TIMEOUT_S", 0.05)
    monkeypatch.setattr("chat.turn.CHECKPOINT_S", 0.0)
    monkeypatch.setattr(world.conversations._services.unsaved, "_wait_s", 0.0)
    world.database.engine.dispose()  # connections that would wait for half a minute
    yield world
    world.database.engine.dispose()


@contextmanager
def locked(world: World) -> Iterator[None]:
    """Another program holds the database, as a backup of the whole disk may."""
    with closing(sqlite3.connect(world.database.path or "")) as other:
        other.isolation_level = None
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def saved(world: World, turn_id: str) -> str:
    """What the database says of a turn, as soon as its end is saved."""
    assert world.conversations._retries.wait(turn_id, HANG_S)
    return world.row(turn_id).state


def test_an_end_that_fails_once_is_saved_and_nobody_notices(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = world.conversations._services.store
    finish, failures = store.finish, [OperationalError("COMMIT", {}, sqlite3.OperationalError())]

    def finish_later(*args: Any) -> Any:
        if failures:
            raise failures.pop()
        return finish(*args)

    monkeypatch.setattr(store, "finish", finish_later)
    turn = world.ask(SIZE_QUESTION)
    assert not failures
    assert (turn.state, turn.error) == ("done", None)
    assert world.conversations.turns(turn.session) == [turn]
    assert world.ask(PAGE_QUESTION, turn.session).state == "done"


def test_an_end_that_cannot_be_saved_is_shown_from_memory_and_saved_later(
    impatient: World,
) -> None:
    chat = impatient.conversations
    events = chat.ask(SIZE_QUESTION, options=LONG)
    session, turn_id = _started(events)
    text = first(events, Delta).text
    with locked(impatient):
        turn = finished(events)
        assert (turn.state, turn.error) == ("error", NOT_SAVED)
        assert turn.answer.startswith(text.lstrip())
        (shown,) = chat.turns(session)
        assert (shown.state, shown.error, shown.answer) == ("error", NOT_SAVED, turn.answer)
        assert not any(view.running for view in chat.sessions())
        with pytest.raises(NotSaved):
            chat.ask(PAGE_QUESTION, session_id=session)
    assert saved(impatient, turn_id) == "done"
    (kept,) = chat.turns(session)
    assert (kept.state, kept.error, kept.answer) == ("done", None, turn.answer)
    assert kept.stats is not None
    assert impatient.ask(PAGE_QUESTION, session).state == "done"


def test_a_question_right_after_the_lock_saves_the_last_answer_first(impatient: World) -> None:
    events = impatient.conversations.ask(SIZE_QUESTION, options=LONG)
    session, turn_id = _started(events)
    first(events, Delta)
    with locked(impatient):
        list(events)
    follow = impatient.ask(PAGE_QUESTION, session)
    assert follow.stats is not None
    assert impatient.row(turn_id).answer_tokens
    read = impatient.tokens(turn_id) + len(impatient.row(follow.turn).prompt_tokens)
    assert follow.stats.prompt_tokens == read


def test_a_stopped_turn_is_kept_too(impatient: World) -> None:
    events = impatient.conversations.ask(SIZE_QUESTION, options=LONG)
    _, turn_id = _started(events)
    text = first(events, Delta).text
    with locked(impatient):
        events.close()
    assert saved(impatient, turn_id) == "stopped"
    assert impatient.row(turn_id).answer.startswith(text.lstrip())


def test_closing_saves_what_is_left(impatient: World) -> None:
    events = impatient.conversations.ask(SIZE_QUESTION, options=LONG)
    _, turn_id = _started(events)
    first(events, Delta)
    with locked(impatient):
        list(events)
        retries = impatient.conversations._retries
        impatient.conversations._retries = Retries()  # the world goes on after this test
        impatient.conversations._services.unsaved._retries = impatient.conversations._retries
    retries.close()
    assert impatient.row(turn_id).state == "done"


def test_a_turn_that_cannot_be_written_on_its_way_says_so(impatient: World) -> None:
    events = impatient.conversations.ask(SIZE_QUESTION, options=LONG)
    session, turn_id = _started(events)
    with locked(impatient):  # before what search found is saved
        turn = finished(events)
    assert turn.state == "error"
    assert saved(impatient, turn_id) == "error"
    assert impatient.conversations.turns(session)[0].error == NOT_WRITTEN


def test_an_end_that_cannot_be_made_frees_its_conversation(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> Any:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        events = world.conversations.ask(SIZE_QUESTION, options=LONG)
        session, _ = _started(events)
        text = first(events, Delta).text
        patch.setattr("chat.writer.Citer.cite", fail)
        events.close()
    (turn,) = world.conversations.turns(session)
    assert turn.state == "error"
    assert turn.error is not None
    assert "ZeroDivisionError" in turn.error
    assert turn.answer.startswith(text)
    assert world.ask(PAGE_QUESTION, session).state == "done"


def _started(events: Iterator[Any]) -> tuple[str, str]:
    started = first(events, Started)
    return started.session_id, started.turn_id


def _failing(times: int, done: list[int]) -> Callable[[], None]:
    def action() -> None:
        done.append(len(done))
        if len(done) <= times:
            raise OSError("no space left")

    return action


def test_an_action_is_tried_until_it_succeeds() -> None:
    tried: list[int] = []
    retries = Retries(first_pause_s=0.001, longest_pause_s=0.004)
    retries.add("it", _failing(5, tried))
    assert retries.wait("it", HANG_S)
    assert tried == [0, 1, 2, 3, 4, 5]


def test_an_action_that_runs_now_does_not_run_beside_itself() -> None:
    running, begun, tried = threading.Event(), threading.Event(), []

    def action() -> None:
        tried.append(begun.set())
        running.wait(HANG_S)

    retries = Retries(first_pause_s=0.001)
    retries.add("it", action)
    assert begun.wait(HANG_S)
    other = threading.Thread(target=retries.now, args=["it"])
    other.start()
    running.set()
    other.join()
    assert tried == [None]


def test_the_last_try_is_at_the_end() -> None:
    tried: list[int] = []
    retries = Retries(first_pause_s=HANG_S)
    retries.add("it", _failing(0, tried))
    retries.close()
    assert tried == [0]
