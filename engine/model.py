"""One decoder, driven by the model's configuration: Llama, Mistral, Qwen2, Qwen3.

The forward pass takes a ragged batch: the new tokens of several sequences, one after the other in
one row dimension, without padding. Everything but attention works on single rows and does not care
whose they are; attention is told by the batch.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from engine.attention.batch import Attention, Batch
from engine.kv.layout import PageLayout
from engine.kv.pool import PagePool
from engine.model_config import ModelConfig
from engine.weight_scheme import SchemedTensors


@dataclass(frozen=True)
class Layer:
    """Weights of one decoder block; projections that read the same input are stored as one."""

    attention_norm: torch.Tensor  # [hidden]
    qkv: torch.Tensor  # [(heads + 2 * kv_heads) * head_dim, hidden]
    qkv_bias: torch.Tensor | None
    q_norm: torch.Tensor | None  # [head_dim]
    k_norm: torch.Tensor | None  # [head_dim]
    output: torch.Tensor  # [hidden, heads * head_dim]
    output_bias: torch.Tensor | None
    mlp_norm: torch.Tensor  # [hidden]
    gate_up: torch.Tensor  # [2 * intermediate, hidden]
    gate_up_bias: torch.Tensor | None
    down: torch.Tensor  # [hidden, intermediate]
    down_bias: torch.Tensor | None


class Decoder:
    """A decoder-only transformer with rotary positions, RMS norms and a gated MLP."""

    def __init__(
        self,
        config: ModelConfig,
        tensors: SchemedTensors,
        device: torch.device,
        dtype: torch.dtype,
        attention: Attention,
    ) -> None:
        """Read the weights.

        Raises:
            WeightsUnusable: a tensor is missing or has the wrong shape.
        """
        self.config = config
        self.device, self.dtype = device, dtype
        self.torch_threads = torch.get_num_threads()
        self._attention = attention
        c, prefix = config, tensors.prefix

        def read(*names: str, shape: tuple[int, ...]) -> torch.Tensor:
            parts = [tensors.get(name, shape).to(device, dtype) for name in names]
            return parts[0] if len(parts) == 1 else torch.cat(parts)

        self.embedding = read(f"{tensors.embedding}.weight", shape=(c.vocabulary, c.hidden))
        tied = c.tied_head or ("lm_head.weight" not in tensors)
        self.head = (
            self.embedding if tied else read("lm_head.weight", shape=(c.vocabulary, c.hidden))
        )
        self.norm = read(f"{prefix}norm.weight", shape=(c.hidden,))
        self.layers = [self._read_layer(f"{prefix}layers.{i}.", tensors) for i in range(c.layers)]
        self._inverse_frequencies = torch.tensor(
            c.rope.inverse_frequencies(c.head_dim), dtype=torch.float64, device="cpu"
        ).to(device, torch.float64 if dtype == torch.float64 else torch.float32)

    @property
    def weights_bytes(self) -> int:
        """Bytes of all weight tensors; a tied head is counted once."""
        tensors = {id(t): t for t in (self.embedding, self.head, self.norm)}
        for layer in self.layers:
            tensors |= {id(t): t for t in vars(layer).values() if t is not None}
        return sum(t.numel() * t.element_size() for t in tensors.values())

    def forward(self, batch: Batch, pool: PagePool) -> torch.Tensor:
        """Run the batch's rows, write their keys and values to the pool.

        Returns:
            float32 logits (float64 for a float64 model) of `batch.logit_rows`:
            [logit rows, vocabulary].
        """
        x, rotation = self.embed(batch.tokens), self._rotation(batch.positions)
        for index in range(self.config.layers):
            x = self._block(index, index, x, rotation, batch, pool)
        x = rms_norm(x[batch.logit_rows], self.norm, self.config.norm_eps)
        logits = F.linear(x, self.head)
        return logits if logits.dtype == torch.float64 else logits.float()

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """The residual stream of tokens [rows] before the first block: [rows, hidden]."""
        return F.embedding(tokens, self.embedding)

    def run_layer(self, layer: int, x: torch.Tensor, batch: Batch, pool: PagePool) -> torch.Tensor:
        """One block on the batch's rows, with keys and values in layer 0 of a pool of one layer.

        Args:
            layer: index of the block.
            x: the residual stream before it: [rows, hidden].
            batch: whose rows these are.
            pool: holds this block's earlier keys and values.

        Returns:
            The residual stream after it; the same bits that `forward` has for the same rows.
        """
        return self._block(layer, 0, x, self._rotation(batch.positions), batch, pool)

    def make_pool(self, layout: PageLayout, frames: int) -> PagePool:
        """A pool in the order that this decoder reads."""
        return PagePool(layout, frames, self.device)

    def _block(
        self,
        index: int,
        pool_layer: int,
        x: torch.Tensor,
        rotation: tuple[torch.Tensor, torch.Tensor],
        batch: Batch,
        pool: PagePool,
    ) -> torch.Tensor:
        c, layer = self.config, self.layers[index]
        h = rms_norm(x, layer.attention_norm, c.norm_eps)
        qkv = F.linear(h, layer.qkv, layer.qkv_bias).view(-1, c.heads + 2 * c.kv_heads, c.head_dim)
        q, k, v = torch.split(qkv, [c.heads, c.kv_heads, c.kv_heads], dim=1)
        if layer.q_norm is not None and layer.k_norm is not None:
            q = rms_norm(q, layer.q_norm, c.norm_eps)
            k = rms_norm(k, layer.k_norm, c.norm_eps)
        q, k = rotate(q, *rotation), rotate(k, *rotation)
        mixed = self._attention.attend(pool_layer, q, k, v, batch, pool)
        x = x + F.linear(mixed.flatten(1), layer.output, layer.output_bias)
        h = rms_norm(x, layer.mlp_norm, c.norm_eps)
        gate, up = F.linear(h, layer.gate_up, layer.gate_up_bias).chunk(2, dim=-1)
        return x + F.linear(F.silu(gate) * up, layer.down, layer.down_bias)

    def _rotation(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines for rows at `positions`: two of [rows, 1, head_dim]."""
        angles = positions[:, None].to(self._inverse_frequencies.dtype) * self._inverse_frequencies
        angles = torch.cat((angles, angles), dim=-1)[:, None, :]
        return angles.cos().to(self.dtype), angles.sin().to(self.dtype)

    def _read_layer(self, prefix: str, tensors: SchemedTensors) -> Layer:
        c = self.config
        q_rows, kv_rows = c.heads * c.head_dim, c.kv_heads * c.head_dim

        def read(name: str, *shape: int) -> torch.Tensor:
            return tensors.get(prefix + name, shape).to(self.device, self.dtype)

        def joined(block: str, rows: dict[str, int], columns: int) -> torch.Tensor:
            return torch.cat([read(f"{block}.{n}.weight", r, columns) for n, r in rows.items()])

        def biases(block: str, rows: dict[str, int], present: bool) -> torch.Tensor | None:
            if not present:
                return None
            return torch.cat([read(f"{block}.{n}.bias", r) for n, r in rows.items()])

        qkv = {"q_proj": q_rows, "k_proj": kv_rows, "v_proj": kv_rows}
        gate_up = {"gate_proj": c.intermediate, "up_proj": c.intermediate}
        output, down = {"o_proj": c.hidden}, {"down_proj": c.hidden}
        return Layer(
            attention_norm=read("input_layernorm.weight", c.hidden),
            qkv=joined("self_attn", qkv, c.hidden),
            qkv_bias=biases("self_attn", qkv, c.qkv_bias),
            q_norm=read("self_attn.q_norm.weight", c.head_dim) if c.qk_norm else None,
            k_norm=read("self_attn.k_norm.weight", c.head_dim) if c.qk_norm else None,
            output=joined("self_attn", output, q_rows),
            output_bias=biases("self_attn", output, c.output_bias),
            mlp_norm=read("post_attention_layernorm.weight", c.hidden),
            gate_up=joined("mlp", gate_up, c.hidden),
            gate_up_bias=biases("mlp", gate_up, c.mlp_bias),
            down=joined("mlp", down, c.intermediate),
            down_bias=biases("mlp", down, c.mlp_bias),
        )


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x / rms(x) * weight over the last dimension (Zhang & Sennrich, 2019).

    The mean square is taken in float32 at least, the product with the weight in x's dtype: the
    order of roundings that the models were trained with.
    """
    wide = x if x.dtype == torch.float64 else x.float()
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return weight * wide.to(x.dtype)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate pairs (i, i + head_dim / 2) of x [rows, heads, head_dim] by each row's angles."""
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin
