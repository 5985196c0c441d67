"""A given text, computed token by token as an engine does it, and compared with another's.

Every position predicts a next token; the text says which one comes, whatever was predicted.
"""

from collections.abc import Sequence

import torch

from engine.backend import Model
from engine.kv.cache import KVCache
from engine.kv.layout import PageLayout
from engine.kv.session import Session
from engine.refresh import Refresh
from engine.runner import Runner

ROWS = 128


class Reading:
    """One sequence with a pool of its own.

    Attributes:
        model: computes.
        pool: holds its pages.
        session: the sequence.
    """

    def __init__(
        self, model: Model, layout: PageLayout, tokens: int, refreshes: bool = False
    ) -> None:
        """
        Args:
            model: computes.
            layout: of the pages.
            tokens: that it can hold.
            refreshes: whether it can hold a refresh of them too.
        """
        frames = layout.pages(tokens) * (1 + refreshes) + 1
        self.pool = model.make_pool(layout, frames)
        self.session = Session(owner="reading")
        self.model = model
        self._cache = KVCache(layout, frames, self.pool, caching=False)
        self._cache.add(self.session)
        self._runner = Runner(model, self.pool)

    @property
    def coded_pages(self) -> list[int]:
        return [page for page in self.session.pages if self.pool.is_coded(page)]

    @property
    def approximate_tokens(self) -> int:
        """How many were computed from coded KV."""
        return self._cache.approximate_tokens(self.session)

    def read(self, tokens: Sequence[int]) -> torch.Tensor:
        """Compute the next tokens in one step.

        Returns:
            Logits [tokens, vocabulary].
        """
        self.session.tokens += tokens
        self._cache.reserve(self.session, len(self.session.tokens))
        logits = self._runner.run([(self.session, len(tokens))], all_logits=True)
        self._cache.advance(self.session, len(tokens))
        return logits

    def refresh(self) -> None:
        """Compute all of it again exactly."""
        refresh = Refresh(self.model, self.pool, self.session, idle=False)
        self._cache.add(refresh.shadow)
        self._cache.reserve_exact(refresh.shadow, at_all_costs=False)
        while not refresh.computed:
            refresh.step(len(self.session.tokens))
        refresh.shadow.running = False
        self._cache.advance(refresh.shadow, refresh.shadow.pending_tokens, exact=True)
        self._cache.replace(self.session, refresh.shadow)
        refresh.end()


def divergences(reference: torch.Tensor, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """KL(reference || other) of every position, and whether the likeliest token is the same.

    Float32 does: its rounding adds some 1e-6, where two ways through bfloat16 differ by 1e-3.

    Args:
        reference: logarithms of probabilities, [positions, vocabulary].
        logits: the other's, [positions, vocabulary].
    """
    kl, same = [], []
    for start in range(0, len(logits), ROWS):
        p = reference[start : start + ROWS]
        q = torch.log_softmax(logits[start : start + ROWS], dim=-1)
        kl.append((p.exp() * (p - q)).sum(-1))
        same.append(p.argmax(-1) == q.argmax(-1))
    return torch.cat(kl), torch.cat(same)
