"""A model's weights as the native kernels read them.

The structures mirror those of source/decoder.h and source/matrix.h.
"""

import ctypes
from ctypes import POINTER, c_float, c_int32, c_void_p
from typing import Any

import torch

from engine.model_config import ModelConfig
from engine.native.packing import Join, by_turns, in_a_row, pack
from engine.weight_scheme import SchemedTensors


class Matrix(ctypes.Structure):
    _fields_ = [
        ("rows", c_int32),
        ("columns", c_int32),
        ("kind", c_int32),
        ("block_bytes", c_int32),
        ("blocks", c_void_p),
        ("bias", c_void_p),
    ]


class Layer(ctypes.Structure):
    _fields_ = [
        ("attention_norm", c_void_p),
        ("qkv", Matrix),
        ("q_norm", c_void_p),
        ("k_norm", c_void_p),
        ("output", Matrix),
        ("mlp_norm", c_void_p),
        ("gate_up", Matrix),
        ("down", Matrix),
    ]


class Model(ctypes.Structure):
    _fields_ = [
        *((name, c_int32) for name in ("layers", "hidden", "intermediate", "heads", "kv_heads")),
        *((name, c_int32) for name in ("head_dim", "vocabulary", "window")),
        ("eps", c_float),
        ("inverse_frequencies", c_void_p),
        ("norm", c_void_p),
        ("embedding", Matrix),
        ("head", Matrix),
        ("layer", POINTER(Layer)),
    ]


class NativeWeights:
    """Packed weights; they live as long as this does.

    Attributes:
        model: where they are, and the sizes of the model.
        bytes: of all of them.
    """

    def __init__(self, config: ModelConfig, tensors: SchemedTensors) -> None:
        """Read and pack the weights.

        Raises:
            WeightsUnusable: a tensor is missing or has the wrong shape.
        """
        self._config = c = config
        self._kept: list[Any] = []  # what the structures point to
        self.bytes = 0
        embedding = self._matrix(tensors, {tensors.embedding: c.vocabulary}, c.hidden)
        tied = c.tied_head or "lm_head.weight" not in tensors
        head = embedding if tied else self._matrix(tensors, {"lm_head": c.vocabulary}, c.hidden)
        frequencies = torch.tensor(c.rope.inverse_frequencies(c.head_dim), dtype=torch.float32)
        norm = self._vector(tensors, f"{tensors.prefix}norm.weight", c.hidden)
        self._layers = (Layer * c.layers)(*(self._layer(tensors, i) for i in range(c.layers)))
        self.model = Model(
            c.layers, c.hidden, c.intermediate, c.heads, c.kv_heads, c.head_dim, c.vocabulary,
            c.sliding_window or 0, c.norm_eps,
            self._keep(frequencies), norm, embedding, head, self._layers,
        )  # fmt: skip

    def _layer(self, tensors: SchemedTensors, index: int) -> Layer:
        c, prefix = self._config, f"{tensors.prefix}layers.{index}."
        attention, mlp = f"{prefix}self_attn.", f"{prefix}mlp."
        queries, pairs = c.heads * c.head_dim, c.kv_heads * c.head_dim
        qkv = {
            f"{attention}q_proj": queries,
            f"{attention}k_proj": pairs,
            f"{attention}v_proj": pairs,
        }
        gate_up = {f"{mlp}gate_proj": c.intermediate, f"{mlp}up_proj": c.intermediate}
        output, down = {f"{attention}o_proj": c.hidden}, {f"{mlp}down_proj": c.hidden}
        return Layer(
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
    ) -> Matrix:
        """Pack matrices of the same input as one."""
        shapes = {f"{name}.weight": (rows, columns) for name, rows in parts.items()}
        packed = pack(tensors.matrices(shapes), join)
        self.bytes += packed.blocks.nbytes
        address = None
        if bias:
            biases = [tensors.get(f"{name}.bias", (rows,)) for name, rows in parts.items()]
            joined = join(biases).float()
            padded = torch.nn.functional.pad(joined, (0, packed.rows - len(joined)))
            self.bytes += padded.nbytes
            address = self._keep(padded)
        return Matrix(
            packed.rows, packed.columns, packed.kind, packed.blocks.shape[1],
            self._keep(packed.blocks), address,
        )  # fmt: skip

    def _vector(self, tensors: SchemedTensors, name: str, size: int) -> int:
        vector = tensors.get(name, (size,)).float()
        self.bytes += vector.nbytes
        return self._keep(vector)

    def _keep(self, tensor: torch.Tensor) -> int:
        self._kept.append(tensor)
        return tensor.data_ptr()
