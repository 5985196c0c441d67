"""From logits to a token."""

import math
from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch

from engine import Sampling, Session
from engine.errors import SettingError
from engine.request import Request
from engine.sampler import NO_TOKEN, choose, choose_one, pick
from engine.sampling import Draw

LOGITS = np.array([1.0, 3.0, 2.0, -1.0, 2.9], dtype=np.float32)


class Answer:
    """A request of which only what chooses its tokens is looked at."""

    def __init__(self, sampling: Sampling) -> None:
        nothing: Any = None
        self._places = count()
        self.request = Request(
            Session("me"), sampling, nothing, nothing, 0, device_bytes_before=0, max_tokens=9
        )

    def choose(self, logits: np.ndarray = LOGITS, answer: Sequence[int] = ()) -> int:
        self.request.answer[:] = answer
        return choose_one(logits, self.request.draw(ahead=next(self._places)))


def _drawn(sampling: Sampling, logits: np.ndarray = LOGITS, times: int = 300) -> set[int]:
    answer = Answer(sampling)
    return {answer.choose(logits) for _ in range(times)}


def test_temperature_zero_takes_the_likeliest() -> None:
    assert _drawn(Sampling(temperature=0.0, top_k=3)) == {1}


def test_top_k_keeps_the_k_likeliest() -> None:
    assert _drawn(Sampling(temperature=2.0, top_k=2, seed=1)) == {1, 4}


def test_top_p_keeps_the_smallest_set_with_that_probability() -> None:
    probabilities = torch.softmax(torch.from_numpy(LOGITS), -1)
    two = float(probabilities[1] + probabilities[4])
    assert _drawn(Sampling(temperature=1.0, top_p=two - 0.01, seed=2)) == {1, 4}
    assert _drawn(Sampling(temperature=1.0, top_p=two + 0.01, seed=2)) == {1, 2, 4}
    assert _drawn(Sampling(temperature=1.0, top_p=1e-9, seed=2)) == {1}


def test_min_p_drops_what_is_far_below_the_likeliest() -> None:
    share = math.exp(-1.0)  # token 2 has this share of token 1's probability
    assert _drawn(Sampling(temperature=1.0, min_p=share - 0.01, seed=3)) == {1, 2, 4}
    assert _drawn(Sampling(temperature=1.0, min_p=share + 0.01, seed=3)) == {1, 4}


def test_frequencies_follow_the_probabilities() -> None:
    answer = Answer(Sampling(temperature=1.0, seed=4))
    draws = torch.tensor([answer.choose(LOGITS, []) for _ in range(4000)])
    seen = torch.bincount(draws, minlength=5) / 4000
    assert torch.allclose(seen, torch.softmax(torch.from_numpy(LOGITS), -1), atol=0.03)


def test_repetition_penalty_weakens_tokens_of_the_answer() -> None:
    answer = Answer(Sampling(repetition_penalty=2.0))
    assert answer.choose(LOGITS, []) == 1
    assert answer.choose(LOGITS, [1]) == 4
    negative = np.array([-1.0, -1.5], dtype=np.float32)
    assert answer.choose(negative, [0]) == 1  # a negative logit is pushed down, not up


def test_the_same_seed_gives_the_same_tokens() -> None:
    first, second = (Answer(Sampling(temperature=1.5, seed=9)) for _ in range(2))
    assert [first.choose(LOGITS, []) for _ in range(50)] == [
        second.choose(LOGITS, []) for _ in range(50)
    ]


def sorted_whole(weights: np.ndarray, drawn: float, s: Sampling) -> int:
    """The token that a sort of the whole vocabulary gives."""
    order = np.argsort(-weights, kind="stable")
    ranked = weights[order].astype(np.float64)
    kept = np.arange(len(ranked)) < (s.top_k or len(ranked))
    kept &= ranked >= s.min_p
    mass = float(ranked[kept].sum())
    before = np.concatenate([[0.0], ranked.cumsum()[:-1]])
    kept &= before < s.top_p * mass
    reached = ranked[kept].cumsum()
    place = int(np.searchsorted(reached, drawn * reached[-1], side="right"))
    return int(order[min(place, len(reached) - 1)])


@pytest.mark.parametrize(
    "setting",
    [
        {}, {"top_p": 0.9}, {"top_p": 0.999999}, {"top_k": 40}, {"top_k": 5000, "top_p": 0.8},
        {"min_p": 0.05}, {"min_p": 0.003, "top_p": 0.95, "top_k": 100}, {"top_p": 1e-6},
        {"min_p": 0.2, "top_k": 1},
    ],
)  # fmt: skip
@pytest.mark.parametrize("temperature", [0.3, 1.0, 3.0, 50.0])
def test_the_token_is_the_one_that_sorting_all_of_a_large_vocabulary_gives(
    setting: dict[str, float], temperature: float
) -> None:
    sampling = Sampling(temperature=temperature, **setting)  # type: ignore[arg-type]
    random = np.random.default_rng(round(temperature * 10))
    for spread in (0.5, 3.0, 8.0):
        logits = (random.standard_normal(20_000) * spread).round(1)  # with many equals
        weights = np.exp((logits - logits.max()) / temperature).astype(np.float32)
        for drawn in (0.0, *random.random(20), 1 - 1e-12):
            found = pick(weights, Draw(sampling, drawn))
            assert found == sorted_whole(weights, drawn, sampling), (spread, drawn)


def test_logits_that_are_not_finite_give_no_token() -> None:
    broken = np.array([1.0, float("nan")], dtype=np.float32)
    for sampling in (Sampling(), Sampling(temperature=1), Sampling(repetition_penalty=1.1)):
        assert Answer(sampling).choose(broken, []) == NO_TOKEN
    both = np.stack((broken, [1.0, 2.0]))
    assert choose(both, [Draw(Sampling())] * 2, [NO_TOKEN] * 2) == [NO_TOKEN, 1]


def test_a_token_that_is_drawn_while_the_next_is_planned_is_penalised_too() -> None:
    draw = Answer(Sampling(repetition_penalty=2.0)).request.draw()
    assert choose(LOGITS[None], [draw], [NO_TOKEN]) == [1]
    assert choose(LOGITS[None], [draw], [1]) == [4]


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1.0}, {"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.1}, {"min_p": 1.0},
        {"repetition_penalty": 0.0}, {"seed": -1}, {"max_tokens": -1}, {"stop": ("",)},
        {"temperature": float("nan")}, {"repetition_penalty": float("inf")},
    ],
)  # fmt: skip
def test_values_out_of_range_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SettingError):
        Sampling(**wrong)  # type: ignore[arg-type]
