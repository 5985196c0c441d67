"""The native decoder behind the engine's interface.

The structures mirror those of source/decoder.h, source/matrix.h and source/attention.h.
"""

import ctypes
from ctypes import POINTER, c_float, c_int32, c_int64, c_void_p
from typing import Any

import torch

from engine.attention.batch import Batch
from engine.kv.layout import PageLayout
from engine.kv.pool import PagePool
from engine.model_config import ModelConfig
from engine.native.build import NativeLibrary
from engine.native.packing import PANEL, Join, by_turns, in_a_row, pack
from engine.native.pool import NativePool, Store
from engine.quantised import GROUP
from engine.weight_scheme import SchemedTensors


class _Matrix(ctypes.Structure):
    _fields_ = [
        ("rows", c_int32),
        ("columns", c_int32),
        ("kind", c_int32),
        ("block_bytes", c_int32),
        ("blocks", c_void_p),
        ("bias", c_void_p),
    ]


class _Layer(ctypes.Structure):
    _fields_ = [
        ("attention_norm", c_void_p),
        ("qkv", _Matrix),
        ("q_norm", c_void_p),
        ("k_norm", c_void_p),
        ("output", _Matrix),
        ("mlp_norm", c_void_p),
        ("gate_up", _Matrix),
        ("down", _Matrix),
    ]


class _Model(ctypes.Structure):
    _fields_ = [
        *((name, c_int32) for name in ("layers", "hidden", "intermediate", "heads", "kv_heads")),
        *((name, c_int32) for name in ("head_dim", "vocabulary", "window")),
        ("eps", c_float),
        ("inverse_frequencies", c_void_p),
        ("norm", c_void_p),
        ("embedding", _Matrix),
        ("head", _Matrix),
        ("layer", POINTER(_Layer)),
    ]


class _Span(ctypes.Structure):
    _fields_ = [
        ("start", c_int64),
        ("stop", c_int64),
        ("context", c_int64),
        ("table", c_void_p),
    ]


class _Step(ctypes.Structure):
    _fields_ = [
        *((name, c_int64) for name in ("rows", "spans", "logit_rows")),
        *((name, c_void_p) for name in ("tokens", "positions", "pages")),
        ("span", POINTER(_Span)),
        ("logit_row", c_void_p),
        ("logits", c_void_p),
    ]


def _step(batch: Batch, logits: torch.Tensor | None = None) -> _Step:
    spans = (_Span * len(batch.spans))(
        *(_Span(s.start, s.stop, s.context, s.table.data_ptr()) for s in batch.spans)
    )
    return _Step(
        batch.tokens.numel(), len(batch.spans), 0 if logits is None else len(logits),
        batch.tokens.data_ptr(), batch.positions.data_ptr(), batch.pages.data_ptr(),
        spans, batch.logit_rows.data_ptr(), None if logits is None else logits.data_ptr(),
    )  # fmt: skip


def _store(pool: PagePool) -> Any:
    assert isinstance(pool, NativePool), "the kernels read no other pool"
    return ctypes.byref(pool.store)


def _check(failed: int, batch: Batch) -> None:
    if failed:
        raise MemoryError(f"there is not enough memory for a step of {len(batch.tokens)} tokens")


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


