"""How the tokens of an answer are chosen, as a caller asks for it. Without PyTorch."""

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from engine.errors import SettingError

GREEDY_BELOW = 1e-5


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
        seed: makes the draws repeatable: equal logits give equal tokens. Logits are equal to the
            last bit where the prompt was computed in the same chunks beside the same requests.
            Chunks follow the clock, so now and then a seeded answer differs. None draws a seed.
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
        for name, holds, wanted in (
            ("temperature", 0 <= self.temperature <= 100, "from 0 to 100"),
            ("top_k", self.top_k >= 0, "0 (off) or more"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("min_p", 0 <= self.min_p < 1, "from 0 to below 1"),
            ("repetition_penalty", 0 < self.repetition_penalty < inf, "above 0 (1 is none)"),
            ("max_tokens", self.max_tokens >= 0, "0 or more"),
            ("seed", self.seed is None or 0 <= self.seed < 2**63, "from 0 to 2**63 - 1"),
            ("stop", not isinstance(self.stop, str), "a tuple of strings"),
            ("stop", all(self.stop), "without empty strings"),
        ):
            if not holds:
                raise SettingError(f"{name} is {getattr(self, name)}, but must be {wanted}.")

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is taken, whatever is drawn."""
        return self.temperature < GREEDY_BELOW


class Draw(NamedTuple):
    """How one token is chosen: all that is decided before its logits are known.

    Attributes:
        sampling: the settings.
        share: from 0 to below 1: of the probability that is kept, likeliest tokens first, how much
            lies before the token. Where the settings are greedy, nobody reads it.
        seen: tokens that the repetition penalty is for.
    """

    sampling: Sampling
    share: float = 0.0
    seen: frozenset[int] = frozenset()
