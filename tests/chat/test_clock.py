"""A computer that sleeps in mid-answer, and one whose clock is set back."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import chat.store
import chat.turn
from chat.clock import in_words, slept_s
from chat.context import Context
from chat.events import Delta, Started
from chat.options import AskOptions
from chat.store import ConversationStore, migrate
from retrieval.database import Database
from tests.chat.conftest import PAGE_QUESTION, SIZE_QUESTION, World, finished, first

LONG = AskOptions(max_tokens=24, passages=1)


def test_a_sleep_is_seen_by_the_system_s_clocks() -> None:
    before = slept_s()
    time.sleep(0.05)  # the process waits, the machine does not sleep
    assert abs(slept_s() - before) < 0.02


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "a moment"), (1, "1 second"), (59, "59 seconds"), (90, "2 minutes"), (7300, "2 hours")],
)
def test_a_length_of_time_is_said_as_a_person_would(seconds: float, words: str) -> None:
    assert in_words(seconds) == words


def test_an_answer_goes_on_after_a_sleep_and_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = world.conversations.ask(SIZE_QUESTION, options=LONG)
    session = first(events, Started).session_id
    first(events, Delta)
    awake = slept_s()
    monkeypatch.setattr(chat.turn, "slept_s", lambda: awake + 42 * 60)
    turn = finished(events)
    assert turn.state == "done"
    assert "The computer slept for 42 minutes while this was being answered." in turn.notes
    monkeypatch.undo()
    follow = world.ask(PAGE_QUESTION, session)
    assert follow.state == "done"
    assert not any("slept" in note for note in follow.notes)


def test_a_stream_that_nobody_reads_after_a_sleep_ends_in_a_marked_turn(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = world.conversations.ask(SIZE_QUESTION, options=LONG)
    session = first(events, Started).session_id
    first(events, Delta)
    awake = slept_s()
    monkeypatch.setattr(chat.turn, "slept_s", lambda: awake + 8 * 3600)
    events.close()  # what the server does when the browser's connection is gone
    [turn] = world.conversations.turns(session)
    assert (turn.state, turn.finish_reason) == ("stopped", "cancelled")
    assert any("8 hours" in note for note in turn.notes)
    monkeypatch.undo()
    assert world.ask(PAGE_QUESTION, session).state == "done"


def test_a_clock_that_is_set_back_does_not_mix_up_the_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(f"sqlite:///{tmp_path / 'pageturn.db'}")
    migrate(database)
    store, real = ConversationStore(database), datetime.now(UTC)
    turns = [store.begin("talk", "local", "One?", Context("a model", (1,), (), ()))]
    for hours in (5, 9):
        monkeypatch.setattr(chat.store, "_now", lambda h=hours: real - timedelta(hours=h))
        turns.append(store.begin("talk", "local", "More?"))
    again = store.begin("talk", "local", "Less?", instead_of=turns[1])
    assert store.turns("talk", "local")[-1].versions == (turns[1], again)
    store.show("talk", "local", turns[1])  # goes to the newest end of that branch
    assert [turn.turn for turn in store.turns("talk", "local")] == turns
    database.close()
