"""Every way in which a turn can end leaves a marked, readable turn, and the next one goes on."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chat.conversation import INTERRUPTED, Conversations
from chat.events import Delta, Retrieved, Started
from chat.notes import REPEATS_ITSELF
from chat.options import AskOptions
from chat.views import TurnView
from tests.chat.conftest import PAGE_QUESTION, SIZE_QUESTION, World, finished, first

LONG = AskOptions(max_tokens=250, passages=1, temperature=0.8, seed=3)


def ended(world: World, session: str) -> TurnView:
    """The conversation's only turn, once it has ended."""
    until = time.monotonic() + 60
    while (turn := world.conversations.turns(session)[0]).state == "pending":
        assert time.monotonic() < until, "the turn did not end"
        time.sleep(0.05)
    return turn


def test_stop_ends_the_turn_and_keeps_the_text(world: World) -> None:
    events = world.conversations.ask(SIZE_QUESTION, options=LONG)
    session = first(events, Started).session_id
    text = first(events, Delta).text + first(events, Delta).text
    assert world.conversations.stop(session)
    turn = finished(events)
    assert (turn.state, turn.finish_reason) == ("stopped", "cancelled")
    assert turn.answer.startswith(text.rstrip())
    assert turn.stats is not None
    assert 0 < turn.stats.generated_tokens < 250
    assert not world.conversations.stop(session)
    follow = world.ask(PAGE_QUESTION, session)
    assert follow.stats is not None
    assert follow.stats.cached_tokens > turn.stats.prompt_tokens


def test_stop_before_the_model_began_leaves_a_turn_without_an_answer(world: World) -> None:
    events = world.conversations.ask(SIZE_QUESTION, options=LONG)
    session = first(events, Started).session_id
    assert world.conversations.stop(session)
    turn = finished(events)
    assert (turn.state, turn.answer, turn.finish_reason) == ("stopped", "", "cancelled")
    follow = world.ask(PAGE_QUESTION, session)
    assert follow.stats is not None
    assert follow.stats.prompt_tokens == world.tokens() + len(world.row(follow.turn).prompt_tokens)


def _lost_stream(world: World) -> str:
    """A turn whose text streams to nobody, for the garbage collector to find; its session."""
    events = world.conversations.ask(SIZE_QUESTION, options=LONG)
    session = first(events, Started).session_id
    first(events, Delta)
    cycle: list[Any] = [events]
    cycle.append(cycle)
    return session


