"""A pool that the native kernels read and write in place."""

import ctypes
from collections.abc import Callable, Sequence
from ctypes import c_int32, c_int64, c_void_p
from itertools import accumulate

import torch

from engine.kv.codec import hadamard
from engine.kv.layout import PageLayout
from engine.kv.order import Lanes
from engine.kv.pool import PagePool
from engine.native.packing import INT4, INT8

FP8 = 3
KINDS = {"int8": INT8, "int4": INT4, "fp8": FP8}
"""`Kind` in source/matrix.h by the format's name."""


class Store(ctypes.Structure):
    """`Pool` in source/pages.h."""

    _fields_ = [
        ("base", c_void_p),
        *((name, c_int64) for name in ("layer_slots", "slot_bytes", "frames", "values_at")),
        ("code_at", c_int64 * 2),
        ("scale_at", c_int64 * 2),
        ("hadamard", c_void_p),
        ("inverse", c_void_p),
        ("slots_per_frame", c_int32),
        ("page_size", c_int32),
        ("kind", c_int32 * 2),
    ]


Encode = Callable[["NativePool", torch.Tensor, torch.Tensor], None]
"""Codes pages [n], int64, to slots [layers, n, slot_layer_bytes]."""


class NativePool(PagePool):
    """See `PagePool`.

    Attributes:
        store: what the kernels are told of it.
    """

    def __init__(self, layout: PageLayout, frames: int, encode: Encode) -> None:
        super().__init__(layout, frames, torch.device("cpu"), Lanes())
        self.store = Store(
            base=self.slots.data_ptr(),
            layer_slots=self.slots.shape[1],
            slot_bytes=layout.slot_layer_bytes,
            frames=frames,
            values_at=layout.plain_layer_bytes // 2,
            slots_per_frame=layout.slots_per_frame,
            page_size=layout.page_size,
        )
        self._encode = encode
        codec = layout.codec
        if codec is None:
            return
        sizes = codec.sections(layout.kv_heads, layout.page_size, layout.head_dim)
        starts = [0, *accumulate(sizes[:3])]
        self.store.code_at[:], self.store.scale_at[:] = starts[:2], starts[2:]
        self.store.kind[:] = [KINDS[codec.keys.name], KINDS[codec.values.name]]
        if codec.keys.rotates or codec.values.rotates:
            self._hadamard = hadamard(layout.head_dim).contiguous()
            self._inverse = self._hadamard.T.contiguous()
            self.store.hadamard = self._hadamard.data_ptr()
            self.store.inverse = self._inverse.data_ptr()

    def encode(self, pages: Sequence[int]) -> torch.Tensor:
        """See `PagePool.encode`; where rows are rotated, sums may differ in their last bits."""
        layout = self.layout
        assert layout.codec is not None, "a pool without a codec has nothing to encode with"
        # What no section covers stays zero.
        out = torch.zeros(layout.layers, len(pages), layout.slot_layer_bytes, dtype=torch.uint8)
        self._encode(self, torch.tensor(pages, dtype=torch.int64), out)
        return out
