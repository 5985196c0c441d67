"""GGUF files of every family are converted to what they were made from."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from engine import Engine, EngineConfig, Sampling
from engine.errors import WeightsUnusable
from tests.engine.driving import compute

_BLOCK = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}  # fmt: skip
_ROOT = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def _gguf_name(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if stem in _ROOT:
        return f"{_ROOT[stem]}.{kind}"
    _, _, index, rest = stem.split(".", 3)
    return f"blk.{index}.{_BLOCK[rest]}.{kind}"


def _interleave(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rotary pairs side by side, as GGUF files of Llama models have them."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def write_gguf(
    folder: Path, file: Path, arch: str, rope_factors: list[float] | None = None
) -> None:
    """Write a model folder as a GGUF file with its matrices in Q8_0 and the rest in float32."""
    config = json.loads((folder / "config.json").read_text())
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    writer = gguf.GGUFWriter(file, arch)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    vocabulary = sorted(tokenizer["model"]["vocab"].items(), key=lambda item: item[1])
    special = {token["id"] for token in tokenizer["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([token for token, _ in vocabulary])
    writer.add_token_types([3 if i in special else 1 for _, i in vocabulary])
    writer.add_token_merges([" ".join(merge) for merge in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template((folder / "chat_template.jinja").read_text())
    if rope_factors:
        writer.add_tensor("rope_freqs.weight", np.array(rope_factors, dtype=np.float32))
    for name, tensor in load_file(folder / "model.safetensors").items():
        weight = tensor.float().numpy()
        if arch == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            heads = "num_attention_heads" if "q_proj" in name else "num_key_value_heads"
            weight = _interleave(weight, config[heads])
        if weight.ndim == 2:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(_gguf_name(name), gguf.quantize(weight, kind), raw_dtype=kind)
        else:
            writer.add_tensor(_gguf_name(name), weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _logits(engine: Engine, tokens: list[int]) -> torch.Tensor:
    session = engine.open(tokens)
    engine._cache.reserve(session, len(tokens))
    return compute(engine, [(session, len(tokens))])


FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama, untied": ("Llama", {"tie_word_embeddings": False}),
    "mistral": ("Mistral", {"sliding_window": None}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {}),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_file_gives_the_logits_of_the_folder_it_was_made_from(
    name: str, make_tiny: Callable[..., Path], tmp_path: Path
) -> None:
    family, changes = FAMILIES[name]
    folder = make_tiny(family, vocab_size=1000, **changes)
    arch = "llama" if family == "Mistral" else family.lower()  # so do files of Mistral models
    file = tmp_path / "tiny.gguf"
    write_gguf(folder, file, arch)
    original = Engine(EngineConfig(str(folder), device="cpu", dtype="float32"))
    converted = Engine(EngineConfig(str(file), device="cpu", dtype="float32"))
    tokens = list(range(300, 420))
    expected, found = _logits(original, tokens), _logits(converted, tokens)
    # Q8_0 keeps eight bits a weight.
    assert (found - expected).abs().mean() < 0.05 * expected.abs().mean()
    assert converted.format.user("Hi <|im_end|>", True) == original.format.user(
        "Hi <|im_end|>", True
    )
    answer = converted.generate(
        converted.open(), converted.format.user("Hi", True), Sampling(max_tokens=4)
    )
    assert answer.result().tokens
    original.shutdown()
    converted.shutdown()


def test_a_converted_folder_is_one_that_transformers_reads(
    make_tiny: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoModelForCausalLM

    monkeypatch.setattr("engine.gguf_file._SHARD_BYTES", 100_000)
    file = tmp_path / "tiny.gguf"
    write_gguf(make_tiny(vocab_size=1000), file, "llama")
    engine = Engine(EngineConfig(str(file), device="cpu", dtype="float32"))
    (folder,) = tmp_path.glob("*.converted")
    assert len(list(folder.glob("*.safetensors"))) > 1
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokens = list(range(300, 360))
    with torch.inference_mode():
        expected = theirs(torch.tensor([tokens])).logits[0]
    assert (_logits(engine, tokens) - expected).abs().max() < 1e-3
    engine.shutdown()


def test_a_files_rope_factors_are_applied(make_tiny: Callable[..., Path], tmp_path: Path) -> None:
    scaling = {
        "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
    }  # fmt: skip
    folder = make_tiny("Llama", vocab_size=1000, rope_parameters=scaling)
    original = Engine(EngineConfig(str(folder), device="cpu", dtype="float32"))
    rope = original._executor.config.rope
    plain = [10000.0 ** (-2 * i / 16) for i in range(8)]
    factors = [p / f for p, f in zip(plain, rope.inverse_frequencies(16), strict=True)]
    assert max(factors) > 7
    file = tmp_path / "scaled.gguf"
    write_gguf(folder, file, "llama", rope_factors=factors)
    converted = Engine(EngineConfig(str(file), device="cpu", dtype="float32"))
    assert converted._executor.config.rope.inverse_frequencies(16) == pytest.approx(
        rope.inverse_frequencies(16), rel=1e-5
    )
    original.shutdown()
    converted.shutdown()


def test_a_file_is_converted_once_and_again_when_it_changes(
    make_tiny: Callable[..., Path], tmp_path: Path
) -> None:
    folder = make_tiny(vocab_size=1000)
    file, home = tmp_path / "tiny.gguf", tmp_path / "converted"
    write_gguf(folder, file, "llama")
    config = EngineConfig(str(file), device="cpu", dtype="float32", convert_dir=home)
    said: list[str] = []
    Engine(config, on_progress=said.append).shutdown()
    assert any("Converting" in line for line in said)
    said.clear()
    Engine(config, on_progress=said.append).shutdown()
    assert not any("Converting" in line for line in said)
    write_gguf(folder, file, "llama")
    Engine(config, on_progress=said.append).shutdown()
    assert any("Converting" in line for line in said)
    assert [path.name for path in home.glob("[!.]*")] == ["tiny.converted"]


def test_a_broken_file_is_refused_and_leaves_nothing_behind(tmp_path: Path) -> None:
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"GGUF" + b"\0" * 2000)
    with pytest.raises(WeightsUnusable, match=r"broken\.gguf is not a usable GGUF file"):
        Engine(EngineConfig(str(file)))
    assert list(tmp_path.glob("[!.]*")) == [file]
