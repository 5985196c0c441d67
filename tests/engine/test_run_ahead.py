"""Steps that are launched before the one before has landed: what they knew nothing of does no harm.

The tiny model in float64 makes answers exact, so that any difference shows.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from engine import Engine, Sampling
from engine.errors import StepFailed
from engine.kv.pool import PagePool
from engine.step import KNOWN, Ints, Step
from tests.engine.driving import MakeEngine, Recorder

PROMPTS = [[5 + n] * (20 + 9 * n) for n in range(4)]


@pytest.fixture
def make_exact(make_engine: MakeEngine) -> MakeEngine:
    return lambda **settings: make_engine(dtype="float64", **settings)


def _wait_for_each(engine: Engine) -> None:
    """No step is launched ahead any more."""
    engine._scheduler.plan_ahead = lambda plan: []  # type: ignore[method-assign]


def _answers(engine: Engine, **sampling: Any) -> list[tuple[int, ...]]:
    settings = Sampling(**({"max_tokens": 30} | sampling))
    going = [
        engine.generate(engine.open(prompt, owner=str(i)), (), settings)
        for i, prompt in enumerate(PROMPTS)
    ]
    return [generation.result(60).tokens for generation in going]


class Launched:
    """Notes how many rows of each step had tokens that were not known when it was launched."""

    def __init__(self, engine: Engine) -> None:
        self.unknown: list[int] = []
        self._forward = engine._executor.forward
        engine._executor.forward = self  # type: ignore[method-assign,assignment]

    def __call__(self, step: Step, tokens: Ints, pool: PagePool) -> torch.Tensor:
        self.unknown.append(int((step.sources != KNOWN).sum()))
        return self._forward(step, tokens, pool)


@pytest.mark.parametrize(
    "sampling",
    [
        {}, {"temperature": 1.0, "seed": 3}, {"repetition_penalty": 1.3},
        {"temperature": 0.9, "seed": 4, "repetition_penalty": 1.2, "top_p": 0.9},
    ],
)  # fmt: skip
def test_answers_are_those_of_steps_one_after_the_other(
    sampling: dict[str, Any], make_exact: MakeEngine
) -> None:
    engine, patient = make_exact(), make_exact()
    _wait_for_each(patient)
    launched = Launched(engine)
    assert _answers(engine, **sampling) == _answers(patient, **sampling)
    assert sum(launched.unknown) > 60, "steps were meant to be launched ahead"


def test_an_answer_that_stops_keeps_nothing_of_the_step_that_went_on(
    make_exact: MakeEngine,
) -> None:
    engine = make_exact()
    (expected, *_) = _answers(engine)
    stop = expected[len(expected) // 2]
    length = expected.index(stop) + 1
    stopping = make_exact()
    stopping._loop._stop_tokens = frozenset({stop})
    launched = Launched(stopping)
    session = stopping.open(PROMPTS[0])
    result = stopping.generate(session, (), Sampling(max_tokens=30)).result(60)
    assert (result.tokens, result.finish_reason) == (expected[:length], "stop")
    assert launched.unknown[-1] == 1, "a step was meant to go on when the answer stopped"
    assert session.kv_tokens == len(session.tokens) - 1
    assert len(session.pages) == -(-session.kv_tokens // 16)
    # Its pages go to others, who find nothing of it.
    stopping.close(session, forget=True)
    stopping._loop._stop_tokens = frozenset()
    assert _answers(stopping) == _answers(engine)


def _breaking(engine: Engine, step_number: int, fault: Callable[[], torch.Tensor]) -> None:
    """Have one step of an engine go wrong, while the next is launched already."""
    executor, forward, launch = engine._executor, engine._executor.forward, engine._executor.launch
    launched_ahead = threading.Event()
    seen = 0

    def launching(step: Step, pool: PagePool) -> Any:
        if (step.sources != KNOWN).any() and seen >= step_number:
            launched_ahead.set()
        return launch(step, pool)

    def computing(step: Step, tokens: Ints, pool: PagePool) -> torch.Tensor:
        nonlocal seen
        seen += 1
        if seen == step_number:
            assert launched_ahead.wait(30)
            return fault()
        return forward(step, tokens, pool)

    executor.launch = launching  # type: ignore[method-assign]
    executor.forward = computing  # type: ignore[method-assign]


SEEDED = {"temperature": 1.0, "seed": 3}


@pytest.mark.parametrize("sampling", [{}, SEEDED, {"repetition_penalty": 2.0}])
def test_a_step_that_fails_once_is_made_up_for(
    sampling: dict[str, Any], make_exact: MakeEngine
) -> None:
    """No random number is lost with it, and no token from what is penalised."""
    expected = _answers(make_exact(), **sampling)

    def fault() -> torch.Tensor:
        raise RuntimeError("injected fault")

    engine = make_exact()
    _breaking(engine, 12, fault)
    assert _answers(engine, **sampling) == expected
    engine.check()


def test_a_seeded_answer_is_the_same_where_memory_ran_out(make_exact: MakeEngine) -> None:
    expected = _answers(make_exact(), **SEEDED)
    engine = make_exact()
    forward = engine._executor.forward

    def with_little_memory(step: Step, tokens: Ints, pool: PagePool) -> torch.Tensor:
        if step.rows > 20:
            raise MemoryError
        return forward(step, tokens, pool)

    engine._executor.forward = with_little_memory  # type: ignore[method-assign]
    assert _answers(engine, **SEEDED) == expected


def test_logits_that_are_not_finite_end_one_answer_and_not_the_others(
    make_exact: MakeEngine,
) -> None:
    expected = _answers(make_exact())
    engine = make_exact()
    executor, forward = engine._executor, engine._executor.forward
    seen = 0

    def broken(step: Step, tokens: Ints, pool: PagePool) -> torch.Tensor:
        nonlocal seen
        logits = forward(step, tokens, pool)
        if len(step.draws) == len(PROMPTS):
            seen += 1
            if seen == 5:
                logits = logits.clone()
                logits[1] = float("nan")
        return logits

    executor.forward = broken  # type: ignore[method-assign]
    going = [
        engine.generate(engine.open(p, owner=str(i)), (), Sampling(max_tokens=30))
        for i, p in enumerate(PROMPTS)
    ]
    with pytest.raises(StepFailed, match="not finite"):
        going[1].result(60)
    others = [going[i].result(60).tokens for i in (0, 2, 3)]
    assert others == [expected[i] for i in (0, 2, 3)]
    assert seen >= 5


def test_a_request_that_comes_waits_for_no_more_than_two_steps(make_exact: MakeEngine) -> None:
    engine = make_exact()
    recorder = Recorder(engine)
    running = engine.generate(engine.open([5] * 20), (), Sampling(max_tokens=500))
    for _ in zip(range(3), running, strict=False):
        pass
    recorder.gate = threading.Event()
    newcomer = engine.open([9] * 40, owner="newcomer")
    generation = engine.generate(newcomer, (), Sampling(max_tokens=1))
    before = len(recorder.steps)
    recorder.gate.set()
    generation.result(60)
    first = next(i for i, step in enumerate(recorder.steps) if newcomer in dict(step))
    assert first - before <= 3
    running.cancel()


def test_a_waiting_request_is_cancelled_within_a_step_though_steps_run_ahead(
    make_exact: MakeEngine,
) -> None:
    engine = make_exact(max_sessions=1)
    running = engine.generate(engine.open([5] * 20), (), Sampling(max_tokens=1500))
    next(iter(running))
    waiting = engine.generate(engine.open([6] * 20), (), Sampling(max_tokens=5))
    waiting.cancel()
    assert waiting.result(10).finish_reason == "cancelled"
    assert not running.done
    running.cancel()


def test_no_step_runs_ahead_of_a_page_that_will_be_coded(
    make_tiny: Callable[..., Any], make_engine: MakeEngine
) -> None:
    engine = make_engine(model=str(make_tiny(head_dim=32)), kv_dtype="int8", refresh_tokens=0)
    ahead: list[tuple[int, bool]] = []
    plan_ahead = engine._scheduler.plan_ahead

    def noting(plan: Any) -> Any:
        following = plan_ahead(plan)
        for chunk in plan:
            filled = (chunk.request.session.kv_tokens + chunk.tokens) % 16 == 0
            ahead.append((filled, bool(following)))
        return following

    engine._scheduler.plan_ahead = noting  # type: ignore[method-assign]
    engine.generate(engine.open([5] * 300), (), Sampling(max_tokens=60)).result(60)
    assert (True, True) not in ahead
    assert (False, True) in ahead
    assert (True, False) in ahead


@pytest.mark.parametrize("page_size", [16, 256])
def test_pages_are_coded_while_no_step_goes_on(
    page_size: int, make_tiny: Callable[..., Any], make_engine: MakeEngine
) -> None:
    """Large pages leave the window in the middle of another page."""
    engine = make_engine(
        model=str(make_tiny(head_dim=32)), kv_dtype="int8", refresh_tokens=0, page_size=page_size
    )
    launch, wait_for, encode = engine._executor.launch, engine._loop._wait_for, engine._pool.encode
    going = 0
    coded: list[int] = []

    def launching(step: Step, pool: PagePool) -> Any:
        nonlocal going
        going += 1
        return launch(step, pool)

    def waiting(flight: Any) -> Any:
        nonlocal going
        landed = wait_for(flight)
        going -= 1
        return landed

    def encoding(pages: Any) -> Any:
        coded.append(going)
        return encode(pages)

    engine._executor.launch = launching  # type: ignore[method-assign]
    engine._loop._wait_for = waiting  # type: ignore[method-assign]
    engine._pool.encode = encoding  # type: ignore[method-assign]
    engine.generate(engine.open([5] * 600), (), Sampling(max_tokens=180)).result(60)
    assert coded
    assert not any(coded)


def test_the_time_of_an_answer_ends_with_its_last_token(make_exact: MakeEngine) -> None:
    """A step that goes on when it stops is no part of it."""
    stop = _answers(make_exact())[0][1]
    engine = make_exact()
    engine._loop._stop_tokens = frozenset({stop})
    forward = engine._executor.forward
    seen = 0

    def slow_at_the_end(step: Step, tokens: Ints, pool: PagePool) -> torch.Tensor:
        nonlocal seen
        seen += bool((step.sources != KNOWN).any())
        if seen == 2:
            time.sleep(1)
        return forward(step, tokens, pool)

    engine._executor.forward = slow_at_the_end  # type: ignore[method-assign]
    result = engine.generate(engine.open(PROMPTS[0]), (), Sampling(max_tokens=30)).result(60)
    assert (len(result.tokens), seen) == (2, 2)
    stats = result.stats
    assert stats.decode_s < 0.7
    assert stats.total_s == pytest.approx(stats.ttft_s + stats.decode_s)
