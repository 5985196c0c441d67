"""What a page weighs, and how many pages a sequence needs. Arithmetic only."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class PageLayout:
    """Pages of one pool.

    Pages are counted in units, and a unit is a page here. A pool with coded pages has smaller ones
    (see `engine.coded.layout`).

    Attributes:
        dtype: of keys and values.
    """

    layers: int
    kv_heads: int
    head_dim: int
    page_size: int
    dtype: torch.dtype

    @property
    def name(self) -> str:
        """What KV is held in: here the dtype."""
        return str(self.dtype).removeprefix("torch.")

    @property
    def page_layer_bytes(self) -> int:
        """Keys and values of one layer's page."""
        return 2 * self.kv_heads * self.page_size * self.head_dim * self.dtype.itemsize

    @property
    def page_bytes(self) -> int:
        """What the pool spends on a page, all layers."""
        return self.layers * self.page_layer_bytes

    @property
    def unit_bytes(self) -> int:
        return self.page_bytes

    @property
    def units_per_page(self) -> int:
        return 1

    def pages(self, tokens: int) -> int:
        """How many pages hold so many tokens."""
        return -(-tokens // self.page_size)

    def units(self, tokens: int, shared: int = 0) -> int:
        """What a sequence of so many tokens takes beside `shared` pages that others pay for."""
        return max(self.pages(tokens) - shared, 0)
