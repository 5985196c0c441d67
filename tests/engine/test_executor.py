"""Steps as values, and what computes them."""

import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch

from engine import Engine, Sampling, Session
from engine.errors import EngineStopped, PoolTooSmall
from engine.native import build
from engine.sampling import Draw
from engine.step import KNOWN, Part, Step

MakeEngine = Callable[..., Engine]


def _session(tokens: list[int], pages: list[int], row: int) -> Session:
    session = Session("me", tokens=tokens)
    session.pages.extend(pages)
    session.pages.take_row(row)
    return session


def test_a_step_lays_sequences_one_after_the_other() -> None:
    one, two = _session([5, 6, 7, 8, 9, 10], [3, 1], 2), _session([20], [7], 0)
    greedy = Draw(Sampling())
    step = Step.of([Part(one, 2, 4, greedy), Part(two, 1, 1, greedy, source=0)], 4)
    assert step.tokens.tolist() == [7, 8, 9, 10, 0]
    assert step.sources.tolist() == [KNOWN] * 4 + [0]
    assert step.positions.tolist() == [2, 3, 4, 5, 1]
    assert step.slots.tolist() == [14, 15, 4, 5, 29]
    assert step.starts.tolist() == [0, 4, 5]
    assert step.contexts.tolist() == [6, 2]
    assert step.table_rows.tolist() == [2, 0]
    assert step.logit_rows.tolist() == [3, 4]
    assert step.draws == (greedy, greedy)
    assert step.changes == ((2, 0, [3, 1]), (0, 0, [7]))
    arrays = [value for value in vars(step).values() if isinstance(value, np.ndarray)]
    assert len(arrays) == 8
    assert all(array.dtype == np.int32 for array in arrays)
    assert not Step.of([Part(one, 5, 1)], 4).changes  # told already


def test_a_chunk_in_the_middle_of_a_prompt_wants_no_logits() -> None:
    step = Step.of([Part(_session([5, 6, 7], [0], 0), 0, 2)], 4)
    assert not len(step.logit_rows)
    assert not step.draws


BACKENDS = [
    "torch",
    pytest.param(
        "native", marks=pytest.mark.skipif(not build.variants(), reason="no native kernels here")
    ),
]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_workspace_of_a_step_is_measured(backend: str, make_engine: MakeEngine) -> None:
    engine = make_engine(backend=backend, dtype="auto")
    executor, config = engine._executor, engine._executor.config
    # Larger than what the engine asked for at its start: native buffers never shrink.
    small, large = executor.profile(4096), executor.profile(16384)
    # A row's hidden state, and gate and up side by side, are there at once at least.
    least = (config.hidden + config.intermediate) * executor.dtype.itemsize
    assert small >= 4096 * least
    assert 3 * small <= large <= 5 * small
    assert engine.generate(engine.open([5] * 40), (), Sampling(max_tokens=3)).result(60).tokens


def test_a_step_is_computed_without_logits_where_none_are_wanted(make_engine: MakeEngine) -> None:
    for backend in ("torch", "auto"):
        engine = make_engine(backend=backend, dtype="auto")
        session = engine.open([5] * 40)
        engine._cache.reserve(session, 40)
        session.pages.take_row(0)
        pending = engine._executor.launch(Step.of([Part(session, 0, 40)], 16), engine._pool)
        assert pending.tokens() == []
        assert pending.logits().shape[0] == 0


def test_a_step_that_goes_on_from_one_that_failed_fails_too(make_engine: MakeEngine) -> None:
    engine = make_engine()
    executor, forward = engine._executor, engine._executor.forward
    session = engine.open([5] * 20)
    engine._cache.reserve(session, 40)
    session.pages.take_row(0)
    greedy = Draw(Sampling())

    def fail(*_: object) -> torch.Tensor:
        executor.forward = forward  # type: ignore[method-assign]
        raise RuntimeError("injected fault")

    executor.forward = fail  # type: ignore[method-assign]
    first = executor.launch(Step.of([Part(session, 0, 20, greedy)], 16), engine._pool)
    ahead = executor.launch(Step.of([Part(session, 20, 1, greedy, source=0)], 16), engine._pool)
    with pytest.raises(RuntimeError, match="injected fault"):
        first.tokens()
    with pytest.raises(RuntimeError, match="the step before failed"):
        ahead.tokens()
    session.pages.forget_told()
    again = executor.launch(Step.of([Part(session, 0, 20, greedy)], 16), engine._pool)
    assert len(again.tokens()) == 1


def test_an_executor_that_was_shut_down_takes_no_more(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.shutdown()
    with pytest.raises(EngineStopped):
        engine._executor.call(lambda: None)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_engine_that_cannot_be_loaded_leaves_no_thread(
    backend: str, make_engine: MakeEngine
) -> None:
    before = set(threading.enumerate())
    dtype = "bfloat16" if backend == "native" else "float32"
    with pytest.raises(PoolTooSmall):
        make_engine(backend=backend, dtype=dtype, kv_memory="2048")
    assert set(threading.enumerate()) <= before
