"""How a request ends: stopped, refused, failed, or at the end of the context."""

import threading

import pytest

from engine import Sampling
from engine.errors import (
    ContextTooLong,
    EmptyMessage,
    EngineStopped,
    SessionBusy,
    SessionClosed,
    StepFailed,
)
from tests.engine.driving import TEXT, MakeEngine, Recorder, alone, ask


@pytest.mark.parametrize("stage", ["waiting", "prefilling", "decoding"])
def test_cancel_gives_the_pages_back_within_a_step(stage: str, make_engine: MakeEngine) -> None:
    engine = make_engine(max_sessions=1)
    recorder = Recorder(engine)
    session = engine.open()
    if stage == "waiting":
        recorder.gate = threading.Event()
        ask(engine, engine.open(), "First.", max_tokens=3)
    text = TEXT * (40 if stage == "prefilling" else 1)
    generation = ask(engine, session, text, max_tokens=500)
    if stage == "prefilling":
        while not recorder.steps:
            pass
    elif stage == "decoding":
        next(iter(generation))
    steps = len(recorder.steps)
    generation.cancel()
    if recorder.gate:
        recorder.gate.set()
    result = generation.result(30)
    after = [step for step in recorder.steps[steps:] if any(s is session for s, _ in step)]
    assert result.finish_reason == "cancelled"
    assert len(after) <= 2  # the one that ran when it was cancelled, and one more at most
    assert not session.busy
    engine.close(session)
    while engine._scheduler.busy:
        pass
    engine.check()


def test_an_error_ends_one_request_and_leaves_the_others_running(make_engine: MakeEngine) -> None:
    expected = alone(make_engine, "I am fine?")
    engine = make_engine()
    engine.set_system("Be brief.")
    recorder = Recorder(engine)
    good, bad = engine.open(), engine.open()
    recorder.gate = threading.Event()
    recorder.fail = lambda session: session is bad and len(session.tokens) > 40
    fine, broken = ask(engine, good, "I am fine?"), ask(engine, bad, TEXT)
    recorder.gate.set()
    with pytest.raises(StepFailed, match="injected fault"):
        broken.result()
    with pytest.raises(StepFailed, match="injected fault"):
        list(broken)
    assert fine.result().tokens == expected
    recorder.fail = lambda _: False
    assert ask(engine, bad, "Once more?").result().tokens  # the session is usable again
    engine.check()


def test_logits_that_are_not_finite_end_the_request_with_an_error(make_engine: MakeEngine) -> None:
    engine = make_engine()
    executor, forward = engine._executor, engine._executor.forward
    executor.forward = lambda *given: forward(*given) * float("nan")  # type: ignore[method-assign]
    with pytest.raises(StepFailed, match="not finite"):
        ask(engine, engine.open(), "Hello?").result()
    executor.forward = forward  # type: ignore[method-assign]
    assert ask(engine, engine.open(), "Hello?").result().tokens


def test_what_can_never_fit_is_refused_at_once_with_the_numbers(make_engine: MakeEngine) -> None:
    engine = make_engine()
    session = engine.open()
    new = engine.format.user(TEXT * 200, first=True)
    with pytest.raises(ContextTooLong) as caught:
        engine.generate(session, new, Sampling())
    assert (caught.value.needed, caught.value.limit) == (len(new) + 1, 2048)
    assert session.tokens == []
    assert f"{len(new) + 1:,}" in str(caught.value)
    with pytest.raises(ContextTooLong):
        engine.open(new)


def test_an_answer_ends_where_the_context_ends(make_engine: MakeEngine) -> None:
    engine = make_engine(kv_memory=f"{6 * 8192}")
    assert engine.context_tokens == 6 * 16
    engine.set_system("Be brief.")
    assert engine.context_tokens == 5 * 16  # the static prompt's partial page is nobody else's
    session = engine.open()
    result = ask(engine, session, "Go on and on.", max_tokens=500).result()
    assert result.finish_reason == "length"
    assert len(session.tokens) == 80
    assert engine.open(session.tokens).tokens == session.tokens  # it can be opened again


def test_an_empty_request_is_refused(make_engine: MakeEngine) -> None:
    engine = make_engine()
    with pytest.raises(EmptyMessage):
        engine.generate(engine.open(), (), Sampling())


def test_a_session_does_one_thing_at_a_time(make_engine: MakeEngine) -> None:
    engine = make_engine()
    recorder = Recorder(engine)
    recorder.gate = threading.Event()
    session = engine.open()
    generation = ask(engine, session, "Hello?")
    for forbidden in (
        lambda: ask(engine, session, "Again?"),
        lambda: engine.fork(session),
        lambda: engine.truncate(session, 0),
        lambda: engine.drop_kv(session),
        lambda: engine.close(session),
    ):
        with pytest.raises(SessionBusy):
            forbidden()
    recorder.gate.set()
    generation.result()
    engine.close(session)
    with pytest.raises(SessionClosed):
        ask(engine, session, "Hello?")


def test_shutdown_ends_running_answers_and_refuses_new_ones(make_engine: MakeEngine) -> None:
    engine = make_engine()
    generation = ask(engine, engine.open(), "Go on.", max_tokens=1500)
    next(iter(generation))
    engine.shutdown()
    with pytest.raises(EngineStopped):
        generation.result(10)
    with pytest.raises(EngineStopped):
        ask(engine, engine.open(), "Hello?")


def test_abandoned_and_cancelled_and_failed_requests_leak_no_page(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.set_system("Be brief.")
    free = engine.memory().pages_free
    sessions = [engine.open() for _ in range(6)]
    generations = [ask(engine, s, TEXT * (i + 1)) for i, s in enumerate(sessions)]
    for generation in generations[::2]:
        generation.cancel()
    for generation in generations:
        generation.result()
    for index, session in enumerate(sessions):
        engine.close(session, forget=index % 2 == 0)
        engine.close(session)
    report = engine.memory()
    assert report.pages_sessions == 0
    assert report.pages_free + report.pages_cached == free
