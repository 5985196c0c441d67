"""From a row of logits to a token."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from engine.sampling import Sampling

_GREEDY_BELOW = 1e-5
# Shares of the likeliest token's probability: what is sorted first, and then if need be.
_BOUNDS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-6)


class Sampler:
    """Chooses the tokens of one answer; holds its random state.

    Sampling runs on the CPU in float32 (float64 for float64 logits), so that a seed means the same
    on every device.
    """

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling
        self._generator = torch.Generator(device="cpu")
        if sampling.seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(sampling.seed)

    def choose(self, logits: torch.Tensor, answer: Sequence[int]) -> int:
        """Choose the next token.

        Args:
            logits: [vocabulary].
            answer: the tokens of this answer so far.

        Raises:
            ValueError: the largest is not finite, or one is a NaN.
        """
        s = self.sampling
        logits = logits.detach().to("cpu")
        logits = logits if logits.dtype == torch.float64 else logits.float()
        if s.repetition_penalty != 1.0 and answer:
            seen = torch.tensor(sorted(set(answer)), device="cpu")
            values = logits[seen]
            logits = logits.clone()
            logits[seen] = torch.where(
                values > 0, values / s.repetition_penalty, values * s.repetition_penalty
            )
        if s.temperature < _GREEDY_BELOW:
            best = int(logits.argmax())  # a NaN counts as the largest
            _check(float(logits[best]))
            return best
        largest = float(logits.max())
        _check(largest)
        # Shifted first: a small temperature must not divide its way to infinity.
        weights = ((logits - largest) / s.temperature).exp().numpy()
        drawn = torch.rand(1, dtype=torch.float64, device="cpu", generator=self._generator)
        return self._pick(weights, float(drawn))

    def _pick(self, weights: NDArray[np.floating[Any]], drawn: float) -> int:
        """The token at the share `drawn` of the mass that is kept, likeliest tokens first.

        top_k, min_p and top_p each keep a beginning of the ranking, so only tokens that may be in
        it are sorted: those above a bound that is lowered until the answer is certain. The token is
        the one that sorting the whole vocabulary would give.

        Args:
            weights: [vocabulary], in proportion to the probabilities, the largest is 1.
            drawn: from 0 to below 1.
        """
        s = self.sampling
        limit = s.top_k or len(weights)
        everything = float(weights.sum(dtype=np.float64))
        for bound in (*(b for b in _BOUNDS if b > s.min_p), s.min_p):
            tokens = np.flatnonzero(weights >= bound)
            has_all = bound == s.min_p or len(tokens) >= limit
            of_all = not (s.top_k or s.min_p)  # the mass that top_p is a share of is known before
            if not has_all and not of_all:
                continue
            ranked = weights[tokens]
            order = np.argsort(-ranked, kind="stable")[:limit]
            reached = ranked[order].cumsum(dtype=np.float64)
            mass = everything if of_all else float(reached[-1])
            if s.top_p < 1:
                if not has_all and reached[-1] < s.top_p * mass:
                    continue
                # The first token that reaches top_p is kept, and none after it.
                kept = int(np.searchsorted(reached, s.top_p * mass)) + 1
                reached = reached[:kept]
                mass = float(reached[-1])
            elif not has_all and reached[-1] <= drawn * mass:
                continue
            place = int(np.searchsorted(reached, drawn * mass, side="right"))
            return int(tokens[order[min(place, len(reached) - 1)]])
        raise AssertionError("the last bound has all that is kept")


def _check(largest: float) -> None:
    if not math.isfinite(largest):
        raise ValueError("the logits are not finite")
