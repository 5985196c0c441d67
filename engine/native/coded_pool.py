"""A pool with coded pages that the native kernels read and write in place."""

from collections.abc import Callable, Sequence

import torch

from engine.coded.codec import hadamard
from engine.coded.layout import CodedLayout
from engine.coded.pool import CodedPool
from engine.native.lane_packing import LanePacking
from engine.native.lanes import LanePool
from engine.native.packing import INT4, INT8
from engine.native.pool import CPU, store_of

FP8 = 3
KINDS = {"int8": INT8, "int4": INT4, "fp8": FP8}
"""`Kind` in source/matrix.h by the coding's name."""

Encode = Callable[[CodedPool, torch.Tensor, torch.Tensor], None]
"""Codes plain pages [n], int64, into slots [layers, n, bytes of a layer's slot], uint8."""


class NativeCodedPool(LanePool, CodedPool):
    """See `CodedPool`.

    Attributes:
        store: what the kernels are told of it.
    """

    packing = LanePacking()

    def __init__(self, layout: CodedLayout, frames: int, rows: int, encode: Encode) -> None:
        super().__init__(layout, frames, CPU, rows)
        self._encode = encode
        self.store = store_of(self)
        codec = layout.codec
        starts = [section.start for section in self._sections]
        self.store.code_at[:], self.store.scale_at[:] = starts[:2], starts[2:]
        self.store.kind[:] = [KINDS[codec.keys.name], KINDS[codec.values.name]]
        if codec.keys.rotates or codec.values.rotates:
            self._hadamard = hadamard(layout.head_dim).contiguous()
            self._inverse = self._hadamard.T.contiguous()
            self.store.hadamard = self._hadamard.data_ptr()
            self.store.inverse = self._inverse.data_ptr()

    def encode(self, pages: Sequence[int]) -> torch.Tensor:
        """See `CodedPool.encode`; where rows are rotated, sums may differ in their last bits."""
        shape = (self.layout.layers, len(pages), self.layout.slot_layer_bytes)
        out = torch.zeros(shape, dtype=torch.uint8)
        self._encode(self, torch.tensor(pages, dtype=torch.int64), out)
        return out
