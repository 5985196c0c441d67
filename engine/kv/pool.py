"""The tensors that hold keys and values, in pages."""

import torch

from engine.model_config import ModelConfig


class PagePool:
    """Keys and values of every layer, cut into pages of `page_size` token positions.

    A page is a number here; which sequence it belongs to is not this class's business. One page of
    one head is contiguous, in one of two orders:

        rows    keys and values [layers, pages, kv_heads, page_size, head_dim]
        lanes   keys   [layers, pages, kv_heads, head_dim / 2, page_size, 2]
                values [layers, pages, kv_heads, page_size / 2, head_dim, 2]

    Lanes are what the native attention reads: pairs that one multiply-add takes lie together.
    """

    def __init__(
        self,
        config: ModelConfig,
        pages: int,
        page_size: int,
        device: torch.device,
        dtype: torch.dtype,
        *,
        lanes: bool = False,
    ) -> None:
        rows, d = page_size, config.head_dim
        places = ((d // 2, rows, 2), (rows // 2, d, 2)) if lanes else ((rows, d), (rows, d))
        self.page_size = page_size
        self.keys, self.values = (
            torch.empty((config.layers, pages, config.kv_heads, *place), device=device, dtype=dtype)
            for place in places
        )
        self._lanes = lanes

    @staticmethod
    def bytes_per_page(config: ModelConfig, page_size: int, dtype: torch.dtype) -> int:
        """2 * layers * kv_heads * head_dim * page_size values of the dtype."""
        return config.kv_values_per_token * page_size * dtype.itemsize

    @property
    def pages(self) -> int:
        return self.keys.shape[1]

    @property
    def size_bytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in (self.keys, self.values))

    @property
    def page_bytes(self) -> int:
        return self.size_bytes // self.pages

    def write(
        self,
        layer: int,
        pages: torch.Tensor,
        offsets: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
    ) -> None:
        """Store keys and values [rows, kv_heads, head_dim] at pages [rows], offsets [rows]."""
        if not self._lanes:
            self.keys[layer][pages, :, offsets] = k
            self.values[layer][pages, :, offsets] = v
            return
        self.keys[layer][pages, :, :, offsets] = k.reshape(*k.shape[:2], -1, 2)
        self.values[layer][pages, :, offsets // 2, :, offsets % 2] = v

    def read(
        self, layer: int, table: torch.Tensor, length: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Positions 0 <= p < length of the sequence on `table`: two of [kv_heads, length, d]."""
        used = table[: -(-length // self.page_size)]
        keys, values = self.keys[layer][used], self.values[layer][used]
        if self._lanes:
            # To [pages, kv_heads, page_size, head_dim].
            keys = keys.transpose(2, 3).flatten(3)
            values = values.transpose(3, 4).flatten(2, 3)

        def joined(store: torch.Tensor) -> torch.Tensor:
            return store.transpose(0, 1).flatten(1, 2)[:, :length]

        return joined(keys), joined(values)

    def copy_page(self, source: int, target: int) -> None:
        """Copy one page of all layers."""
        self.keys[:, target] = self.keys[:, source]
        self.values[:, target] = self.values[:, source]
