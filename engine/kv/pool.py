"""The tensors that hold keys and values, in pages."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from engine.kv.codec import Codes, Format, unflatten
from engine.kv.layout import PageLayout
from engine.kv.order import Order, Rows


class _Section(NamedTuple):
    """One of the arrays of a coded page: its place, and what it holds."""

    start: int
    stop: int


class PagePool:
    """Keys and values of every layer, cut into pages of `page_size` token positions.

    A page is a number here; which sequence it belongs to is not this class's business. Numbers
    below `frames` are pages in full precision, each a frame; the others are coded ones, a slot
    each: frame f and the pages frames + f * slots_per_frame + (0, 1, ...) share their memory (see
    `PageLayout`), and only one of the two kinds is used at a time.

    Attributes:
        layout: what a page weighs.
        frames: how many there are.
    """

    def __init__(
        self,
        layout: PageLayout,
        frames: int,
        device: torch.device,
        order: Order | None = None,
    ) -> None:
        self.layout, self.frames = layout, frames
        self._order = order or Rows()
        l = layout  # noqa: E741
        self.slots = torch.empty(
            (l.layers, frames * l.slots_per_frame, l.slot_layer_bytes),
            device=device,
            dtype=torch.uint8,
        )
        wide = self.slots.view(l.layers, frames, l.slots_per_frame * l.slot_layer_bytes)
        self._plain = wide[..., : l.plain_layer_bytes]
        shapes = self._order.plain_shapes(l.page_size, l.head_dim)
        self.keys, self.values = (
            unflatten(half.view(l.dtype), -1, (l.kv_heads, *shape))
            for half, shape in zip(self._plain.chunk(2, dim=-1), shapes, strict=True)
        )
        """Pages in full precision: [layers, frames, kv_heads, ...] in the order's shapes."""

    @property
    def page_size(self) -> int:
        return self.layout.page_size

    @property
    def size_bytes(self) -> int:
        return self.slots.numel()

    def is_coded(self, page: int) -> bool:
        return page >= self.frames

    # -- full precision ----------------------------------------------------------------------

    def write(
        self,
        layer: int,
        pages: torch.Tensor,
        offsets: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
    ) -> None:
        """Store keys and values [rows, kv_heads, head_dim] at pages [rows], offsets [rows]."""
        keys, values = self.keys[layer], self.values[layer]
        dtype = self.layout.dtype
        self._order.write(keys, values, pages, offsets, k.to(dtype), v.to(dtype))

    def read(
        self, layer: int, table: torch.Tensor, length: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Positions 0 <= p < length of the sequence on `table`: two of [kv_heads, length, d]."""
        used = table[: self.layout.pages(length)]
        if self.layout.codec is None:
            halves = self._order.rows(self.keys[layer][used], self.values[layer][used])
        else:
            halves = self._read_mixed(layer, used)

        def joined(pages: torch.Tensor) -> torch.Tensor:
            return pages.transpose(0, 1).flatten(1, 2)[:, :length]

        return joined(halves[0]), joined(halves[1])

    def copy_page(self, source: int, target: int) -> None:
        """Copy one page in full precision, all layers."""
        self._plain[:, target] = self._plain[:, source]

    # -- coded -------------------------------------------------------------------------------

    def encode(self, pages: Sequence[int]) -> torch.Tensor:
        """What pages in full precision are when they are coded.

        Returns:
            Slots for `put`: [layers, pages, slot_layer_bytes], uint8.
        """
        l, codec = self.layout, self.layout.codec  # noqa: E741
        assert codec is not None, "a pool without a codec has nothing to encode with"
        index = torch.tensor(pages, device=self.slots.device)
        out = self.slots.new_zeros((l.layers, len(pages), l.slot_layer_bytes))
        sections = self._sections()
        for layer in range(l.layers):
            keys, values = self._order.rows(self.keys[layer][index], self.values[layer][index])
            k, v = codec.keys.encode(keys), codec.values.encode(values)
            arrays = (
                self._order.pack_keys(k.numbers, codec.keys.bits),
                self._order.pack_values(v.numbers, codec.values.bits),
                self._order.pack_scales(k.scales).contiguous().view(torch.uint8),
                self._order.pack_scales(v.scales).contiguous().view(torch.uint8),
            )
            for section, array in zip(sections, arrays, strict=True):
                out[layer, :, section.start : section.stop] = array.flatten(1)
        return out

    def take(self, pages: Sequence[int]) -> torch.Tensor:
        """What coded pages hold, for `put`."""
        return self.slots[:, torch.tensor(pages, device=self.slots.device) - self.frames]

    def put(self, coded: torch.Tensor, pages: Sequence[int]) -> None:
        """Store what `encode` or `take` gave at coded pages."""
        index = torch.tensor(pages, device=self.slots.device) - self.frames
        self.slots[:, index] = coded

    def take_layer(
        self, layer: int, source: "PagePool", table: Sequence[int], first: int = 0
    ) -> None:
        """Take a layer over from a pool of one layer, whose page i goes to page table[i].

        Args:
            layer: index.
            source: holds pages in full precision; those whose target is a coded page are encoded.
            table: pages of this pool.
            first: pages before it are left alone.
        """
        device = self.slots.device
        plain = [i for i in range(first, len(table)) if not self.is_coded(table[i])]
        coded = [i for i in range(first, len(table)) if self.is_coded(table[i])]
        targets = torch.tensor([table[i] for i in plain], device=device, dtype=torch.int64)
        self._plain[layer, targets] = source._plain[0, torch.tensor(plain, device=device).long()]
        if coded:
            slots = torch.tensor([table[i] - self.frames for i in coded], device=device)
            self.slots[layer, slots] = source.encode(coded)[0]

    def _read_mixed(self, layer: int, table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Pages of both kinds: two of [pages, kv_heads, page_size, head_dim] in full precision."""
        l, codec = self.layout, self.layout.codec  # noqa: E741
        assert codec is not None
        is_coded = table >= self.frames
        shape = (len(table), l.kv_heads, l.page_size, l.head_dim)
        keys = torch.empty(shape, device=table.device, dtype=l.dtype)
        values = torch.empty_like(keys)
        plain = table[~is_coded]
        keys[~is_coded], values[~is_coded] = self._order.rows(
            self.keys[layer][plain], self.values[layer][plain]
        )
        stored = self.slots[layer, table[is_coded] - self.frames]
        k, v, k_scales, v_scales = (stored[:, s.start : s.stop] for s in self._sections())
        unpacked = (
            (codec.keys, self._order.unpack_keys, k, k_scales, keys),
            (codec.values, self._order.unpack_values, v, v_scales, values),
        )
        for format_, unpack, codes, scales, out in unpacked:
            numbers = unpack(unflatten(codes, -1, (l.kv_heads, -1)), format_.bits, l.page_size)
            rows = Codes(numbers, self._unpack_scales(scales, format_))
            out[is_coded] = format_.decode(rows).to(l.dtype)
        return keys, values

    def _unpack_scales(self, stored: torch.Tensor, format_: Format) -> torch.Tensor:
        rows, _ = format_.scale_shape(self.layout.page_size, self.layout.head_dim)
        numbers = stored.contiguous().view(format_.scale_dtype)
        return self._order.unpack_scales(unflatten(numbers, -1, (self.layout.kv_heads, -1)), rows)

    def _sections(self) -> list[_Section]:
        l, codec = self.layout, self.layout.codec  # noqa: E741
        assert codec is not None
        sections, start = [], 0
        for size in codec.sections(l.kv_heads, l.page_size, l.head_dim):
            sections.append(_Section(start, start + size))
            start += size
        return sections
