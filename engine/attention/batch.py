"""What a step computes, in the form that the model and the attention backends read."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

import torch

from engine.kv.pool import PagePool


class Span(NamedTuple):
    """The rows of one sequence in a batch.

    Attributes:
        start: first row.
        stop: one past the last row.
        table: page ids of the sequence, position p in `table[p // page_size]`: [pages], int64.
        context: keys that exist once this step's are written: positions 0 <= p < context.
    """

    start: int
    stop: int
    table: torch.Tensor
    context: int


@dataclass(frozen=True)
class Batch:
    """New tokens of several sequences, one after the other, without padding.

    Attributes:
        tokens: [rows], int64.
        positions: absolute position of each row in its sequence: [rows], int64. Rows of a sequence
            need not be contiguous; a row sees the keys at positions up to its own.
        pages: page that each row's key and value go to: [rows], int64.
        offsets: place in that page: [rows], int64.
        spans: one a sequence, in row order, covering all rows.
        logit_rows: rows whose logits are wanted: [logit rows], int64.
        masks: a backend's own masks by span start, made in the first layer and used in all.
    """

    tokens: torch.Tensor
    positions: torch.Tensor
    pages: torch.Tensor
    offsets: torch.Tensor
    spans: tuple[Span, ...]
    logit_rows: torch.Tensor
    masks: dict[int, torch.Tensor | None] = field(default_factory=dict)

    @cached_property
    def key_positions(self) -> torch.Tensor:
        """0, 1, 2, ... up to the longest context."""
        longest = max(span.context for span in self.spans)
        return torch.arange(longest, device=self.positions.device)


class Attention(Protocol):
    """A backend."""

    def attend(
        self,
        layer: int,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        batch: Batch,
        pool: PagePool,
    ) -> torch.Tensor:
        """Write this step's keys and values to the pool, then attend over the pages.

        Args:
            layer: index.
            q: [rows, heads, head_dim], rotated.
            k: [rows, kv_heads, head_dim], rotated.
            v: [rows, kv_heads, head_dim].
            batch: whose rows these are.
            pool: holds every earlier key and value.

        Returns:
            softmax(q k^T / sqrt(head_dim)) v for each row, over the keys at positions up to the
            row's own (and within the sliding window, where the model has one):
            [rows, heads, head_dim].
        """
        ...