def test_a_stream_that_is_collected_on_the_engines_own_thread_ends_its_turn(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the engine's lock held, and in the middle of a step."""
    scheduler = world.engine._scheduler
    plan_ahead = scheduler.plan_ahead

    def collecting_plan(plan: Any) -> Any:
        monkeypatch.undo()
        gc.collect()
        return plan_ahead(plan)

    gc.disable()
    try:
        session = _lost_stream(world)
        monkeypatch.setattr(scheduler, "plan_ahead", collecting_plan)
        turn = ended(world, session)
    finally:
        gc.enable()
    assert (turn.state, turn.finish_reason) == ("stopped", "cancelled")
    assert turn.answer
    assert world.ask(PAGE_QUESTION, session).state == "done"


@pytest.mark.parametrize("where", ["in the engine", "in the conversations"])
def test_a_stream_that_is_collected_by_who_holds_a_lock_ends_its_turn(
    world: World, where: str
) -> None:
    """As a collection does that begins in any thread, wherever something is made."""
    lock = world.engine._lock if where == "in the engine" else world.conversations._lock

    def collect() -> None:
        with lock:
            gc.collect()

    gc.disable()
    try:
        session = _lost_stream(world)
        collecting = threading.Thread(target=collect, daemon=True)
        collecting.start()
        collecting.join(20)
        if collecting.is_alive():
            lock.release()  # so that no later test waits for it
            pytest.fail("the collection waits for the lock that it was begun under")
        turn = ended(world, session)
    finally:
        gc.enable()
    assert (turn.state, turn.finish_reason) == ("stopped", "cancelled")
    assert turn.answer
    assert world.ask(PAGE_QUESTION, session).state == "done"


def test_closing_the_generator_stops_the_model_and_saves_what_there_is(world: World) -> None:
    events = world.conversations.ask(SIZE_QUESTION, options=LONG)
    session = first(events, Started).session_id
    text = first(events, Delta).text
    events.close()
    (turn,) = world.conversations.turns(session)
    assert (turn.state, turn.finish_reason) == ("stopped", "cancelled")
    assert turn.answer.startswith(text.rstrip())
    assert world.ask(PAGE_QUESTION, session).state == "done"


@pytest.mark.parametrize("read_to", [None, Started, Retrieved])
def test_closing_it_before_the_first_word_ends_the_turn_too(
    world: World, read_to: type | None
) -> None:
    events = world.conversations.ask(SIZE_QUESTION, options=LONG)
    session = world.conversations.sessions()[0].session
    if read_to:
        first(events, read_to)
    events.close()
    (turn,) = world.conversations.turns(session)
    assert (turn.state, turn.answer) == ("stopped", "")
    assert world.ask(PAGE_QUESTION, session).state == "done"


def test_a_generator_that_is_thrown_away_frees_its_conversation(world: World) -> None:
    events = world.conversations.ask(SIZE_QUESTION, options=LONG)
    session = first(events, Started).session_id
    del events
    assert world.conversations.turns(session)[0].state == "stopped"
    assert world.ask(PAGE_QUESTION, session).state == "done"


def test_an_error_of_the_engine_is_saved_with_the_text_before_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = world.conversations.ask(SIZE_QUESTION, options=LONG)
    session = first(events, Started).session_id
    text = first(events, Delta).text

    def fail(*_: Any) -> Any:
        raise MemoryError("no memory for this step")

    with monkeypatch.context() as patch:
        patch.setattr(world.engine._executor, "forward", fail)
        turn = finished(events)
    assert (turn.state, turn.finish_reason) == ("error", "error")
    assert turn.error is not None
    assert "no memory for this step" in turn.error
    assert turn.answer.startswith(text)
    assert world.conversations.turns(session) == [turn]
    follow = world.ask(PAGE_QUESTION, session)
    assert follow.state == "done"
    assert follow.stats is not None
    read = world.tokens(turn.turn) + len(world.row(follow.turn).prompt_tokens)
    assert follow.stats.prompt_tokens == read
    assert world.row(turn.turn).answer_tokens


def test_a_fault_of_ours_is_raised_and_the_turn_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> Any:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr("chat.writer.Citer.cite", fail)
        events = world.conversations.ask(SIZE_QUESTION, options=AskOptions(max_tokens=4))
        session = first(events, Started).session_id
        with pytest.raises(ZeroDivisionError):
            list(events)
    (turn,) = world.conversations.turns(session)
    assert turn.state == "error"
    assert turn.error is not None
    assert "ZeroDivisionError" in turn.error
    assert turn.answer
    assert world.ask(PAGE_QUESTION, session).state == "done"


def test_an_answer_that_goes_round_in_circles_is_ended_and_cut(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("chat.writer.circle_start", lambda tokens: 3 if len(tokens) >= 6 else None)
        turn = world.ask(SIZE_QUESTION, options=LONG)
    assert (turn.state, turn.finish_reason) == ("done", "repetition")
    assert REPEATS_ITSELF in turn.notes
    kept = world.row(turn.turn).answer_tokens
    assert turn.answer.startswith(world.engine.format.decode(kept[:3]).strip())
    assert len(kept) == 3 + len(world.engine.format.end(kept[:3]))
    follow = world.ask(PAGE_QUESTION, turn.session)
    assert follow.stats is not None
    read = world.tokens(turn.turn) + len(world.row(follow.turn).prompt_tokens)
    assert follow.stats.prompt_tokens == read


def test_two_conversations_answer_at_the_same_time(world: World) -> None:
    turns = []

    def ask(question: str) -> None:
        turns.append(world.ask(question))

    threads = [threading.Thread(target=ask, args=(q,)) for q in (SIZE_QUESTION, PAGE_QUESTION)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {turn.question for turn in turns} == {SIZE_QUESTION, PAGE_QUESTION}
    assert all(turn.state == "done" for turn in turns)


CHILD = """
import sys
from pathlib import Path
from chat.conversation import Conversations
from chat.events import Delta
from chat.options import AskOptions
from engine import Engine, EngineConfig
from retrieval.database import Database
from retrieval.embedder import Embedder
from retrieval.library import Library

folder, model, embedder, question = sys.argv[1:]
database = Database(f"sqlite:///{folder}/pageturn.db")
library = Library(database, Path(folder), Embedder(embedder, device="cpu"))
engine = Engine(EngineConfig(model, device="cpu", kv_memory="128MB"))
conversations = Conversations(database, library, engine)
options = AskOptions(max_tokens=250, passages=1, temperature=0.8, seed=3)
for event in conversations.ask(question, options=options):
    if isinstance(event, Delta):
        print(event.text, end="", flush=True)
"""


def test_a_killed_process_leaves_a_turn_that_the_next_start_marks_and_goes_on_from(
    make_world: Callable[..., World], library_dir: Path, chat_model: str, embedder_folder: str
) -> None:
    world = make_world()
    world.add(library_dir / "kv-cache-size.md")
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            CHILD,
            str(world.folder),
            chat_model,
            embedder_folder,
            SIZE_QUESTION,
        ],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert child.stdout is not None
    shown, end = b"", 0.0
    while not end or time.perf_counter() < end:
        piece = os.read(child.stdout.fileno(), 4096)
        assert piece, "the child ended before it was killed"
        end = end or time.perf_counter() + 0.7
        shown += piece
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()

    conversations = Conversations(world.database, world.library, world.engine)
    (view,) = conversations.sessions()
    assert conversations.turns(view.session)[0].state == "pending"
    assert conversations.recover() == 1
    assert conversations.recover() == 0
    (turn,) = conversations.turns(view.session)
    assert (turn.state, turn.finish_reason) == ("interrupted", "interrupted")
    assert INTERRUPTED in turn.notes
    assert turn.question == SIZE_QUESTION
    assert turn.answer
    assert shown.decode().startswith(turn.answer)
    assert turn.retrieved
    follow = finished(
        conversations.ask(PAGE_QUESTION, session_id=view.session, options=AskOptions(max_tokens=8))
    )
    assert follow.state == "done"
    assert follow.stats is not None
    read = world.tokens(turn.turn) + len(world.row(follow.turn).prompt_tokens)
    assert follow.stats.prompt_tokens == read
    conversations.close()