class NativeDecoder:
    """A decoder whose forward pass is one native call.

    Weights are bfloat16, or quantised as `SchemedTensors` says; keys and values bfloat16; the
    residual stream and all sums float32.
    """

    def __init__(
        self, library: NativeLibrary, config: ModelConfig, tensors: SchemedTensors, threads: int
    ) -> None:
        """Read and pack the weights.

        Args:
            library: what runs it.
            config: one without an `obstacle`.
            threads: how many share a step.

        Raises:
            WeightsUnusable: a tensor is missing or has the wrong shape.
            MemoryError: there is no room for its threads and buffers.
        """
        self.config = config
        self.device, self.dtype = torch.device("cpu"), torch.bfloat16
        self.torch_threads = 1
        self.variant = library.variant
        self.weights_bytes = 0
        self._kept: list[Any] = []  # what the structures point to
        c = config
        table = {tensors.embedding: c.vocabulary}
        embedding = self._matrix(tensors, table, c.hidden)
        tied = c.tied_head or "lm_head.weight" not in tensors
        head = embedding if tied else self._matrix(tensors, {"lm_head": c.vocabulary}, c.hidden)
        frequencies = torch.tensor(c.rope.inverse_frequencies(c.head_dim), dtype=torch.float32)
        norm = self._vector(tensors, f"{tensors.prefix}norm.weight", c.hidden)
        self._layers = (_Layer * c.layers)(*(self._layer(tensors, i) for i in range(c.layers)))
        model = _Model(
            c.layers, c.hidden, c.intermediate, c.heads, c.kv_heads, c.head_dim, c.vocabulary,
            c.sliding_window or 0, c.norm_eps,
            self._keep(frequencies), norm, embedding, head, self._layers,
        )  # fmt: skip
        self._forward = library.functions.pageturn_forward
        self._forward.argtypes = (c_void_p, POINTER(Store), POINTER(_Step))
        self._embed = library.functions.pageturn_embed
        self._embed.argtypes = (c_void_p, c_void_p, c_int32, c_void_p)
        self._run_layer = library.functions.pageturn_layer
        self._run_layer.argtypes = (c_void_p, c_int32, c_void_p, POINTER(Store), POINTER(_Step))
        self._encode = library.functions.pageturn_encode
        self._encode.argtypes = (
            c_void_p, POINTER(Store), c_int32, c_void_p, c_int32, c_void_p,
        )  # fmt: skip
        self._close = library.functions.pageturn_close
        self._close.argtypes = (c_void_p,)
        begin = library.functions.pageturn_open
        begin.argtypes, begin.restype = (POINTER(_Model), c_int32), c_void_p
        self._decoder = begin(ctypes.byref(model), threads)
        if not self._decoder:
            raise MemoryError("there is not enough memory for the decoder's threads")

    def __del__(self) -> None:
        if getattr(self, "_decoder", None):
            self._close(self._decoder)

    def make_pool(self, layout: PageLayout, frames: int) -> NativePool:
        """A pool for this decoder.

        Args:
            layout: of bfloat16, without an `obstacle`.
            frames: how many pages in full precision it holds.
        """
        return NativePool(layout, frames, self._encode_pages)

    def _encode_pages(self, pool: NativePool, pages: torch.Tensor, out: torch.Tensor) -> None:
        layers, count, _ = out.shape
        if self._encode(
            self._decoder, _store(pool), layers, pages.data_ptr(), count, out.data_ptr()
        ):
            raise MemoryError(f"there is not enough memory to code {count} pages")

    def forward(self, batch: Batch, pool: PagePool) -> torch.Tensor:
        """See `Decoder.forward`.

        Args:
            batch: int64 tensors, contiguous.
            pool: one of `make_pool`.

        Raises:
            MemoryError: there is no room for a step of this size.
        """
        logits = torch.empty(batch.logit_rows.numel(), self.config.vocabulary)
        step = _step(batch, logits)
        _check(self._forward(self._decoder, _store(pool), ctypes.byref(step)), batch)
        return logits

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Rows of the embedding, where the residual stream begins: [rows, hidden], float32."""
        x = torch.empty(len(tokens), self.config.hidden)
        self._embed(self._decoder, tokens.data_ptr(), len(tokens), x.data_ptr())
        return x

    def run_layer(self, layer: int, x: torch.Tensor, batch: Batch, pool: PagePool) -> torch.Tensor:
        """See `Decoder.run_layer`.

        Raises:
            MemoryError: there is no room for a step of this size.
        """
        x = x.float().clone(memory_format=torch.contiguous_format)
        step = _step(batch)
        _check(
            self._run_layer(self._decoder, layer, x.data_ptr(), _store(pool), ctypes.byref(step)),
            batch,
        )
        return x

    # -- weights -----------------------------------------------------------------------------

    def _layer(self, tensors: SchemedTensors, index: int) -> _Layer:
        c, prefix = self.config, f"{tensors.prefix}layers.{index}."
        attention, mlp = f"{prefix}self_attn.", f"{prefix}mlp."
        queries, pairs = c.heads * c.head_dim, c.kv_heads * c.head_dim
        qkv = {
            f"{attention}q_proj": queries,
            f"{attention}k_proj": pairs,
            f"{attention}v_proj": pairs,
        }
        gate_up = {f"{mlp}gate_proj": c.intermediate, f"{mlp}up_proj": c.intermediate}
        output, down = {f"{attention}o_proj": c.hidden}, {f"{mlp}down_proj": c.hidden}
        return _Layer(
            self._vector(tensors, f"{prefix}input_layernorm.weight", c.hidden),
            self._matrix(tensors, qkv, c.hidden, c.qkv_bias),
            self._vector(tensors, f"{attention}q_norm.weight", c.head_dim) if c.qk_norm else None,
            self._vector(tensors, f"{attention}k_norm.weight", c.head_dim) if c.qk_norm else None,
            self._matrix(tensors, output, queries, c.output_bias),
            self._vector(tensors, f"{prefix}post_attention_layernorm.weight", c.hidden),
            self._matrix(tensors, gate_up, c.hidden, c.mlp_bias, by_turns),
            self._matrix(tensors, down, c.intermediate, c.mlp_bias),
        )

    def _matrix(
        self,
        tensors: SchemedTensors,
        parts: dict[str, int],
        columns: int,
        bias: bool = False,
        join: Join = in_a_row,
    ) -> _Matrix:
        """Pack matrices of the same input as one."""
        shapes = {f"{name}.weight": (rows, columns) for name, rows in parts.items()}
        packed = pack(tensors.matrices(shapes), join)
        self.weights_bytes += packed.blocks.nbytes
        address = None
        if bias:
            biases = [tensors.get(f"{name}.bias", (rows,)) for name, rows in parts.items()]
            joined = join(biases).float()
            padded = torch.nn.functional.pad(joined, (0, packed.rows - len(joined)))
            self.weights_bytes += padded.nbytes
            address = self._keep(padded)
        return _Matrix(
            packed.rows, packed.columns, packed.kind, packed.blocks.shape[1],
            self._keep(packed.blocks), address,
        )  # fmt: skip

    def _vector(self, tensors: SchemedTensors, name: str, size: int) -> int:
        vector = tensors.get(name, (size,)).float()
        self.weights_bytes += vector.nbytes
        return self._keep(vector)

    def _keep(self, tensor: torch.Tensor) -> int:
        self._kept.append(tensor)
        return tensor.data_ptr()
