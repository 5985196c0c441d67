"""One transformer, driven by the model's configuration: Llama, Mistral, Qwen2, Qwen3.

Everything but attention works on single rows and does not care whose they are; attention is told
by the step.
"""

import torch
import torch.nn.functional as F

from engine.model_config import ModelConfig
from engine.reference.attention import PagedAttention
from engine.reference.weights import Weights


class Transformer:
    """A decoder-only transformer with rotary positions, RMS norms and a gated MLP."""

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        self.config, self.weights = config, weights
        self.dtype = weights.norm.dtype
        self._inverse_frequencies = torch.tensor(
            config.rope.inverse_frequencies(config.head_dim), dtype=torch.float64, device="cpu"
        ).to(weights.norm.device, torch.float64 if self.dtype == torch.float64 else torch.float32)

    def forward(
        self, tokens: torch.Tensor, logit_rows: torch.Tensor, attention: PagedAttention
    ) -> torch.Tensor:
        """Run a step's rows through all layers.

        Args:
            tokens: [rows], int64.
            logit_rows: rows whose logits are wanted: [logits], int64.
            attention: of the step.

        Returns:
            Logits [logits, vocabulary].
        """
        x, rotation = self.embed(tokens), self.rotation(attention.positions)
        for index in range(self.config.layers):
            x = self.layer(index, index, x, rotation, attention)
        x = rms_norm(x[logit_rows], self.weights.norm, self.config.norm_eps)
        return F.linear(x, self.weights.head)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """The residual stream of tokens [rows] before the first layer: [rows, hidden]."""
        return F.embedding(tokens, self.weights.embedding)

    def layer(
        self,
        index: int,
        pool_layer: int,
        x: torch.Tensor,
        rotation: tuple[torch.Tensor, torch.Tensor],
        attention: PagedAttention,
    ) -> torch.Tensor:
        """One layer of weights on x [rows, hidden], with its KV in a layer of the pool."""
        c, layer = self.config, self.weights.layers[index]
        h = rms_norm(x, layer.attention_norm, c.norm_eps)
        qkv = F.linear(h, layer.qkv, layer.qkv_bias).view(-1, c.heads + 2 * c.kv_heads, c.head_dim)
        q, k, v = torch.split(qkv, [c.heads, c.kv_heads, c.kv_heads], dim=1)
        if layer.q_norm is not None and layer.k_norm is not None:
            q = rms_norm(q, layer.q_norm, c.norm_eps)
            k = rms_norm(k, layer.k_norm, c.norm_eps)
        mixed = attention.attend(pool_layer, rotate(q, *rotation), rotate(k, *rotation), v)
        x = x + F.linear(mixed.flatten(1), layer.output, layer.output_bias)
        h = rms_norm(x, layer.mlp_norm, c.norm_eps)
        gate, up = F.linear(h, layer.gate_up, layer.gate_up_bias).chunk(2, dim=-1)
        return x + F.linear(F.silu(gate) * up, layer.down, layer.down_bias)

    def rotation(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines for rows at `positions`: two of [rows, 1, head_dim]."""
        angles = positions[:, None].to(self._inverse_frequencies.dtype) * self._inverse_frequencies
        angles = torch.cat((angles, angles), dim=-1)[:, None, :]
        return angles.cos().to(self.dtype), angles.sin().to(self.dtype)


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
