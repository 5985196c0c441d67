"""What must not happen: hanging, spinning, silent ends, lost KV."""

import gc
import json
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engine import Engine, EngineConfig, Sampling
from engine.errors import (
    ContextTooLong,
    EngineStopped,
    SettingError,
    StepFailed,
    UnknownToken,
    WeightsUnusable,
)
from engine.exact.job import RefreshJob
from engine.tokenizer import Tokenizer

MakeEngine = Callable[..., Engine]
LONG_SYSTEM = "You answer questions about files and name the page that an answer comes from. " * 8


def _answer(engine: Engine, text: str = "Hello?", **sampling: Any) -> tuple[int, ...]:
    new = engine.format.user(text, first=True)
    settings = Sampling(**({"max_tokens": 5} | sampling))
    return engine.generate(engine.open(), new, settings).result(60).tokens


def test_a_session_that_shares_no_static_page_is_refused_where_it_cannot_fit(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine(kv_memory=f"{20 * 8192}")
    engine.set_system(LONG_SYSTEM)
    static = engine.memory().pages_static
    assert static >= 8
    session = engine.open([7] * 150)  # it begins otherwise than the static prompt
    with pytest.raises(ContextTooLong) as caught:
        engine.generate(session, [8] * 90, Sampling())
    assert caught.value.limit == (20 - static) * 16
    assert engine.generate(session, (), Sampling(max_tokens=500)).result(60).tokens
    assert len(session.tokens) == (20 - static) * 16
    assert _answer(engine)


def test_a_request_that_outgrows_what_is_left_ends_with_the_numbers(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine(kv_memory=f"{24 * 8192}")
    session = engine.open([7] * 200)
    generation = engine.generate(session, (), Sampling(max_tokens=180))
    next(iter(generation))
    engine.set_system(LONG_SYSTEM)  # takes pages that the request was told it could have
    with pytest.raises(ContextTooLong):
        generation.result(60)
    assert _answer(engine)
    engine.check()


def test_a_fault_at_the_end_of_a_request_is_told_to_whoever_waits(make_engine: MakeEngine) -> None:
    engine = make_engine()
    trim = engine._cache.trim

    def broken(session: Any) -> None:
        raise ValueError("injected fault")

    engine._cache.trim = broken  # type: ignore[method-assign]
    with pytest.raises(StepFailed, match="injected fault"):
        _answer(engine)
    engine._cache.trim = trim  # type: ignore[method-assign]
    assert _answer(engine)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_loop_that_dies_leaves_nobody_waiting(make_engine: MakeEngine) -> None:
    engine = make_engine()

    def deadly() -> Any:
        raise SystemExit("injected fault")

    engine._scheduler.plan = deadly  # type: ignore[method-assign]
    with pytest.raises(EngineStopped):
        _answer(engine)
    with pytest.raises(EngineStopped):
        _answer(engine)


def test_a_stream_that_is_dropped_on_the_engines_own_thread_does_not_block_it(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine()

    def reading() -> Iterator[str]:
        generation = engine.generate(
            engine.open(), engine.format.user("Go on.", first=True), Sampling(max_tokens=1000)
        )
        try:
            yield from generation
        finally:
            generation.cancel()
            if threading.current_thread().name == "engine":
                with pytest.raises(RuntimeError, match="cannot wait"):
                    generation.result()

    class Cycle:
        def __init__(self) -> None:
            self.stream = reading()
            self.itself = self

    plan = engine._scheduler.plan

    def collecting_plan() -> Any:  # with the lock held, on the engine's thread
        gc.collect()
        return plan()

    gc.disable()
    try:
        next(Cycle().stream)
        engine._scheduler.plan = collecting_plan  # type: ignore[method-assign]
        assert _answer(engine)
    finally:
        gc.enable()


def test_a_recomputation_that_fails_leaves_the_kv(make_engine: MakeEngine) -> None:
    engine = make_engine()
    session = engine.open([7] * 100)
    engine.generate(session, (), Sampling(max_tokens=2)).result()
    held, pages = session.kv_tokens, list(session.pages)
    run_layer = engine._executor.run_layer
    engine._executor.run_layer = _fail  # type: ignore[method-assign]
    with pytest.raises(StepFailed, match="injected fault"):
        engine.recompute(session)
    assert (session.kv_tokens, session.pages) == (held, pages)
    engine._executor.run_layer = run_layer  # type: ignore[method-assign]
    assert engine.recompute(session) == len(session.tokens)


OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory."),
    MemoryError(),
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to"),
]


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=lambda error: type(error).__name__)
def test_a_step_that_finds_too_little_memory_is_made_smaller(
    make_engine: MakeEngine, error: Exception
) -> None:
    prompts = [[5 + n] * (90 + 40 * n) for n in range(3)]
    engine = make_engine()
    expected = [
        engine.generate(engine.open(prompt), (), Sampling(max_tokens=6)).result().tokens
        for prompt in prompts
    ]
    short = make_engine()
    forward = short._executor.forward
    most = 20
    batches: list[weakref.ref[torch.Tensor]] = []

    def with_little_memory(step: Any, *given: Any) -> torch.Tensor:
        assert all(batch() is None for batch in batches), "a failed batch is still held"
        if step.rows > most:
            batch = torch.empty(step.rows)
            batches.append(weakref.ref(batch))
            raise error
        return forward(step, *given)

    short._executor.forward = with_little_memory  # type: ignore[method-assign]
    short._scheduler.budget._tokens = 256
    answers = [short.generate(short.open(prompt), (), Sampling(max_tokens=6)) for prompt in prompts]
    assert [answer.result(60).tokens for answer in answers] == expected
    assert batches
    # Later steps are no larger than what was found to fit: their size is not found out again.
    assert short._scheduler.budget.tokens <= 256 / 2


def test_the_time_of_a_failed_step_says_nothing_of_how_long_steps_take(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine()
    executor, forward = engine._executor, engine._executor.forward

    def slow_fault(*_: Any) -> torch.Tensor:
        executor.forward = forward  # type: ignore[method-assign]
        time.sleep(1)
        raise RuntimeError("injected fault")

    recorded: list[float] = []
    record = engine._scheduler.budget.record

    def recording(tokens: int, seconds: float) -> None:
        recorded.append(seconds)
        record(tokens, seconds)

    engine._scheduler.budget.record = recording  # type: ignore[method-assign]
    executor.forward = slow_fault  # type: ignore[method-assign]
    with pytest.raises(StepFailed, match="injected fault"):
        _answer(engine)
    assert not recorded
    assert _answer(engine)
    assert recorded


def test_an_error_that_a_device_tells_late_ends_its_requests_and_not_the_loop(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    with monkeypatch.context() as patch:
        patch.setattr("engine.executor.synchronize", _fail)
        with pytest.raises(StepFailed, match="injected fault"):
            _answer(engine)
    assert _answer(engine)


def _fail(*_: Any) -> Any:
    raise RuntimeError("injected fault")


def test_a_recomputation_that_does_not_fit_beside_the_old_kv_takes_its_place(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine(kv_memory=f"{14 * 8192}")
    session = engine.open([7] * 139)  # nine pages of fourteen
    engine.generate(session, (), Sampling(max_tokens=2)).result()
    assert engine.recompute(session) == len(session.tokens) == session.kv_tokens


def test_a_recomputation_waits_for_pages_that_a_running_answer_holds(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine(kv_memory=f"{14 * 8192}")
    session = engine.open([7] * 139)
    running = engine.generate(engine.open([8] * 60), (), Sampling(max_tokens=90))
    next(iter(running))
    assert engine.recompute(session) == session.kv_tokens == 139
    assert len(running.result().tokens) == 90


def test_a_request_waits_for_the_pages_of_a_recomputation_that_goes_on(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(kv_memory=f"{40 * 8192}")
    engine._scheduler.budget._tokens = 512.0  # the whole prompt in one step
    session, other = engine.open([7] * 300), engine.open([8] * 400)
    begun, go_on = threading.Event(), threading.Event()
    step = RefreshJob.step

    def small_step(job: RefreshJob, tokens: int) -> int:
        begun.set()
        assert go_on.wait(60)
        return step(job, 1)

    monkeypatch.setattr(RefreshJob, "step", small_step)
    waiting = threading.Thread(target=engine.recompute, args=(session,))
    waiting.start()
    assert begun.wait(60)
    answer = engine.generate(other, (), Sampling(max_tokens=4))  # 25 pages beside 19
    go_on.set()
    assert len(answer.result(60).tokens) == 4
    waiting.join(60)
    assert not waiting.is_alive()


def test_a_system_prompt_that_does_not_fit_leaves_the_old_one(make_engine: MakeEngine) -> None:
    engine = make_engine(kv_memory=f"{20 * 8192}")
    engine.set_system("Be brief.")
    before = (engine.static_tokens, engine.memory().pages_static, _answer(engine))
    with pytest.raises(ContextTooLong):
        engine.set_system(LONG_SYSTEM * 5)
    assert (engine.static_tokens, engine.memory().pages_static, _answer(engine)) == before
    assert engine.format.system_text == "Be brief."


def test_requests_wait_for_their_pages_instead_of_throwing_prefill_away(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine(kv_memory=f"{30 * 8192}", prefix_cache=False)
    sessions = [engine.open([20 + i] * 200, owner=str(i)) for i in range(4)]
    generations = [engine.generate(s, (), Sampling(max_tokens=2)) for s in sessions]
    stats = [generation.result().stats for generation in generations]
    assert engine._scheduler.preemptions == 0
    assert [s.queue_s for s in stats] == sorted(s.queue_s for s in stats)
    assert stats[-1].queue_s > stats[0].total_s / 2


@pytest.mark.parametrize(("answers", "most"), [(2, 2), (5, 10)])
def test_long_answers_in_a_small_pool_soon_come_one_after_the_other(
    make_engine: MakeEngine, answers: int, most: int
) -> None:
    """Where only the tokens that are there were counted, these lost their pages 47 and 54 times."""
    engine = make_engine(kv_memory=f"{24 * 8192}", kv_dtype="int8")
    going = [
        engine.generate(
            engine.open([5 + n] * 40), (), Sampling(max_tokens=280, temperature=1, seed=n)
        )
        for n in range(answers)
    ]
    assert [len(answer.result(120).tokens) for answer in going] == [280] * answers
    assert 1 <= engine._scheduler.preemptions <= most


def test_prefill_goes_on_beside_many_decodes(make_engine: MakeEngine) -> None:
    engine = make_engine(max_sessions=24)
    engine._scheduler.budget._tokens = 16.0
    engine._scheduler.budget.record = lambda tokens, seconds: None  # type: ignore[method-assign]
    decoding = [
        engine.generate(engine.open([30 + i] * 5), (), Sampling(max_tokens=400)) for i in range(20)
    ]
    for generation in decoding:
        next(iter(generation))
    late = engine.generate(engine.open([9] * 200), (), Sampling(max_tokens=1))
    late.result(60)
    assert not any(generation.done for generation in decoding)
    for generation in decoding:
        generation.cancel()


def test_a_request_cancelled_before_it_ran_reports_nothing_computed(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine(max_sessions=1)
    running = engine.generate(engine.open([8] * 9), (), Sampling(max_tokens=1500))
    next(iter(running))
    waiting = engine.generate(engine.open([7] * 300), (), Sampling())
    waiting.cancel()
    stats = waiting.result().stats
    assert (stats.prompt_tokens, stats.cached_tokens, stats.computed_tokens) == (0, 0, 0)
    assert (stats.ttft_s, stats.prefill_s, stats.generated_tokens) == (0, 0, 0)
    running.cancel()


def test_tokens_of_another_model_are_refused(make_engine: MakeEngine) -> None:
    engine = make_engine()
    session = engine.open([5, 6])
    for wrong in (49152, -1):
        with pytest.raises(UnknownToken, match="another model"):
            engine.open([5, wrong])
        with pytest.raises(UnknownToken):
            engine.generate(session, [wrong], Sampling())
    assert session.tokens == [5, 6]


def test_weights_that_need_scales_are_refused(make_tiny: Callable[..., Path]) -> None:
    from safetensors.torch import load_file, save_file

    folder = make_tiny()
    file = folder / "model.safetensors"
    tensors = load_file(file)
    name = next(name for name in tensors if name.endswith("q_proj.weight"))
    tensors[name] = tensors[name].to(torch.float8_e4m3fn)
    save_file(tensors, file)
    with pytest.raises(WeightsUnusable, match="16-bit version"):
        Engine(EngineConfig(str(folder)))
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq"}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(WeightsUnusable, match="gptq"):
        Engine(EngineConfig(str(folder)))


def test_one_string_is_no_list_of_stop_strings() -> None:
    with pytest.raises(SettingError, match="tuple"):
        Sampling(stop="END")  # type: ignore[arg-type]


def test_the_smallest_temperature_is_greedy(make_engine: MakeEngine) -> None:
    engine = make_engine()
    assert _answer(engine, temperature=1e-300) == _answer(engine)


def test_text_after_a_control_token_is_read_as_in_the_middle(tmp_path: Path) -> None:
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers

    plain = tokenizers.Tokenizer(
        models.BPE({"<s>": 0, "▁": 1, "h": 2, "i": 3, "hi": 4, "▁hi": 5}, [("h", "i"), ("▁", "hi")])
    )
    plain.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    plain.decoder = decoders.Metaspace(prepend_scheme="first")
    plain.add_special_tokens(["<s>"])
    plain.save(str(tmp_path / "tokenizer.json"))
    rendered = plain.encode("<s>hi", add_special_tokens=False).ids
    ours = Tokenizer(tmp_path)
    assert [ours.special["<s>"], *ours.encode("hi")] == rendered == [0, 4]


@pytest.mark.parametrize("number", [1, 5])
def test_a_step_that_cannot_be_launched_is_a_failed_step_and_no_end_of_the_engine(
    make_engine: MakeEngine, number: int
) -> None:
    expected = _answer(make_engine())
    engine = make_engine()
    launch = engine._executor.launch
    launched = 0

    def with_little_memory(*given: Any) -> Any:
        nonlocal launched
        launched += 1
        if launched == number:
            raise MemoryError
        return launch(*given)

    engine._executor.launch = with_little_memory  # type: ignore[method-assign]
    if number == 1:
        assert _answer(engine) == expected  # the prompt in two halves
    else:
        with pytest.raises(StepFailed):  # one row cannot be made smaller
            _answer(engine)
        assert _answer(engine) == expected
    engine.check()


def test_a_fault_in_planning_ahead_is_no_end_of_the_engine(make_engine: MakeEngine) -> None:
    expected = _answer(make_engine())
    engine = make_engine()
    engine._scheduler.plan_ahead = _fail  # type: ignore[method-assign]
    assert _answer(engine) == expected
