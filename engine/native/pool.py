"""A pool that the native kernels read and write in place."""

import ctypes
from ctypes import c_int32, c_int64, c_void_p

import torch

from engine.kv.layout import PageLayout
from engine.kv.order import Lanes
from engine.kv.pool import PagePool


class Store(ctypes.Structure):
    """`Pool` in source/pages.h."""

    _fields_ = [
        ("base", c_void_p),
        *((name, c_int64) for name in ("layer_slots", "slot_bytes", "frames", "values_at")),
        *((name, c_int32) for name in ("slots_per_frame", "page_size")),
    ]


class NativePool(PagePool):
    """See `PagePool`.

    Attributes:
        store: what the kernels are told of it.
    """

    def __init__(self, layout: PageLayout, frames: int) -> None:
        super().__init__(layout, frames, torch.device("cpu"), Lanes())
        self.store = Store(
            self.slots.data_ptr(), self.slots.shape[1], layout.slot_layer_bytes, frames,
            layout.plain_layer_bytes // 2, layout.slots_per_frame, layout.page_size,
        )  # fmt: skip
