"""From a row of logits to a token, on the CPU."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.sampling import Draw

NO_TOKEN = -1
"""In a token's place where the logits are not finite."""

# Shares of the likeliest token's probability: what is sorted first, and then if need be.
_BOUNDS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-6)

Logits = NDArray[np.floating[Any]]


def choose(logits: Logits, draws: Sequence[Draw], latest: Sequence[int]) -> list[int]:
    """The token of each row, or `NO_TOKEN`.

    Args:
        logits: [rows, vocabulary].
        draws: one a row.
        latest: for each row a token that the draw has not seen yet, or `NO_TOKEN`.
    """
    if all(draw.sampling.is_greedy and draw.sampling.repetition_penalty == 1.0 for draw in draws):
        tokens = logits.argmax(axis=1)  # a NaN counts as the largest
        finite = np.isfinite(logits[np.arange(len(logits)), tokens])
        return [int(token) for token in np.where(finite, tokens, NO_TOKEN)]
    return [choose_one(*each) for each in zip(logits, draws, latest, strict=True)]


def choose_one(logits: Logits, draw: Draw, latest: int = NO_TOKEN) -> int:
    """The token of one row [vocabulary]; see `choose`."""
    sampling = draw.sampling
    if sampling.repetition_penalty != 1.0:
        logits = _penalised(logits, draw.seen | {latest} - {NO_TOKEN}, sampling.repetition_penalty)
    best = int(logits.argmax())
    if not math.isfinite(logits[best]):
        return NO_TOKEN
    if sampling.is_greedy:
        return best
    # Shifted first: a small temperature must not divide its way to infinity.
    return pick(np.exp((logits - logits[best]) / logits.dtype.type(sampling.temperature)), draw)


def pick(weights: Logits, draw: Draw) -> int:
    """The token at the share that was drawn of the mass that is kept, likeliest tokens first.

    top_k, min_p and top_p each keep a beginning of the ranking, so only tokens that may be in
    it are sorted: those above a bound that is lowered until the answer is certain. The token is
    the one that sorting the whole vocabulary would give.

    Args:
        weights: [vocabulary], in proportion to the probabilities, the largest is 1.
        draw: how.
    """
    s, share = draw.sampling, draw.share
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
        elif not has_all and reached[-1] <= share * mass:
            continue
        place = int(np.searchsorted(reached, share * mass, side="right"))
        return int(tokens[order[min(place, len(reached) - 1)]])
    raise AssertionError("the last bound has all that is kept")


def _penalised(logits: Logits, seen: frozenset[int], penalty: float) -> Logits:
    logits, tokens = logits.copy(), np.array(sorted(seen), dtype=np.int64)
    values = logits[tokens]
    logits[tokens] = np.where(values > 0, values / penalty, values * penalty)
    return logits
