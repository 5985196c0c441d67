"""The least time that a turn can take: counted operations and bytes at rates measured here."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from engine.model_config import ModelConfig


@dataclass(frozen=True)
class Rates:
    """What the machine reaches, in the best of several tries.

    Attributes:
        gemm_flops_per_s: of bfloat16 matrix products of a prefill's shape.
        copy_bytes_per_s: read and written, of a copy far larger than the caches.
    """

    gemm_flops_per_s: float
    copy_bytes_per_s: float

    @staticmethod
    def measure(hidden: int, intermediate: int, seconds: float = 1.0) -> "Rates":
        """Measure both, each for about `seconds`."""
        rows, columns = 512, 2 * intermediate
        x = torch.randn(rows, hidden, dtype=torch.bfloat16)
        weight = torch.randn(columns, hidden, dtype=torch.bfloat16)
        source = torch.zeros(2**26, dtype=torch.float32)
        target = torch.empty_like(source)
        gemm_s = _quickest(lambda: torch.nn.functional.linear(x, weight), seconds)
        copy_s = _quickest(lambda: target.copy_(source), seconds)
        return Rates(2.0 * rows * hidden * columns / gemm_s, 2.0 * source.nbytes / copy_s)


def _quickest(call: Callable[[], object], seconds: float) -> float:
    call()
    quickest, until = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < until:
        started = time.perf_counter()
        call()
        quickest = min(quickest, time.perf_counter() - started)
    return quickest


@dataclass(frozen=True)
class Bound:
    """Lower bounds for one model on one machine.

    A step computes some tokens after a context: every weight matrix once a token, attention over
    the keys that each sees, the head for the last one. It reads all weights once and the KV of the
    context once. It can't be quicker than either at the measured rate.

    Attributes:
        weights_bytes: as they lie in memory.
        kv_token_bytes: keys and values of one token.
    """

    model: ModelConfig
    rates: Rates
    weights_bytes: int
    kv_token_bytes: int

    def step_flops(self, context: int, new: int) -> float:
        """Operations of `new` tokens after `context` ones, a multiplication and an addition two."""
        m = self.model
        queries, pairs = m.heads * m.head_dim, m.kv_heads * m.head_dim
        matrices = m.hidden * (2 * queries + 2 * pairs + 3 * m.intermediate)
        seen = new * context + new * (new + 1) / 2
        attention = 2 * queries * seen  # scores, and the same again for the values
        return 2.0 * (m.layers * (new * matrices + attention) + m.hidden * m.vocabulary)

    def step_s(self, context: int, new: int) -> float:
        """Least time of a step."""
        moved = self.weights_bytes + (context + new) * self.kv_token_bytes
        return max(
            self.step_flops(context, new) / self.rates.gemm_flops_per_s,
            moved / self.rates.copy_bytes_per_s,
        )

    def turn_s(self, cached: int, new: int, generated: int) -> tuple[float, float]:
        """Least time to the first token, and to the last, with the KV of `cached` tokens there."""
        first = self.step_s(cached, new)
        rest = sum(self.step_s(cached + new + done, 1) for done in range(generated - 1))
        return first, first + rest

    def without_kv_s(self, prompt: int, generated: int) -> tuple[float, float]:
        """The same where every token computes everything before it again."""
        steps = [self.step_s(0, prompt + done) for done in range(generated)]
        return steps[0], sum(steps)
