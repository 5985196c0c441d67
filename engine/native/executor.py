"""Steps computed by our own code for x86 CPUs: a forward pass is one native call.

Weights are bfloat16, or quantised as `SchemedTensors` says; keys and values bfloat16; the residual
stream and all sums float32. The structures mirror those of source/decoder.h.
"""

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, byref, c_int32, c_int64, c_size_t, c_void_p
from typing import Any

import numpy as np
import torch

from engine.executor import Executor
from engine.kv.layout import PageLayout
from engine.kv.pool import PagePool
from engine.model_config import ModelConfig
from engine.native.build import NativeLibrary
from engine.native.packing import PANEL
from engine.native.pool import NativePool, Store
from engine.native.weights import Model, NativeWeights
from engine.quantised import GROUP
from engine.step import Ints, Step


class _Step(ctypes.Structure):
    _fields_ = [
        *((name, c_int32) for name in ("rows", "sequences", "logit_rows")),
        *((name, c_void_p) for name in ("tokens", "positions", "slots", "starts", "contexts")),
        *((name, c_void_p) for name in ("table_rows", "tables")),
        ("table_entries", c_int64),
        ("logit_row", c_void_p),
        ("logits", c_void_p),
    ]


def _step(step: Step, tokens: Ints, pool: PagePool, logits: torch.Tensor | None = None) -> _Step:
    return _Step(
        step.rows, len(step.contexts), 0 if logits is None else len(logits),
        tokens.ctypes.data, step.positions.ctypes.data, step.slots.ctypes.data,
        step.starts.ctypes.data, step.contexts.ctypes.data, step.table_rows.ctypes.data,
        pool.tables.data_ptr(), pool.tables.shape[1], step.logit_rows.ctypes.data,
        None if logits is None else logits.data_ptr(),
    )  # fmt: skip


def _store(pool: PagePool) -> Any:
    store = getattr(pool, "store", None)
    assert isinstance(store, Store), "the kernels read no other pool"
    return byref(store)


def obstacle(config: ModelConfig, page_size: int, codec: str | None = None) -> str | None:
    """Why a model cannot run on the native kernels; None if it can.

    Args:
        config: of the model.
        page_size: of the KV pool.
        codec: of its coded pages; None where there are none.
    """
    sizes = (config.hidden, config.intermediate, config.heads * config.head_dim)
    if config.head_dim % 16 or any(size % PANEL for size in sizes):
        return "its sizes are not multiples of 32 (16 for a head)"
    if page_size % 16:
        return f"a page size of {page_size} is not a multiple of 16"
    if codec is not None and config.head_dim % GROUP:
        return f"its heads of {config.head_dim} are not a multiple of 32, which KV in {codec} needs"
    return None


class NativeExecutor(Executor):
    """See `Executor`."""

    def __init__(
        self, library: NativeLibrary, config: ModelConfig, weights: NativeWeights, threads: int
    ) -> None:
        """
        Args:
            library: what computes.
            config: one without an `obstacle`.
            weights: the model's.
            threads: how many share a step.

        Raises:
            MemoryError: there is no room for its threads and buffers.
        """
        # Of PyTorch's own threads one will do: more would only wait in a native thread's place.
        super().__init__(threads=1)
        self.config = config
        self.device, self.dtype = torch.device("cpu"), torch.bfloat16
        self.variant = library.variant
        self._weights = weights
        f = library.functions
        self._forward = f.pageturn_forward
        self._forward.argtypes = (c_void_p, POINTER(Store), POINTER(_Step))
        self._embed = f.pageturn_embed
        self._embed.argtypes = (c_void_p, c_void_p, c_int32, c_void_p)
        self._run_layer = f.pageturn_layer
        self._run_layer.argtypes = (c_void_p, c_int32, c_void_p, POINTER(Store), POINTER(_Step))
        self._encode = f.pageturn_encode
        self._encode.argtypes = (
            c_void_p, POINTER(Store), c_int32, c_void_p, c_int32, c_void_p,
        )  # fmt: skip
        self._workspace = f.pageturn_workspace
        self._workspace.argtypes, self._workspace.restype = (c_void_p, c_int32), c_size_t
        self._close = f.pageturn_close
        self._close.argtypes = (c_void_p,)
        begin = f.pageturn_open
        begin.argtypes, begin.restype = (POINTER(Model), c_int32), c_void_p
        self._decoder = begin(byref(weights.model), threads)
        if not self._decoder:
            self.shutdown()
            raise MemoryError("there is not enough memory for the decoder's threads")

    def __del__(self) -> None:
        if getattr(self, "_decoder", None):
            self._close(self._decoder)

    def forward(self, step: Step, tokens: Ints, pool: PagePool) -> torch.Tensor:
        """See `Executor.forward`.

        Raises:
            MemoryError: there is no room for a step of this size.
        """
        logits = torch.empty(len(step.logit_rows), self.config.vocabulary)
        native = _step(step, tokens, pool, logits)
        _check(self._forward(self._decoder, _store(pool), byref(native)), step)
        return logits

    def embed(self, tokens: Sequence[int]) -> torch.Tensor:
        """See `Executor.embed`; float32."""
        given = np.array(tokens, dtype=np.int32)
        x = torch.empty(len(given), self.config.hidden)
        self._embed(self._decoder, given.ctypes.data, len(given), x.data_ptr())
        return x

    def run_layer(self, layer: int, x: torch.Tensor, step: Step, pool: PagePool) -> torch.Tensor:
        """See `Executor.run_layer`.

        Raises:
            MemoryError: there is no room for a step of this size.
        """
        pool.apply(step.changes)
        x = x.float().clone(memory_format=torch.contiguous_format)
        native = _step(step, step.tokens, pool)
        failed = self._run_layer(self._decoder, layer, x.data_ptr(), _store(pool), byref(native))
        _check(failed, step)
        return x

    def make_pool(self, layout: PageLayout, frames: int, rows: int = 1) -> PagePool:
        """See `Executor.make_pool`; of bfloat16, without an `obstacle`."""
        if type(layout) is PageLayout:
            return NativePool(layout, frames, rows)
        from engine.coded.layout import CodedLayout
        from engine.native.coded_pool import NativeCodedPool

        assert isinstance(layout, CodedLayout)
        return NativeCodedPool(layout, frames, rows, self._encode_pages)

    @property
    def weights_bytes(self) -> int:
        """See `Executor.weights_bytes`."""
        return self._weights.bytes

    def profile(self, max_rows: int) -> int:
        """See `Executor.profile`: all buffers of such a step are allocated, as at its begin."""
        found: int = self._workspace(self._decoder, max_rows)
        if not found:
            raise MemoryError(f"there is not enough memory for steps of {max_rows:,} tokens")
        return found

    def _encode_pages(self, pool: PagePool, pages: torch.Tensor, out: torch.Tensor) -> None:
        layers, count, _ = out.shape
        if self._encode(
            self._decoder, _store(pool), layers, pages.data_ptr(), count, out.data_ptr()
        ):
            raise MemoryError(f"there is not enough memory to code {count} pages")


def _check(failed: int, step: Step) -> None:
    if failed:
        raise MemoryError(f"there is not enough memory for a step of {step.rows} tokens")
