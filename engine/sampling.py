"""From a row of logits to a token."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engine.errors import SettingError

_GREEDY_BELOW = 1e-5


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen and when an answer ends.

    Attributes:
        temperature: 0 (and anything below 1e-5) is greedy.
        top_k: keep the k likeliest; 0 keeps all.
        top_p: nucleus sampling (Holtzman et al., 2020): the smallest set with this probability.
        min_p: keep tokens with at least this share of the likeliest one's probability.
        repetition_penalty: CTRL's penalty (Keskar et al., 2019), over the tokens of this answer
            only. Penalising the prompt too would punish quoting the passages it was given.
        seed: makes sampling repeatable; None draws one.
        max_tokens: ends the answer with "length". 0 computes the prompt's KV and samples nothing.
        stop: strings that end the answer and are not shown.

    Raises:
        SettingError: on construction, for a value out of range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    max_tokens: int = 512
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        checks = (
            (0 <= self.temperature <= 100, "temperature must lie between 0 and 100"),
            (self.top_k >= 0, "top_k must be 0 (off) or more"),
            (0 < self.top_p <= 1, "top_p must lie in 0 < p <= 1"),
            (0 <= self.min_p < 1, "min_p must lie in 0 <= p < 1"),
            (self.repetition_penalty > 0, "repetition_penalty must be positive"),
            (self.max_tokens >= 0, "max_tokens must be 0 or more"),
            (self.seed is None or 0 <= self.seed < 2**63, "seed must lie between 0 and 2**63 - 1"),
            (not isinstance(self.stop, str), "stop is a tuple of strings, not one string"),
            (all(self.stop), "a stop string must not be empty"),
        )
        for holds, sentence in checks:
            if not holds:
                raise SettingError(f"{sentence}.")


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
        best = int(logits.argmax())
        # A NaN counts as the largest, so one look is enough for all.
        if not math.isfinite(float(logits[best])):
            raise ValueError("the logits are not finite")
        if s.temperature < _GREEDY_BELOW:
            return best
        # Shifted first: a small temperature must not divide its way to infinity.
        probabilities = torch.softmax((logits - logits[best]) / s.temperature, dim=-1)
        return self._draw(probabilities)

    def _draw(self, probabilities: torch.Tensor) -> int:
        s = self.sampling
        ranked, tokens = probabilities.sort(descending=True, stable=True)
        if s.top_k:
            ranked = ranked[: s.top_k]
        if s.min_p:
            ranked = ranked[ranked >= s.min_p * ranked[0]]
        if s.top_p < 1:
            # Kept while the mass before a token is short of top_p: the first is always kept.
            before = ranked.cumsum(0) - ranked
            ranked = ranked[before < s.top_p * ranked.sum()]
        drawn = torch.multinomial(ranked, 1, generator=self._generator)
        return int(tokens[int(drawn)])
