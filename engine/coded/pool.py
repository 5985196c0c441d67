"""A pool of plain and of coded pages in the same memory."""

from collections.abc import Sequence
from itertools import accumulate

import torch

from engine.coded.codec import Codes, Coding, unflatten
from engine.coded.layout import CodedLayout
from engine.coded.packing import Packing, RowPacking
from engine.kv.pool import PagePool


class CodedPool(PagePool):
    """See `PagePool`. Page numbers from `frames` on are coded pages, a slot each.

    Frame f and the pages frames + f * slots_per_frame + (0, 1, ...) share their memory (see
    `CodedLayout`), and only one of the two kinds is used at a time.

    Attributes:
        slots: the buffer by slots, [layers, slots, bytes of a layer's slot].
    """

    layout: CodedLayout
    packing: Packing = RowPacking()

    def __init__(
        self, layout: CodedLayout, frames: int, device: torch.device, rows: int = 1
    ) -> None:
        super().__init__(layout, frames, device, rows)
        self.slots = self.buffer.view(layout.layers, -1, layout.slot_layer_bytes)
        # Coded pages are smaller: a sequence of them can be longer than the frames are many.
        self.tables = torch.zeros((rows + 1, self.slots.shape[1]), device=device, dtype=torch.int32)
        sizes = layout.codec.sections(layout.kv_heads, layout.page_size, layout.head_dim)
        ends = list(accumulate(sizes))
        self._sections = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]

    def is_coded(self, page: int) -> bool:
        return page >= self.frames

    def encode(self, pages: Sequence[int]) -> torch.Tensor:
        """What plain pages are when they are coded.

        Returns:
            Slots for `put`: [layers, pages, bytes of a layer's slot], uint8.
        """
        layout, codec = self.layout, self.layout.codec
        index = torch.tensor(pages, device=self.slots.device)
        # What no section covers stays zero.
        out = self.slots.new_zeros((layout.layers, len(pages), layout.slot_layer_bytes))
        for layer in range(layout.layers):
            keys, values = self._rows(self.keys[layer][index], self.values[layer][index])
            k, v = codec.keys.encode(keys), codec.values.encode(values)
            arrays = (
                self.packing.pack_keys(k.numbers, codec.keys.bits),
                self.packing.pack_values(v.numbers, codec.values.bits),
                self.packing.pack_scales(k.scales).contiguous().view(torch.uint8),
                self.packing.pack_scales(v.scales).contiguous().view(torch.uint8),
            )
            for section, array in zip(self._sections, arrays, strict=True):
                out[layer, :, section] = array.flatten(1)
        return out

    def take(self, pages: Sequence[int]) -> torch.Tensor:
        """What coded pages hold, for `put`."""
        return self.slots[:, torch.tensor(pages, device=self.slots.device) - self.frames]

    def put(self, coded: torch.Tensor, pages: Sequence[int]) -> None:
        """Store what `encode` or `take` gave at coded pages."""
        index = torch.tensor(pages, device=self.slots.device) - self.frames
        self.slots[:, index] = coded

    def take_layer(
        self, layer: int, source: PagePool, pages: Sequence[int], first: int = 0
    ) -> None:
        """See `PagePool.take_layer`; where the target is a coded page, the page is encoded."""
        assert isinstance(source, CodedPool)
        device = self.slots.device
        plain = [i for i in range(first, len(pages)) if not self.is_coded(pages[i])]
        coded = [i for i in range(first, len(pages)) if self.is_coded(pages[i])]
        targets = torch.tensor([pages[i] for i in plain], device=device, dtype=torch.int64)
        self._plain[layer, targets] = source._plain[0, torch.tensor(plain, device=device).long()]
        if coded:
            slots = torch.tensor([pages[i] - self.frames for i in coded], device=device)
            self.slots[layer, slots] = source.encode(coded)[0]

    def _read_pages(self, layer: int, pages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        layout, codec = self.layout, self.layout.codec
        is_coded = pages >= self.frames
        shape = (len(pages), layout.kv_heads, layout.page_size, layout.head_dim)
        keys = torch.empty(shape, device=pages.device, dtype=layout.dtype)
        values = torch.empty_like(keys)
        keys[~is_coded], values[~is_coded] = super()._read_pages(layer, pages[~is_coded])
        stored = self.slots[layer, pages[is_coded] - self.frames]
        k, v, k_scales, v_scales = (stored[:, section] for section in self._sections)
        unpacked = (
            (codec.keys, self.packing.unpack_keys, k, k_scales, keys),
            (codec.values, self.packing.unpack_values, v, v_scales, values),
        )
        for coding, unpack, codes, scales, out in unpacked:
            split = unflatten(codes, -1, (layout.kv_heads, -1))
            numbers = unpack(split, coding.bits, layout.page_size)
            rows = Codes(numbers, self._unpack_scales(scales, coding))
            out[is_coded] = coding.decode(rows).to(layout.dtype)
        return keys, values

    def _unpack_scales(self, stored: torch.Tensor, coding: Coding) -> torch.Tensor:
        rows, _ = coding.scale_shape(self.layout.page_size, self.layout.head_dim)
        numbers = stored.contiguous().view(coding.scale_dtype)
        split = unflatten(numbers, -1, (self.layout.kv_heads, -1))
        return self.packing.unpack_scales(split, rows)
