"""The definition of right: gather the pages, then scaled dot product attention. Plain torch."""

from typing import NamedTuple

import torch
import torch.nn.functional as F

from engine.kv.pool import PagePool
from engine.step import Step


class _Rows(NamedTuple):
    """One sequence's rows: start <= row < stop, and the pages of its keys [pages], int64."""

    start: int
    stop: int
    context: int
    pages: torch.Tensor


class PagedAttention:
    """Attention of one step; works on any device.

    Query heads that share a KV head become rows of it, so that no key is repeated.
    """

    def __init__(self, step: Step, pool: PagePool, window: int | None) -> None:
        """
        Args:
            step: whose page tables the pool has.
            pool: holds every earlier key and value.
            window: keys that a row sees, its own included; None means all.
        """
        device = pool.buffer.device
        self.positions = torch.from_numpy(step.positions).to(device, torch.int64)
        self._slots = torch.from_numpy(step.slots).to(device, torch.int64)
        self._pool, self._window = pool, window
        bounds, table_rows = step.starts.tolist(), step.table_rows.tolist()
        self._sequences = []
        for i, context in enumerate(step.contexts.tolist()):
            pages = pool.tables[table_rows[i], : pool.layout.pages(context)].long()
            self._sequences.append(_Rows(bounds[i], bounds[i + 1], context, pages))
        self._masks: dict[int, torch.Tensor | None] = {}  # the same for every layer

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Write this step's keys and values to the pool, then attend over the pages.

        Args:
            layer: index.
            q: [rows, heads, head_dim], rotated.
            k: [rows, kv_heads, head_dim], rotated.
            v: [rows, kv_heads, head_dim].

        Returns:
            softmax(q k^T / sqrt(head_dim)) v for each row, over the keys at positions up to the
            row's own (and within the sliding window, where the model has one):
            [rows, heads, head_dim].
        """
        self._pool.write(layer, self._slots, k, v)
        out = torch.empty_like(q)
        _, heads, head_dim = q.shape
        kv_heads = k.shape[1]
        group = heads // kv_heads
        for sequence in self._sequences:
            start, stop, context, pages = sequence
            rows = stop - start
            keys, values = (h.to(q.dtype) for h in self._pool.read(layer, pages, context))
            #   [rows, kv_heads * group, d] -> [kv_heads, group * rows, d]
            queries = q[start:stop].view(rows, kv_heads, group, head_dim)
            queries = queries.permute(1, 2, 0, 3).reshape(1, kv_heads, group * rows, head_dim)
            mixed = F.scaled_dot_product_attention(
                queries, keys[None], values[None], attn_mask=self._mask(sequence, group, q.dtype)
            )
            mixed = mixed.view(kv_heads, group, rows, head_dim).permute(2, 0, 1, 3)
            out[start:stop] = mixed.reshape(rows, heads, head_dim)
        return out

    def _mask(self, sequence: _Rows, group: int, dtype: torch.dtype) -> torch.Tensor | None:
        """0 where a row may look, -inf elsewhere: [group * rows, context]; None if it sees all."""
        start, stop, context, _ = sequence
        if start not in self._masks:
            own = self.positions[start:stop, None]
            keys = torch.arange(context, device=own.device)[None]
            visible = keys <= own
            if self._window is not None:
                visible &= keys > own - self._window
            if bool(visible.all()):
                self._masks[start] = None
            else:
                mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
                mask.masked_fill_(~visible, float("-inf"))
                self._masks[start] = mask.repeat(group, 1)
        return self._masks[start]
