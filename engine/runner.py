"""One step: planned work -> batch -> logits."""

from collections.abc import Sequence

import torch

from engine.attention.batch import Attention, Batch, Span
from engine.kv.pool import PagePool
from engine.kv.session import Session
from engine.model import Decoder


class Runner:
    """Builds the ragged batch of a step and runs the model on it."""

    def __init__(self, model: Decoder, pool: PagePool, attention: Attention) -> None:
        self._model = model
        self._pool = pool
        self._attention = attention

    @torch.inference_mode()
    def run(self, parts: Sequence[tuple[Session, int]], all_logits: bool = False) -> torch.Tensor:
        """Compute KV for the next tokens of some sessions.

        Args:
            parts: each a session and how many of its pending tokens to take; its table covers them.
            all_logits: logits for every row instead of each session's last (for comparisons).

        Returns:
            [sessions, vocabulary], or [rows, vocabulary] with `all_logits`. `kv_tokens` of the
            sessions is the caller's to advance.
        """
        return self._model.forward(self._batch(parts, all_logits), self._pool, self._attention)

    def _batch(self, parts: Sequence[tuple[Session, int]], all_logits: bool) -> Batch:
        size = self._pool.page_size
        device = self._model.device
        tokens: list[int] = []
        positions: list[int] = []
        pages: list[int] = []
        spans: list[Span] = []
        for session, count in parts:
            start, stop = session.kv_tokens, session.kv_tokens + count
            row = len(tokens)
            tokens += session.tokens[start:stop]
            positions += range(start, stop)
            pages += [session.pages[p // size] for p in range(start, stop)]
            table = torch.tensor(session.pages, device=device)
            spans.append(Span(row, row + count, table, context=stop))
        rows = range(len(tokens)) if all_logits else [span.stop - 1 for span in spans]
        placed = torch.tensor(positions, device=device)
        return Batch(
            tokens=torch.tensor(tokens, device=device),
            positions=placed,
            pages=torch.tensor(pages, device=device),
            offsets=placed % size,
            spans=tuple(spans),
            logit_rows=torch.tensor(rows, device=device),
        )
