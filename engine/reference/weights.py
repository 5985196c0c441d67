"""A model's weights as PyTorch tensors on its device."""

from dataclasses import dataclass

import torch

from engine.model_config import ModelConfig
from engine.weight_scheme import SchemedTensors


@dataclass(frozen=True)
class LayerWeights:
    """Weights of one layer; projections that read the same input are stored as one."""

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


@dataclass(frozen=True)
class Weights:
    """Weights of a whole model."""

    embedding: torch.Tensor  # [vocabulary, hidden]
    layers: list[LayerWeights]
    norm: torch.Tensor  # [hidden]
    head: torch.Tensor  # [vocabulary, hidden]; the embedding itself where they are tied

    @property
    def bytes(self) -> int:
        """Of all tensors; a tied head is counted once."""
        tensors = {id(t): t for t in (self.embedding, self.head, self.norm)}
        for layer in self.layers:
            tensors |= {id(t): t for t in vars(layer).values() if t is not None}
        return sum(t.numel() * t.element_size() for t in tensors.values())


def read_weights(
    config: ModelConfig, tensors: SchemedTensors, device: torch.device, dtype: torch.dtype
) -> Weights:
    """Read a model's weights.

    Raises:
        WeightsUnusable: a tensor is missing or has the wrong shape.
    """
    shape = (config.vocabulary, config.hidden)
    embedding = tensors.get(f"{tensors.embedding}.weight", shape).to(device, dtype)
    tied = config.tied_head or "lm_head.weight" not in tensors
    layers = (f"{tensors.prefix}layers.{i}." for i in range(config.layers))
    return Weights(
        embedding=embedding,
        layers=[_read_layer(config, tensors, prefix, device, dtype) for prefix in layers],
        norm=tensors.get(f"{tensors.prefix}norm.weight", (config.hidden,)).to(device, dtype),
        head=embedding if tied else tensors.get("lm_head.weight", shape).to(device, dtype),
    )


def _read_layer(
    c: ModelConfig, tensors: SchemedTensors, prefix: str, device: torch.device, dtype: torch.dtype
) -> LayerWeights:
    q_rows, kv_rows = c.heads * c.head_dim, c.kv_heads * c.head_dim

    def read(name: str, *shape: int) -> torch.Tensor:
        return tensors.get(prefix + name, shape).to(device, dtype)

    def joined(block: str, rows: dict[str, int], columns: int) -> torch.Tensor:
        return torch.cat([read(f"{block}.{n}.weight", r, columns) for n, r in rows.items()])

    def biases(block: str, rows: dict[str, int], present: bool) -> torch.Tensor | None:
        if not present:
            return None
        return torch.cat([read(f"{block}.{n}.bias", r) for n, r in rows.items()])

    qkv = {"q_proj": q_rows, "k_proj": kv_rows, "v_proj": kv_rows}
    gate_up = {"gate_proj": c.intermediate, "up_proj": c.intermediate}
    output, down = {"o_proj": c.hidden}, {"down_proj": c.hidden}
    return LayerWeights(
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
