"""The tensors that hold keys and values, in pages, and the page tables that lead to them."""

from collections.abc import Iterable, Sequence

import torch

from engine.kv.layout import PageLayout
from engine.kv.table import TableChange


class PagePool:
    """Keys and values of every layer, cut into pages of `page_size` token positions.

    A page is a number here; which sequence it belongs to is not this class's business.

    Attributes:
        layout: what a page weighs.
        frames: how many there are.
        buffer: all pages, [layers, frames, bytes of a layer's page], uint8.
        keys, values: views of the buffer, [layers, frames, kv_heads, page_size, head_dim].
        tables: page tables, [rows, entries], int32. The last row belongs to no sequence: what only
            fills a batch up points there.
    """

    def __init__(
        self, layout: PageLayout, frames: int, device: torch.device, rows: int = 1
    ) -> None:
        """
        Args:
            layout: of a page.
            frames: how many.
            device: where they lie.
            rows: sequences that are computed at once.
        """
        self.layout, self.frames = layout, frames
        bytes_of_layer = layout.page_bytes // layout.layers
        self.buffer = torch.empty(
            (layout.layers, frames, bytes_of_layer), device=device, dtype=torch.uint8
        )
        self._plain = self.buffer[..., : layout.page_layer_bytes]
        self.keys, self.values = (
            half.view(layout.dtype).view(layout.layers, frames, layout.kv_heads, *shape)
            for half, shape in zip(self._plain.chunk(2, dim=-1), self._shapes(), strict=True)
        )
        # No sequence of these pages can be longer than all of them.
        self.tables = torch.zeros((rows + 1, frames), device=device, dtype=torch.int32)

    @property
    def page_size(self) -> int:
        return self.layout.page_size

    @property
    def size_bytes(self) -> int:
        return self.buffer.numel()

    def apply(self, changes: Iterable[TableChange]) -> None:
        """Bring the page tables up to date."""
        for row, first, pages in changes:
            entries = torch.tensor(pages, device=self.tables.device, dtype=torch.int32)
            self.tables[row, first : first + len(pages)] = entries

    def write(self, layer: int, slots: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        """Store keys and values [rows, kv_heads, head_dim] at slots [rows] (see `Step`)."""
        pages, offsets = slots // self.page_size, slots % self.page_size
        dtype = self.layout.dtype
        self._write(self.keys[layer], self.values[layer], pages, offsets, k.to(dtype), v.to(dtype))

    def read(
        self, layer: int, table: torch.Tensor, length: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Positions 0 <= p < length of the sequence on `table`: two of [kv_heads, length, d]."""
        halves = self._read_pages(layer, table[: self.layout.pages(length)])

        def joined(pages: torch.Tensor) -> torch.Tensor:
            return pages.transpose(0, 1).flatten(1, 2)[:, :length]

        return joined(halves[0]), joined(halves[1])

    def copy_page(self, source: int, target: int) -> None:
        """Copy one page, all layers."""
        self._plain[:, target] = self._plain[:, source]

    def take_layer(
        self, layer: int, source: "PagePool", pages: Sequence[int], first: int = 0
    ) -> None:
        """Take a layer over from a pool of one layer, whose page i goes to page pages[i].

        Args:
            layer: index.
            source: holds the layer.
            pages: of this pool.
            first: pages before it are left alone.
        """
        device = self.buffer.device
        targets = torch.tensor(pages[first:], device=device, dtype=torch.int64)
        self._plain[layer, targets] = source._plain[0, first : len(pages)]

    # -- the order of numbers within a page, which kernels may have their own of ----------------

    def _shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of one head's keys and of its values in a page."""
        shape = (self.layout.page_size, self.layout.head_dim)
        return shape, shape

    def _write(
        self,
        keys: torch.Tensor,
        values: torch.Tensor,
        pages: torch.Tensor,
        offsets: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
    ) -> None:
        """Put rows k and v [n, kv_heads, head_dim] at pages [n] and offsets [n] of one layer."""
        keys[pages, :, offsets] = k
        values[pages, :, offsets] = v

    def _rows(self, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Pages of one layer as two of [..., page_size, head_dim]."""
        return keys, values

    def _read_pages(self, layer: int, pages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Two of [pages, kv_heads, page_size, head_dim]."""
        return self._rows(self.keys[layer][pages], self.values[layer][pages])
