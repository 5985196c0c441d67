"""Every supported family on tiny random weights, against transformers, in float32."""

from collections.abc import Callable
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
import torch

from engine import Engine, EngineConfig
from engine.errors import UnsupportedArchitecture, WeightsUnusable
from tests.engine.driving import compute_in_chunks

_LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 256,
}  # fmt: skip

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama, grouped heads": ("Llama", {}),
    "llama, as many KV heads as heads": ("Llama", {"num_key_value_heads": 4}),
    "llama, one KV head": ("Llama", {"num_key_value_heads": 1}),
    "llama, untied head": ("Llama", {"tie_word_embeddings": False}),
    "llama, head_dim 24": ("Llama", {"head_dim": 24}),
    "llama, biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, llama3 rope scaling": ("Llama", {"rope_parameters": _LLAMA3}),
    "mistral, whole context": ("Mistral", {"sliding_window": None}),
    "mistral, sliding window": ("Mistral", {"sliding_window": 20}),
    "qwen2, qkv bias": ("Qwen2", {}),
    "qwen3, q and k norms": ("Qwen3", {}),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_family_equals_transformers(name: str, make_tiny: Callable[..., Path]) -> None:
    from transformers import AutoModelForCausalLM

    family, changes = FAMILIES[name]
    folder = make_tiny(family, **changes)
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    engine = Engine(EngineConfig(str(folder), device="cpu", dtype="float32", max_sessions=2))
    tokens = torch.randint(17, 49152, (300,), generator=torch.Generator().manual_seed(3)).tolist()
    with torch.inference_mode():
        expected = theirs(torch.tensor([tokens])).logits[0]
    for chunk in (300, 37, 1):
        session = engine.open(tokens[:1])
        session.tokens[:] = tokens if chunk > 1 else tokens[:60]  # by ones is decoding
        ours = compute_in_chunks(engine, session, repeat(chunk))
        worst = (ours - expected[: len(session.tokens)]).abs().max()
        assert worst < 1e-3, f"chunks of {chunk}: {worst}"
        engine.close(session)
    engine.shutdown()


def test_another_architecture_is_refused_with_what_is_supported(
    make_tiny: Callable[..., Path],
) -> None:
    folder = make_tiny()
    config = folder / "config.json"
    config.write_text(config.read_text().replace("LlamaForCausalLM", "Gemma3ForCausalLM"))
    with pytest.raises(UnsupportedArchitecture, match=r"Gemma3ForCausalLM.*LlamaForCausalLM"):
        Engine(EngineConfig(str(folder)))


def test_a_rope_scaling_that_is_not_known_is_refused(make_tiny: Callable[..., Path]) -> None:
    folder = make_tiny(rope_parameters=_LLAMA3)
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"llama3"', '"yarn"'))
    with pytest.raises(WeightsUnusable, match="yarn"):
        Engine(EngineConfig(str(folder)))


def test_broken_and_missing_weights_are_refused(make_tiny: Callable[..., Path]) -> None:
    folder = make_tiny()
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100_000])
    with pytest.raises(WeightsUnusable, match=r"broken or incomplete"):
        Engine(EngineConfig(str(folder)))
    weights.unlink()
    with pytest.raises(WeightsUnusable, match="holds no safetensors"):
        Engine(EngineConfig(str(folder)))
