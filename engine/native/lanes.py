"""The order of a page's numbers that the native attention reads sixteen at a time.

Keys lie side by side, so that dot products need no sums across lanes; of values, head_dim lies side
by side (source/attention.h). page_size is a multiple of 16, head_dim of 16, of 32 where it is
coded. For d = head_dim and p = page_size:

    plain         keys [d / 2, p, 2]                    values [p / 2, d, 2]
    8 bits        keys [p / 16, d / 32, 8, 16, 4 d]     values [p / 16, d / 16, 4, 16, 4 p]
    4 bits        keys [p / 16, d / 32, 4, 16, 8 d]     values [p / 16, d / 16, 2, 16, 8 p]
    scales        [p / 16, d / 32, 16]
"""

import torch

from engine.kv.pool import PagePool


class LanePool(PagePool):
    """See `PagePool`; keys and values are in the shapes that the module names."""

    def _shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        rows, head_dim = self.layout.page_size, self.layout.head_dim
        return (head_dim // 2, rows, 2), (rows // 2, head_dim, 2)

    def _write(
        self,
        keys: torch.Tensor,
        values: torch.Tensor,
        pages: torch.Tensor,
        offsets: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
    ) -> None:
        keys[pages, :, :, offsets] = k.reshape(*k.shape[:-1], -1, 2)
        values[pages, :, offsets // 2, :, offsets % 2] = v

    def _rows(self, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return keys.transpose(-3, -2).flatten(-2), values.transpose(-2, -1).flatten(-3, -2)
