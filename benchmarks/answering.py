"""An answer of the engine with the times at which its caller got it."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from engine import Engine, EngineStats, Sampling, Session

Step = tuple[float, int]
"""When text came, in seconds since the call, and how many tokens that was."""


class Answer(NamedTuple):
    """An answer of a wanted length.

    Attributes:
        tokens: ids generated.
        steps: in order; a token that completes no character counts with the last.
        stats: of the request that computed the prompt.
    """

    tokens: tuple[int, ...]
    steps: list[Step]
    stats: EngineStats


def answer(
    engine: Engine, session: Session, new_tokens: Sequence[int], generated_tokens: int
) -> Answer:
    """Ask, greedily. Where the model ends its answer early, it is asked to go on at once."""
    started = time.perf_counter()
    times: list[float] = []
    tokens: tuple[int, ...] = ()
    first: EngineStats | None = None
    while len(tokens) < generated_tokens:
        sampling = Sampling(max_tokens=generated_tokens - len(tokens))
        generation = engine.generate(session, () if first else new_tokens, sampling)
        times += [time.perf_counter() - started for _ in generation]
        result = generation.result()
        first = first or result.stats
        tokens += result.tokens
        if not result.tokens:
            raise RuntimeError("the engine generated nothing: its context is full")
    if first is None or not times:
        raise RuntimeError("the engine gave no text")
    steps = [(at, 1) for at in times]
    steps[-1] = (time.perf_counter() - started, 1 + len(tokens) - len(times))
    return Answer(tokens, steps, first)
