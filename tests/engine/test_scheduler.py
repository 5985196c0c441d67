"""The token budget of a step: plain arithmetic, with a made-up machine behind it."""

import pytest

from engine.scheduler import StepBudget


def _settle(budget: StepBudget, overhead_s: float, tokens_per_s: float, steps: int = 40) -> float:
    """Run full steps on a machine with these costs; returns what the last one takes."""
    seconds = 0.0
    for _ in range(steps):
        seconds = overhead_s + budget.tokens / tokens_per_s
        budget.record(budget.tokens, seconds)
    return seconds


@pytest.mark.parametrize("tokens_per_s", [200, 1_000, 3_000, 40_000])
def test_a_full_step_settles_near_its_target(tokens_per_s: float) -> None:
    seconds = _settle(StepBudget(0.15), overhead_s=0.02, tokens_per_s=tokens_per_s)
    assert 0.08 < seconds < 0.2


def test_a_slow_machine_keeps_the_smallest_budget() -> None:
    budget = StepBudget(0.15)
    _settle(budget, overhead_s=0.1, tokens_per_s=50)
    assert budget.tokens == 16


def test_one_disturbed_step_costs_little() -> None:
    budget = StepBudget(0.15)
    _settle(budget, overhead_s=0.02, tokens_per_s=2_000)
    before = budget.tokens
    budget.record(before, seconds=5.0)
    assert budget.tokens >= before // 2 - 16
    _settle(budget, overhead_s=0.02, tokens_per_s=2_000, steps=3)
    assert budget.tokens > 0.8 * before


def test_steps_of_decodes_alone_do_not_move_it() -> None:
    budget = StepBudget(0.15)
    before = budget.tokens
    for _ in range(50):
        budget.record(8, seconds=0.02)
        budget.record(8, seconds=0.9)
    assert budget.tokens == before


def test_a_small_chunk_that_was_quick_does_not_raise_it() -> None:
    budget = StepBudget(0.15)
    _settle(budget, overhead_s=0.02, tokens_per_s=2_000)
    before = budget.tokens
    for _ in range(20):
        budget.record(20, seconds=0.01)
    assert budget.tokens == before
