"""The tensors that hold keys and values, in pages."""

import torch

from engine.model_config import ModelConfig


class PagePool:
    """Keys and values of every layer, cut into pages of `page_size` token positions.

    A page is a number here; which sequence it belongs to is not this class's business. One page of
    one head is contiguous: [layers, pages, kv_heads, page_size, head_dim].
    """

    def __init__(
        self,
        config: ModelConfig,
        pages: int,
        page_size: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        shape = (config.layers, pages, config.kv_heads, page_size, config.head_dim)
        self.page_size = page_size
        self.keys = torch.empty(shape, device=device, dtype=dtype)
        self.values = torch.empty(shape, device=device, dtype=dtype)

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
        self.keys[layer][pages, :, offsets] = k
        self.values[layer][pages, :, offsets] = v

    def read(
        self, layer: int, table: torch.Tensor, length: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Positions 0 <= p < length of the sequence on `table`: two of [kv_heads, length, d]."""
        used = table[: -(-length // self.page_size)]

        def gather(store: torch.Tensor) -> torch.Tensor:
            pages = store[layer][used].transpose(0, 1)
            return pages.flatten(1, 2)[:, :length]

        return gather(self.keys), gather(self.values)

    def copy_page(self, source: int, target: int) -> None:
        """Copy one page of all layers."""
        self.keys[:, target] = self.keys[:, source]
        self.values[:, target] = self.values[:, source]
