"""Many conversations on one engine: the promises that a caller relies on."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from engine import Engine, Sampling, Session
from engine.errors import (
    ContextTooLong,
    EmptyMessage,
    EngineStopped,
    QueueFull,
    SessionBusy,
    SessionClosed,
    StepFailed,
)

MakeEngine = Callable[..., Engine]
TEXT = "The quick brown fox jumps over the lazy dog while the cache keeps every page. "


class Recorder:
    """Notes the work of every step of an engine, and can be told to fail."""

    def __init__(self, engine: Engine) -> None:
        self.steps: list[list[tuple[Session, int]]] = []
        self.fail: Callable[[Session], bool] = lambda _: False
        self.gate: threading.Event | None = None
        self._run = engine._runner.run
        engine._runner.run = self  # type: ignore[method-assign,assignment]

    def __call__(self, parts: list[tuple[Session, int]]) -> torch.Tensor:
        if self.gate is not None:
            assert self.gate.wait(30)
        self.steps.append(list(parts))
        if any(self.fail(session) for session, _ in parts):
            raise RuntimeError("injected fault")
        return self._run(parts)


def _ask(engine: Engine, session: Session, text: str, **sampling: Any) -> Any:
    first = len(session.tokens) == len(engine.static_tokens)
    closing = [] if first else engine.format.end(session.tokens[-1:])
    new = closing + engine.format.user(text, first)
    return engine.generate(session, new, Sampling(**({"max_tokens": 12} | sampling)))


def _alone(make_engine: MakeEngine, text: str, **sampling: Any) -> tuple[int, ...]:
    """The answer that a roomy engine gives to this one request."""
    engine = make_engine()
    engine.set_system("Be brief.")
    return _ask(engine, engine.open(), text, **sampling).result().tokens  # type: ignore[no-any-return]


# -- what a turn computes ----------------------------------------------------------------------


def test_the_static_prompt_is_computed_once_and_shared(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.set_system("You answer questions about files. " * 6)
    static = len(engine.static_tokens)
    assert static % 16, "the case with a partial page is the one of interest"
    first = _ask(engine, engine.open(), "One?").result().stats
    second = _ask(engine, engine.open(owner="someone else"), "Two?").result().stats
    for stats in (first, second):
        assert stats.static_tokens == stats.cached_tokens == static
        assert stats.prompt_tokens == stats.cached_tokens + stats.computed_tokens
    pages = engine.memory()
    assert pages.pages_static == -(-static // 16)
    assert pages.pages_sessions == first.kv_pages + second.kv_pages - 2 * (static // 16)


def test_a_second_turn_computes_its_new_tokens_only(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.set_system("Be brief.")
    session = engine.open()
    _ask(engine, session, "First question, with some length to it?").result()
    held = len(session.tokens)
    assert session.kv_tokens == held - 1  # the last sampled token has no KV until it is forwarded
    new = engine.format.end(session.tokens[-1:]) + engine.format.user("Second?", first=False)
    stats = engine.generate(session, new, Sampling(max_tokens=5)).result().stats
    assert stats.computed_tokens == len(new) + 1
    assert stats.cached_tokens == held - 1
    assert stats.prompt_tokens == held + len(new)


def test_given_up_kv_is_computed_again_with_the_same_answer(make_engine: MakeEngine) -> None:
    engine = make_engine(prefix_cache=False)
    engine.set_system("Be brief.")
    kept, dropped = engine.open(), engine.open()
    for session in (kept, dropped):
        _ask(engine, session, "A first question?").result()
    engine.drop_kv(dropped)
    assert dropped.pages == []
    one = _ask(engine, kept, "And then?").result()
    two = _ask(engine, dropped, "And then?").result()
    assert one.tokens == two.tokens
    assert two.stats.cached_tokens == len(engine.static_tokens) < one.stats.cached_tokens


def test_a_session_opened_from_stored_tokens_goes_on_as_before(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.set_system("Be brief.")
    session = engine.open()
    _ask(engine, session, "A first question?").result()
    stored = list(session.tokens)
    expected = _ask(engine, session, "And then?").result().tokens
    other = make_engine()
    other.set_system("Be brief.")
    result = _ask(other, other.open(stored), "And then?").result()
    assert result.tokens == expected
    assert result.stats.cached_tokens == len(other.static_tokens)


def test_fork_and_truncate_continue_like_fresh_sessions(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.set_system("Be brief.")
    session = engine.open()
    _ask(engine, session, "A first question?").result()
    length = len(session.tokens)
    expected = _ask(engine, engine.open(session.tokens), "Why?").result().tokens
    child = engine.fork(session)
    assert _ask(engine, child, "Why?").result().tokens == expected
    assert len(session.tokens) == length
    engine.truncate(child, length)  # take the question and its answer back
    again = _ask(engine, child, "Why?").result()
    assert again.tokens == expected
    assert again.stats.cached_tokens >= length - 1


def test_an_answer_can_be_regenerated_from_the_same_tokens(make_engine: MakeEngine) -> None:
    engine = make_engine()
    session = engine.open(engine.format.user("A question?", first=True))
    prompt = len(session.tokens)
    first = engine.generate(session, (), Sampling(max_tokens=9)).result()
    engine.truncate(session, prompt)
    second = engine.generate(session, (), Sampling(max_tokens=9)).result()
    assert first.tokens == second.tokens
    assert second.stats.computed_tokens == 1  # the last one, for its logits


# -- streams -----------------------------------------------------------------------------------


def test_the_stream_is_the_text_of_the_tokens(make_engine: MakeEngine) -> None:
    engine = make_engine()
    generation = _ask(engine, engine.open(), "Say something.", max_tokens=60)
    pieces = list(generation)
    result = generation.result()
    assert "".join(pieces) == result.text
    assert all(pieces)
    whole = engine.format.decode(result.tokens)
    assert whole.startswith(result.text.rstrip("\ufffd"))


def test_characters_split_over_tokens_are_streamed_whole(real_engine: Engine) -> None:
    from engine.answer_text import AnswerText

    written = "缓存 🙂 é — 🏳️‍🌈 fin"
    answer = AnswerText(real_engine._tokenizer, ())
    tokens = real_engine._tokenizer.encode(written)
    assert len(tokens) > len(written) / 2
    pieces = [answer.push(token) for token in tokens]
    assert "".join(pieces) == written
    assert not any("\ufffd" in piece for piece in pieces)


def test_stop_strings_are_found_over_token_borders_and_not_shown(real_engine: Engine) -> None:
    session = real_engine.open()
    new = real_engine.format.user(
        "Count from one to ten in words, separated by commas.", first=True
    )
    plain = real_engine.generate(session, new, Sampling(max_tokens=40)).result().text
    assert len(plain) > 12
    stop = plain[5:12]
    real_engine.truncate(session, len(real_engine.static_tokens))
    generation = real_engine.generate(session, new, Sampling(max_tokens=40, stop=("@@", stop)))
    pieces = list(generation)
    result = generation.result()
    assert "".join(pieces) == result.text == plain[: plain.index(stop)]
    assert result.finish_reason == "stop"
    real_engine.close(session)


def test_the_same_seed_gives_the_same_answer(make_engine: MakeEngine) -> None:
    engine = make_engine()
    answers = [
        _ask(engine, engine.open(), "Anything?", temperature=1.2, seed=seed).result().tokens
        for seed in (7, 7, 8)
    ]
    assert answers[0] == answers[1] != answers[2]


# -- many at once ------------------------------------------------------------------------------


def test_a_batch_gives_the_answers_that_each_request_gets_alone(make_engine: MakeEngine) -> None:
    texts = [TEXT * n + "?" for n in (1, 7, 2, 11, 3)]
    expected = [_alone(make_engine, text) for text in texts]
    engine = make_engine()
    engine.set_system("Be brief.")
    recorder = Recorder(engine)
    recorder.gate = threading.Event()
    generations = [_ask(engine, engine.open(), text) for text in texts]
    recorder.gate.set()
    assert [g.result().tokens for g in generations] == expected
    assert max(len(step) for step in recorder.steps) == len(texts)


def test_a_long_prefill_never_stalls_a_running_answer_for_more_than_a_step(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine()
    running = engine.open()
    recorder = Recorder(engine)
    generation = _ask(engine, running, "Go on and on.", max_tokens=200)
    pieces: Iterator[str] = iter(generation)
    next(pieces)
    long = engine.open()
    _ask(engine, long, TEXT * 60, max_tokens=1).result()
    generation.cancel()
    prefill = [step for step in recorder.steps if any(s is long for s, _ in step)]
    assert len(prefill) > 1, "the prompt was meant to take several chunks"
    assert all(any(s is running for s, _ in step) for step in prefill)


def test_pages_run_out_and_every_answer_is_still_the_undisturbed_one(
    make_engine: MakeEngine,
) -> None:
    texts = [TEXT * n + "?" for n in (6, 5, 7, 4)]
    expected = [_alone(make_engine, text, max_tokens=100) for text in texts]
    # 2 layers * 2 heads * 16 * 2 values * 4 bytes * 16 tokens = 8,192 bytes a page
    engine = make_engine(kv_memory=f"{20 * 8192}")
    engine.set_system("Be brief.")
    recorder = Recorder(engine)
    generations = [_ask(engine, engine.open(), text, max_tokens=100) for text in texts]
    assert [g.result().tokens for g in generations] == expected
    computed = sum(n for step in recorder.steps for _, n in step)
    wanted = sum(g.result().stats.computed_tokens + len(g.result().tokens) - 1 for g in generations)
    assert computed > wanted, "someone was meant to be preempted"


def test_requests_are_served_first_come_first_served(make_engine: MakeEngine) -> None:
    engine = make_engine(max_sessions=1)
    recorder = Recorder(engine)
    recorder.gate = threading.Event()
    sessions = [engine.open() for _ in range(4)]
    generations = [_ask(engine, s, "Hello?", max_tokens=2) for s in sessions]
    recorder.gate.set()
    for generation in generations:
        generation.result()
    order = list(dict.fromkeys(session.id for step in recorder.steps for session, _ in step))
    assert order == [s.id for s in sessions]


def test_a_full_queue_refuses_and_changes_nothing(make_engine: MakeEngine) -> None:
    engine = make_engine(max_sessions=1, max_waiting=1)
    recorder = Recorder(engine)
    recorder.gate = threading.Event()
    running = _ask(engine, engine.open(), "One?")
    while not engine._scheduler.running:
        pass
    waiting = _ask(engine, engine.open(), "Two?")
    session = engine.open()
    with pytest.raises(QueueFull, match="1 requests are waiting"):
        _ask(engine, session, "Three?")
    assert session.tokens == []
    recorder.gate.set()
    running.result()
    waiting.result()
    assert _ask(engine, session, "Three?").result().tokens


# -- ends --------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["waiting", "prefilling", "decoding"])
def test_cancel_gives_the_pages_back_within_a_step(stage: str, make_engine: MakeEngine) -> None:
    engine = make_engine(max_sessions=1)
    recorder = Recorder(engine)
    session = engine.open()
    if stage == "waiting":
        recorder.gate = threading.Event()
        _ask(engine, engine.open(), "First.", max_tokens=3)
    text = TEXT * (40 if stage == "prefilling" else 1)
    generation = _ask(engine, session, text, max_tokens=500)
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
    expected = _alone(make_engine, "I am fine?")
    engine = make_engine()
    engine.set_system("Be brief.")
    recorder = Recorder(engine)
    good, bad = engine.open(), engine.open()
    recorder.gate = threading.Event()
    recorder.fail = lambda session: session is bad and len(session.tokens) > 40
    fine, broken = _ask(engine, good, "I am fine?"), _ask(engine, bad, TEXT)
    recorder.gate.set()
    with pytest.raises(StepFailed, match="injected fault"):
        broken.result()
    with pytest.raises(StepFailed, match="injected fault"):
        list(broken)
    assert fine.result().tokens == expected
    recorder.fail = lambda _: False
    assert _ask(engine, bad, "Once more?").result().tokens  # the session is usable again
    engine.check()


def test_logits_that_are_not_finite_end_the_request_with_an_error(make_engine: MakeEngine) -> None:
    engine = make_engine()
    run = engine._runner.run
    engine._runner.run = lambda parts: run(parts) * float("nan")  # type: ignore[method-assign]
    with pytest.raises(StepFailed, match="not finite"):
        _ask(engine, engine.open(), "Hello?").result()
    engine._runner.run = run  # type: ignore[method-assign]
    assert _ask(engine, engine.open(), "Hello?").result().tokens


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
    result = _ask(engine, session, "Go on and on.", max_tokens=500).result()
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
    generation = _ask(engine, session, "Hello?")
    for forbidden in (
        lambda: _ask(engine, session, "Again?"),
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
        _ask(engine, session, "Hello?")


def test_shutdown_ends_running_answers_and_refuses_new_ones(make_engine: MakeEngine) -> None:
    engine = make_engine()
    generation = _ask(engine, engine.open(), "Go on.", max_tokens=1500)
    next(iter(generation))
    engine.shutdown()
    with pytest.raises(EngineStopped):
        generation.result(10)
    with pytest.raises(EngineStopped):
        _ask(engine, engine.open(), "Hello?")


def test_abandoned_and_cancelled_and_failed_requests_leak_no_page(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.set_system("Be brief.")
    free = engine.memory().pages_free
    sessions = [engine.open() for _ in range(6)]
    generations = [_ask(engine, s, TEXT * (i + 1)) for i, s in enumerate(sessions)]
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


# -- memory ------------------------------------------------------------------------------------


def test_the_memory_report_equals_what_the_tensors_hold(make_engine: MakeEngine) -> None:
    engine = make_engine(kv_memory="3MiB")
    engine.set_system("Be brief.")
    report = engine.memory()
    pool = engine._pool
    held = sum(t.untyped_storage().nbytes() for t in (pool.keys, pool.values))
    assert report.kv_pool_bytes == held == report.pages_total * report.kv_page_bytes
    assert report.pages_total == 3 * 2**20 // 8192
    seen: dict[int, torch.Tensor] = {}
    for owner in (engine._model, *engine._model.layers):
        for value in vars(owner).values():
            if isinstance(value, torch.Tensor) and value is not engine._model._inverse_frequencies:
                seen[value.data_ptr()] = value
    assert report.weights_bytes == sum(t.untyped_storage().nbytes() for t in seen.values())
    parts = report.pages_static + report.pages_sessions + report.pages_cached + report.pages_free
    assert parts == report.pages_total
    assert report.device_allocated_bytes == report.weights_bytes + report.kv_pool_bytes


def test_the_page_map_and_the_list_of_sessions_agree_with_the_report(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine()
    engine.set_system("Be brief.")
    recorder = Recorder(engine)
    idle, closed, active = engine.open(), engine.open(), engine.open(owner="ann")
    _ask(engine, idle, TEXT * 3).result()
    _ask(engine, closed, TEXT * 2).result()
    engine.close(closed)
    generation = _ask(engine, active, "Go on.", max_tokens=200)
    next(iter(generation))
    recorder.gate = threading.Event()
    kinds, report = engine.page_map(), engine.memory()
    assert kinds.count("static") == report.pages_static
    assert kinds.count("cached") == report.pages_cached > 0
    assert kinds.count("free") == report.pages_free
    assert kinds.count("active") + kinds.count("idle") == report.pages_sessions
    first, second = engine.session_list()
    assert (first.id, first.owner, first.busy) == (active.id, "ann", True)
    assert (second.id, second.busy, second.pages) == (idle.id, False, len(idle.pages))
    assert second.kv_bytes == second.pages * report.kv_page_bytes
    generation.cancel()
    recorder.gate.set()
    generation.result()


def test_the_stats_of_a_turn_add_up(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.set_system("Be brief.")
    session = engine.open()
    stats = _ask(engine, session, TEXT * 3, max_tokens=20).result().stats
    assert stats.ttft_s == pytest.approx(stats.queue_s + stats.prefill_s)
    assert stats.total_s == pytest.approx(stats.ttft_s + stats.decode_s)
    assert stats.generated_tokens == 20
    assert stats.decode_tokens_per_s == pytest.approx(19 / stats.decode_s)
    assert stats.kv_pages == len(session.pages) == -(-(len(session.tokens) - 1) // 16)
    assert stats.kv_bytes == stats.kv_pages * engine.memory().kv_page_bytes
    assert stats.device_bytes_peak >= stats.device_bytes_before > 0
