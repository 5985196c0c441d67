"""The definition of right: gather the pages, then scaled dot product attention. Plain torch."""

import torch
import torch.nn.functional as F

from engine.attention.batch import Batch, Span
from engine.kv.pool import PagePool


class ReferenceAttention:
    """Gathers a sequence's pages and attends with an exact mask; runs on any device."""

    def __init__(self, sliding_window: int | None = None) -> None:
        """
        Args:
            sliding_window: keys that a row sees, its own included; None means all.
        """
        self._window = sliding_window

    def attend(
        self,
        layer: int,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        batch: Batch,
        pool: PagePool,
    ) -> torch.Tensor:
        """See `Attention.attend`."""
        pool.write(layer, batch.pages, batch.offsets, k, v)
        out = torch.empty_like(q)
        _, heads, head_dim = q.shape
        kv_heads = k.shape[1]
        group = heads // kv_heads
        for span in batch.spans:
            rows = span.stop - span.start
            keys, values = (h.to(q.dtype) for h in pool.read(layer, span.table, span.context))
            # The query heads of a group become rows of their KV head: no key is repeated.
            #   [rows, kv_heads * group, d] -> [kv_heads, group * rows, d]
            queries = q[span.start : span.stop].view(rows, kv_heads, group, head_dim)
            queries = queries.permute(1, 2, 0, 3).reshape(1, kv_heads, group * rows, head_dim)
            mixed = F.scaled_dot_product_attention(
                queries, keys[None], values[None], attn_mask=self._mask(span, batch, group, q.dtype)
            )
            mixed = mixed.view(kv_heads, group, rows, head_dim).permute(2, 0, 1, 3)
            out[span.start : span.stop] = mixed.reshape(rows, heads, head_dim)
        return out

    def _mask(
        self, span: Span, batch: Batch, group: int, dtype: torch.dtype
    ) -> torch.Tensor | None:
        """0 where a row may look, -inf elsewhere: [group * rows, context]; None if it sees all."""
        masks = batch.masks  # the same for every layer of a step
        if span.start not in masks:
            own = batch.positions[span.start : span.stop, None]
            keys = batch.key_positions[None, : span.context]
            visible = keys <= own
            if self._window is not None:
                visible &= keys > own - self._window
            if bool(visible.all()):
                masks[span.start] = None
            else:
                mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
                mask.masked_fill_(~visible, float("-inf"))
                masks[span.start] = mask.repeat(group, 1)
        return masks[span.start]
