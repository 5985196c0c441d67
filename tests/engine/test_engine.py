"""Many conversations on one engine: the promises that a caller relies on."""

import threading
from collections.abc import Iterator

import pytest
import torch

from engine import Engine, Sampling
from engine.errors import QueueFull
from engine.reference.executor import ReferenceExecutor
from tests.engine.driving import TEXT, MakeEngine, Recorder, alone, ask

# -- what a turn computes ----------------------------------------------------------------------


def test_the_static_prompt_is_computed_once_and_shared(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.set_system("You answer questions about files. " * 6)
    static = len(engine.static_tokens)
    assert static % 16, "the case with a partial page is the one of interest"
    first = ask(engine, engine.open(), "One?").result().stats
    second = ask(engine, engine.open(owner="someone else"), "Two?").result().stats
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
    ask(engine, session, "First question, with some length to it?").result()
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
        ask(engine, session, "A first question?").result()
    engine.drop_kv(dropped)
    assert dropped.pages == []
    one = ask(engine, kept, "And then?").result()
    two = ask(engine, dropped, "And then?").result()
    assert one.tokens == two.tokens
    assert two.stats.cached_tokens == len(engine.static_tokens) < one.stats.cached_tokens


def test_a_session_opened_from_stored_tokens_goes_on_as_before(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.set_system("Be brief.")
    session = engine.open()
    ask(engine, session, "A first question?").result()
    stored = list(session.tokens)
    expected = ask(engine, session, "And then?").result().tokens
    other = make_engine()
    other.set_system("Be brief.")
    result = ask(other, other.open(stored), "And then?").result()
    assert result.tokens == expected
    assert result.stats.cached_tokens == len(other.static_tokens)


def test_fork_and_truncate_continue_like_fresh_sessions(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.set_system("Be brief.")
    session = engine.open()
    ask(engine, session, "A first question?").result()
    length = len(session.tokens)
    expected = ask(engine, engine.open(session.tokens), "Why?").result().tokens
    child = engine.fork(session)
    assert ask(engine, child, "Why?").result().tokens == expected
    assert len(session.tokens) == length
    engine.truncate(child, length)  # take the question and its answer back
    again = ask(engine, child, "Why?").result()
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
    generation = ask(engine, engine.open(), "Say something.", max_tokens=60)
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
        ask(engine, engine.open(), "Anything?", temperature=1.2, seed=seed).result().tokens
        for seed in (7, 7, 8)
    ]
    assert answers[0] == answers[1] != answers[2]


# -- many at once ------------------------------------------------------------------------------


def test_a_batch_gives_the_answers_that_each_request_getsalone(make_engine: MakeEngine) -> None:
    texts = [TEXT * n + "?" for n in (1, 7, 2, 11, 3)]
    expected = [alone(make_engine, text) for text in texts]
    engine = make_engine()
    engine.set_system("Be brief.")
    recorder = Recorder(engine)
    recorder.gate = threading.Event()
    generations = [ask(engine, engine.open(), text) for text in texts]
    recorder.gate.set()
    assert [g.result().tokens for g in generations] == expected
    assert max(len(step) for step in recorder.steps) == len(texts)


def test_a_long_prefill_never_stalls_a_running_answer_for_more_than_a_step(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine()
    running = engine.open()
    recorder = Recorder(engine)
    generation = ask(engine, running, "Go on and on.", max_tokens=200)
    pieces: Iterator[str] = iter(generation)
    next(pieces)
    long = engine.open()
    ask(engine, long, TEXT * 60, max_tokens=1).result()
    generation.cancel()
    prefill = [step for step in recorder.steps if any(s is long for s, _ in step)]
    assert len(prefill) > 1, "the prompt was meant to take several chunks"
    assert all(any(s is running for s, _ in step) for step in prefill)


def test_pages_run_out_and_every_answer_is_still_the_undisturbed_one(
    make_engine: MakeEngine,
) -> None:
    texts = [TEXT * n + "?" for n in (6, 5, 7, 4)]
    expected = [alone(make_engine, text, max_tokens=100) for text in texts]
    # 2 layers * 2 heads * 16 * 2 values * 4 bytes * 16 tokens = 8,192 bytes a page
    engine = make_engine(kv_memory=f"{20 * 8192}")
    engine.set_system("Be brief.")
    recorder = Recorder(engine)
    generations = [ask(engine, engine.open(), text, max_tokens=100) for text in texts]
    assert [g.result().tokens for g in generations] == expected
    computed = sum(n for step in recorder.steps for _, n in step)
    wanted = sum(g.result().stats.computed_tokens + len(g.result().tokens) - 1 for g in generations)
    assert computed > wanted, "someone was meant to be preempted"


def test_requests_are_served_first_come_first_served(make_engine: MakeEngine) -> None:
    engine = make_engine(max_sessions=1)
    recorder = Recorder(engine)
    recorder.gate = threading.Event()
    sessions = [engine.open() for _ in range(4)]
    generations = [ask(engine, s, "Hello?", max_tokens=2) for s in sessions]
    recorder.gate.set()
    for generation in generations:
        generation.result()
    order = list(dict.fromkeys(session.id for step in recorder.steps for session, _ in step))
    assert order == [s.id for s in sessions]


def test_a_full_queue_refuses_and_changes_nothing(make_engine: MakeEngine) -> None:
    engine = make_engine(max_sessions=1, max_waiting=1)
    recorder = Recorder(engine)
    recorder.gate = threading.Event()
    running = ask(engine, engine.open(), "One?")
    while not engine._scheduler.running:
        pass
    waiting = ask(engine, engine.open(), "Two?")
    session = engine.open()
    with pytest.raises(QueueFull, match="1 requests are waiting"):
        ask(engine, session, "Three?")
    assert session.tokens == []
    recorder.gate.set()
    running.result()
    waiting.result()
    assert ask(engine, session, "Three?").result().tokens


# -- memory ------------------------------------------------------------------------------------


def test_the_memory_report_equals_what_the_tensors_hold(make_engine: MakeEngine) -> None:
    engine = make_engine(kv_memory="3MiB")
    engine.set_system("Be brief.")
    report = engine.memory()
    pool = engine._pool
    held = pool.buffer.untyped_storage().nbytes()
    assert report.kv_pool_bytes == held == report.pages_total * report.kv_page_bytes
    assert report.pages_total == 3 * 2**20 // 8192
    seen: dict[int, torch.Tensor] = {}
    executor = engine._executor
    assert isinstance(executor, ReferenceExecutor)
    weights = executor._model.weights
    for owner in (weights, *weights.layers):
        for value in vars(owner).values():
            if isinstance(value, torch.Tensor):
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
    ask(engine, idle, TEXT * 3).result()
    ask(engine, closed, TEXT * 2).result()
    engine.close(closed)
    generation = ask(engine, active, "Go on.", max_tokens=200)
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
    stats = ask(engine, session, TEXT * 3, max_tokens=20).result().stats
    assert stats.ttft_s == pytest.approx(stats.queue_s + stats.prefill_s)
    assert stats.total_s == pytest.approx(stats.ttft_s + stats.decode_s)
    assert stats.generated_tokens == 20
    assert stats.decode_tokens_per_s == pytest.approx(19 / stats.decode_s)
    assert stats.kv_pages == len(session.pages) == -(-(len(session.tokens) - 1) // 16)
    assert stats.kv_bytes == stats.kv_pages * engine.memory().kv_page_bytes
    assert stats.device_bytes_peak >= stats.device_bytes_before > 0
