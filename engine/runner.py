"""One step: planned work -> batch -> logits."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from engine.attention.batch import Batch, Span
from engine.backend import Model
from engine.kv.pool import PagePool
from engine.kv.session import Session


class _Rows(NamedTuple):
    """Tokens of one sequence that go into a batch, the first at position `start`."""

    tokens: list[int]
    start: int
    pages: list[int]
    logit_rows: Sequence[int]


class Runner:
    """Builds the ragged batch of a step and runs the model on it."""

    def __init__(self, model: Model, pool: PagePool) -> None:
        self._model = model
        self._pool = pool

    def run(self, parts: Sequence[tuple[Session, int]], all_logits: bool = False) -> torch.Tensor:
        """Compute KV for the next tokens of some sessions.

        Args:
            parts: each a session and how many of its pending tokens to take; its table covers them.
            all_logits: logits for every row instead of each session's last (for comparisons).

        Returns:
            [sessions, vocabulary], or [rows, vocabulary] with `all_logits`. `kv_tokens` of the
            sessions is the caller's to advance.
        """
        rows = []
        for session, count in parts:
            start = session.kv_tokens
            wanted = range(count) if all_logits else [count - 1]
            tokens = session.tokens[start : start + count]
            rows.append(_Rows(tokens, start, session.pages, wanted))
        return self._forward(rows)

    @torch.inference_mode()
    def _forward(self, sequences: Sequence[_Rows]) -> torch.Tensor:
        size = self._pool.page_size
        device = self._model.device
        tokens: list[int] = []
        positions: list[int] = []
        pages: list[int] = []
        logit_rows: list[int] = []
        spans: list[Span] = []
        for sequence in sequences:
            row, stop = len(tokens), sequence.start + len(sequence.tokens)
            tokens += sequence.tokens
            positions += range(sequence.start, stop)
            pages += [sequence.pages[p // size] for p in range(sequence.start, stop)]
            logit_rows += [row + wanted for wanted in sequence.logit_rows]
            table = torch.tensor(sequence.pages, device=device)
            spans.append(Span(row, len(tokens), table, context=stop))
        placed = torch.tensor(positions, device=device)
        batch = Batch(
            tokens=torch.tensor(tokens, device=device),
            positions=placed,
            pages=torch.tensor(pages, device=device),
            offsets=placed % size,
            spans=tuple(spans),
            logit_rows=torch.tensor(logit_rows, device=device),
        )
        return self._model.forward(batch, self._pool)
