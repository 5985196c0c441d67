"""A pool that the native kernels read and write in place."""

import ctypes
from ctypes import c_int32, c_int64, c_void_p

import torch

from engine.kv.layout import PageLayout
from engine.kv.pool import PagePool
from engine.native.lanes import LanePool

CPU = torch.device("cpu")


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


def store_of(pool: PagePool) -> Store:
    """What the kernels are told of a pool."""
    layout = pool.layout
    slot_bytes = layout.unit_bytes // layout.layers
    return Store(
        base=pool.buffer.data_ptr(),
        layer_slots=pool.buffer.stride(0) // slot_bytes,
        slot_bytes=slot_bytes,
        frames=pool.frames,
        values_at=layout.page_layer_bytes // 2,
        slots_per_frame=layout.units_per_page,
        page_size=layout.page_size,
    )


class NativePool(LanePool):
    """See `PagePool`.

    Attributes:
        store: what the kernels are told of it.
    """

    def __init__(self, layout: PageLayout, frames: int, rows: int) -> None:
        super().__init__(layout, frames, CPU, rows)
        self.store = store_of(self)
