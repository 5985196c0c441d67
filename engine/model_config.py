"""What `config.json` says of a decoder, reduced to what the computation needs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.errors import UnsupportedArchitecture, WeightsUnusable

FACTORS = "frequency_factors"
"""Rope scaling of a converted GGUF file: each frequency is divided by a factor of its own."""

SUPPORTED = (
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
)


@dataclass(frozen=True)
class Rope:
    """Rotary position embedding (Su et al., 2021), with Llama 3's frequency scaling if given."""

    theta: float = 10_000.0
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context_tokens: int = 0
    factors: tuple[float, ...] = ()
    kind: str = "default"

    def inverse_frequencies(self, head_dim: int) -> list[float]:
        """theta ** (-2 i / head_dim) for each pair i, scaled. [head_dim / 2]"""
        plain = [self.theta ** (-2 * i / head_dim) for i in range(head_dim // 2)]
        if self.kind == "linear":
            return [f / self.factor for f in plain]
        if self.kind == FACTORS:
            return [f / factor for f, factor in zip(plain, self.factors, strict=True)]
        if self.kind == "llama3":
            return [self._llama3(f) for f in plain]
        return plain

    def _llama3(self, frequency: float) -> float:
        # Long waves are slowed by the factor, short ones kept, those between blended (Llama 3.1).
        turns = self.original_context_tokens * frequency / (2 * math.pi)
        if turns < self.low_freq_factor:
            return frequency / self.factor
        if turns > self.high_freq_factor:
            return frequency
        blend = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        return (1 - blend) * frequency / self.factor + blend * frequency


@dataclass(frozen=True)
class ModelConfig:
    """The sizes and switches of a decoder.

    Attributes:
        heads: query heads; `kv_heads` of them share keys and values in groups.
        qk_norm: RMS norms over head_dim on queries and keys before rotation (Qwen3).
        sliding_window: keys that a row sees, its own included; None means all.
    """

    architecture: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    context_tokens: int
    norm_eps: float
    rope: Rope
    tied_head: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool
    sliding_window: int | None

    @property
    def kv_values_per_token(self) -> int:
        """Numbers that one token keeps: keys and values of every layer."""
        return 2 * self.layers * self.kv_heads * self.head_dim

    @property
    def parameters(self) -> int:
        """Numbers in the matrices; norms and biases are too few to matter."""
        attention = self.hidden * self.head_dim * 2 * (self.heads + self.kv_heads)
        layer = attention + 3 * self.hidden * self.intermediate
        embeddings = self.vocabulary * self.hidden * (1 if self.tied_head else 2)
        return self.layers * layer + embeddings

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "ModelConfig":
        """Read a Hugging Face configuration.

        Raises:
            UnsupportedArchitecture: not one of `SUPPORTED`.
            WeightsUnusable: a field is missing or contradicts another.
        """
        quantised = data.get("quantization_config")
        if quantised:
            method = quantised.get("quant_method", "unknown")
            raise WeightsUnusable(
                f"The model's weights are quantised ({method}), which is not supported: "
                "take its 16-bit version, or a GGUF file."
            )
        name = (data.get("architectures") or [data.get("model_type") or "unknown"])[0]
        if name not in SUPPORTED:
            raise UnsupportedArchitecture(str(name), SUPPORTED)
        try:
            return _read(str(name), data)
        except (KeyError, TypeError, ValueError) as error:
            raise WeightsUnusable(
                f"The model's config.json cannot be used: {type(error).__name__}: {error}"
            ) from error


def _read(name: str, data: Mapping[str, Any]) -> ModelConfig:
    if data.get("hidden_act", "silu") != "silu":
        raise ValueError(f"activation {data['hidden_act']!r} is not silu")
    heads = int(data["num_attention_heads"])
    kv_heads = int(data.get("num_key_value_heads") or heads)
    if heads % kv_heads:
        raise ValueError(f"{heads} query heads cannot share {kv_heads} KV heads evenly")
    bias = bool(data.get("attention_bias", False))
    qwen2 = name == "Qwen2ForCausalLM"
    return ModelConfig(
        architecture=name,
        layers=int(data["num_hidden_layers"]),
        hidden=int(data["hidden_size"]),
        intermediate=int(data["intermediate_size"]),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=int(data.get("head_dim") or int(data["hidden_size"]) // heads),
        vocabulary=int(data["vocab_size"]),
        context_tokens=int(data["max_position_embeddings"]),
        norm_eps=float(data["rms_norm_eps"]),
        rope=_rope(data),
        tied_head=bool(data.get("tie_word_embeddings", False)),
        qkv_bias=bias or qwen2,
        output_bias=bias and not qwen2,
        mlp_bias=bool(data.get("mlp_bias", False)),
        qk_norm=name == "Qwen3ForCausalLM",
        sliding_window=_sliding_window(name, data),
    )


def _rope(data: Mapping[str, Any]) -> Rope:
    # transformers 5 writes rope_parameters; older files rope_theta and rope_scaling.
    scaling = data.get("rope_parameters") or data.get("rope_scaling") or {}
    theta = float(scaling.get("rope_theta") or data.get("rope_theta") or 10_000.0)
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if kind == "default":
        return Rope(theta)
    if kind == "linear":
        return Rope(theta, factor=float(scaling["factor"]), kind=kind)
    if kind == FACTORS:
        return Rope(theta, factors=tuple(scaling["factors"]), kind=kind)
    if kind == "llama3":
        return Rope(
            theta,
            factor=float(scaling["factor"]),
            low_freq_factor=float(scaling["low_freq_factor"]),
            high_freq_factor=float(scaling["high_freq_factor"]),
            original_context_tokens=int(scaling["original_max_position_embeddings"]),
            kind=kind,
        )
    raise ValueError(f"rope scaling {kind!r} is not one of default, linear, llama3")


def _sliding_window(name: str, data: Mapping[str, Any]) -> int | None:
    window = data.get("sliding_window")
    if not window or name == "LlamaForCausalLM":
        return None
    if name.startswith("Qwen"):
        if not data.get("use_sliding_window", False):
            return None
        raise ValueError("a sliding window in some layers only is not supported")
    return int(window)
