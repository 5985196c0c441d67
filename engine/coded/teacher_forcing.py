"""A given text, computed as an engine does it, whatever the model would have said instead.

Every position predicts a next token; the text says which one comes. So two ways to hold KV can be
compared, position by position.
"""

from collections.abc import Sequence

import torch

from engine.coded.books import books_without_sharing
from engine.exact.refresh import Refresh
from engine.executor import Executor
from engine.kv.layout import PageLayout
from engine.kv.session import Session
from engine.step import Part, Step

ROWS = 128


class TeacherForcing:
    """One sequence with a pool of its own.

    Attributes:
        executor: computes.
        pool: holds its pages.
        session: the sequence.
    """

    def __init__(
        self, executor: Executor, layout: PageLayout, tokens: int, refreshes: bool = False
    ) -> None:
        """
        Args:
            executor: computes.
            layout: of the pages.
            tokens: that it can hold.
            refreshes: whether it can hold a refresh of them too.
        """
        frames = layout.pages(tokens) * (1 + refreshes) + 1
        self.pool = executor.make_pool(layout, frames)
        self.session = Session(owner="teacher")
        self.session.pages.take_row(0)
        self.executor = executor
        self._pages = books_without_sharing(self.pool)
        self._cache = self._pages.cache
        self._cache.add(self.session)

    @property
    def coded_pages(self) -> list[int]:
        """Pages that are coded."""
        return [page for page in self.session.pages if page >= self.pool.frames]

    @property
    def approximate_tokens(self) -> int:
        """How many were computed from coded KV."""
        return self._cache.approximate_tokens(self.session)

    def read(self, tokens: Sequence[int]) -> torch.Tensor:
        """Compute the next tokens in one step.

        Returns:
            Logits [tokens, vocabulary].
        """
        session = self.session
        session.tokens += tokens
        self._cache.reserve(session, len(session.tokens))
        part = Part(session, session.kv_tokens, len(tokens), all_logits=True)
        step = Step.of([part], self.pool.page_size)
        logits = self.executor.launch(step, self.pool).logits()
        self._cache.advance(session, len(tokens))
        return logits

    def refresh(self) -> None:
        """Compute all of it again exactly."""
        shadow = Session(self.session.owner, tokens=list(self.session.tokens), shadow=True)
        self._cache.add(shadow)
        self._pages.reserve(shadow, politely=True)
        tokens, pages = shadow.tokens, list(shadow.pages)

        def compute() -> None:
            refresh = Refresh(self.executor, self.pool, tokens, pages, shadow.static_tokens)
            while not refresh.computed:
                refresh.run(len(tokens))

        self.executor.call(compute)
        self._pages.hand_over(self.session, shadow)


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
