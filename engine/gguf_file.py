"""A GGUF file as a model folder: configuration, safetensors and tokenizer, converted once.

The weights are dequantised: to float32, which holds every GGUF quantisation exactly, or above a
billion parameters to bfloat16, since nobody runs those in float32 and the disk is spared. Beside
them the groups of Q4_0, Q4_1 and Q8_0 are kept as they are, for backends that multiply with those.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from engine.errors import UnsupportedArchitecture, WeightsUnusable
from engine.model_config import FACTORS, SUPPORTED
from engine.quantised import GROUP, Quantised

CONVERTER_VERSION = 3
"""Raised with every change of what is written: older folders are then made again."""

_EXACT_BELOW_PARAMETERS = 1_000_000_000
_SHARD_BYTES = 2**30

_FAMILY = {
    "llama": ("LlamaForCausalLM", "llama"),
    "mistral": ("MistralForCausalLM", "mistral"),
    "qwen2": ("Qwen2ForCausalLM", "qwen2"),
    "qwen3": ("Qwen3ForCausalLM", "qwen3"),
}
# Files of these store each rotary pair (i, i + half) side by side.
_INTERLEAVED = ("llama", "mistral")
_ROOT = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

_SIZES = {
    "num_hidden_layers": ("block_count",),
    "num_attention_heads": ("attention.head_count",),
    "num_key_value_heads": ("attention.head_count_kv",),
    "hidden_size": ("embedding_length",),
    "head_dim": ("attention.key_length",),
    "kv_lora_rank": ("attention.kv_lora_rank",),
    "qk_rope_head_dim": ("rope.dimension_count",),
    # With MLA, the second is the latent's where the first is there too.
    "v_head_dim": ("attention.value_length_mla", "attention.value_length"),
    "sliding_window": ("attention.sliding_window",),
}


def convert(file: Path, folder: Path, progress: Callable[[str], None]) -> None:
    """Write the model in `file` to `folder`, which is made.

    Raises:
        UnsupportedArchitecture: the file holds a family that the engine does not run.
        WeightsUnusable: the file is broken or lacks something.
        OSError: the folder cannot be written.
    """
    from transformers import AutoTokenizer

    reader = _open(file)
    folder.mkdir(parents=True)
    config = _config(reader)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    progress(f"Converting {file.name}: the tokenizer")
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            file.parent, gguf_file=file.name, local_files_only=True
        )
    except Exception as error:
        raise WeightsUnusable(f"The tokenizer in {file} cannot be used: {error}") from error
    tokenizer.save_pretrained(folder)
    parameters = sum(int(tensor.n_elements) for tensor in reader.tensors)
    dtype = torch.float32 if parameters < _EXACT_BELOW_PARAMETERS else torch.bfloat16
    weight_map: dict[str, str] = {}
    weights = ((name, weight.to(dtype)) for name, weight in _tensors(reader, config))
    for number, shard in enumerate(_shards(weights), start=1):
        name = f"model-{number:05}.safetensors"
        progress(f"Converting {file.name}: {name}")
        save_file(shard, folder / name, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(shard, name)
    for number, shard in enumerate(_shards(_groups(reader, config)), start=1):
        save_file(shard, folder / f"groups-{number:05}.safetensors")
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def sizes(file: Path) -> dict[str, Any]:
    """The sizes that decide how large the model's KV is, under Hugging Face's names for them.

    Raises:
        WeightsUnusable: the file is broken.
    """
    fields = _fields(_open(file))
    arch = fields.get("general.architecture", "unknown")
    found: dict[str, Any] = {}
    for name, keys in _SIZES.items():
        known = (fields.get(f"{arch}.{key}") for key in keys)
        if (value := next((one for one in known if one is not None), None)) is not None:
            found[name] = value
    return found


def _open(file: Path) -> Any:
    from gguf import GGUFReader

    try:
        return GGUFReader(file)
    except Exception as error:  # the reader fails in many ways on a broken file
        raise WeightsUnusable(f"{file} is not a usable GGUF file: {error}") from error


def _fields(reader: Any) -> dict[str, Any]:
    return {name: field.contents() for name, field in reader.fields.items() if field.types}


def _shards(
    tensors: Iterator[tuple[str, torch.Tensor]],
) -> Iterator[dict[str, torch.Tensor]]:
    """Tensors in groups of about a gigabyte, so that no more is held at once."""
    shard: dict[str, torch.Tensor] = {}
    for name, tensor in tensors:
        shard[name] = tensor
        if sum(tensor.nbytes for tensor in shard.values()) >= _SHARD_BYTES:
            yield shard
            shard = {}
    if shard:
        yield shard


def _config(reader: Any) -> dict[str, Any]:
    """The file's settings under the names that a Hugging Face configuration has."""
    fields = _fields(reader)
    arch = str(fields.get("general.architecture", "unknown"))
    if arch not in _FAMILY:
        raise UnsupportedArchitecture(arch, SUPPORTED)

    def need(key: str) -> Any:
        if f"{arch}.{key}" not in fields:
            raise WeightsUnusable(f"The GGUF file lacks the setting {arch}.{key}.")
        return fields[f"{arch}.{key}"]

    def may(key: str, default: Any) -> Any:
        return fields.get(f"{arch}.{key}", default)

    tensors = {tensor.name: tensor for tensor in reader.tensors}
    if "token_embd.weight" not in tensors:
        raise WeightsUnusable("The GGUF file lacks the tensor token_embd.weight.")
    head_dim_keys = ("attention.key_length", "rope.dimension_count")
    dims = {fields[f"{arch}.{key}"] for key in head_dim_keys if f"{arch}.{key}" in fields}
    if len(dims) > 1:
        raise WeightsUnusable("Rotating only a part of each head is not supported.")
    heads, hidden = int(need("attention.head_count")), int(need("embedding_length"))
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": may("rope.freq_base", 1e4)}
    if may("rope.scaling.type", "none") not in ("none", "", "linear"):
        raise WeightsUnusable(
            f"The rope scaling {may('rope.scaling.type', '')!r} is not supported."
        )
    if may("rope.scaling.type", "none") == "linear":
        rope |= {"rope_type": "linear", "factor": need("rope.scaling.factor")}
    if "rope_freqs.weight" in tensors:  # how Llama 3's scaling is stored
        factors = [float(value) for value in tensors["rope_freqs.weight"].data]
        rope |= {"rope_type": FACTORS, "factors": factors}
    architecture, model_type = _FAMILY[arch]
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": int(need("feed_forward_length")),
        "num_hidden_layers": int(need("block_count")),
        "num_attention_heads": heads,
        "num_key_value_heads": int(may("attention.head_count_kv", heads)),
        "head_dim": int(may("attention.key_length", hidden // heads)),
        "vocab_size": int(tensors["token_embd.weight"].shape[1]),
        "max_position_embeddings": int(need("context_length")),
        "rms_norm_eps": float(need("attention.layer_norm_rms_epsilon")),
        "rope_parameters": rope,
        "sliding_window": may("attention.sliding_window", None),
        "tie_word_embeddings": "output.weight" not in tensors,
        "attention_bias": arch == "llama" and "blk.0.attn_q.bias" in tensors,
        "mlp_bias": "blk.0.ffn_up.bias" in tensors,
        "eos_token_id": fields.get("tokenizer.ggml.eos_token_id"),
    }


def _tensors(reader: Any, config: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """Dequantised tensors under their Hugging Face names."""
    from gguf import dequantize

    for tensor in reader.tensors:
        name = _name(tensor.name)
        if name is not None:
            values = np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
            yield name, torch.from_numpy(_in_order(name, values, config))


def _groups(reader: Any, config: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """The quantised matrices as they are in the file, in the form of `Quantised.stored`."""
    for tensor in reader.tensors:
        name, kind = _name(tensor.name), tensor.tensor_type.name
        if name is not None and kind in ("Q4_0", "Q4_1", "Q8_0"):
            blocks = _in_order(name, np.array(tensor.data), config)
            for part, values in _quantised(blocks, kind).stored().items():
                yield f"{name}.{part}", values.contiguous()


def _quantised(blocks: np.ndarray, kind: str) -> Quantised:
    """Read rows of blocks: scale, least value (Q4_1), then 32 codes.

    Four bits: byte i holds column i below and column i + 16 above. Q4_0's codes stand for
    scale * (code - 8), so its least value is -8 scales.
    """
    size = {"Q4_0": 18, "Q4_1": 20, "Q8_0": 34}[kind]
    rows = blocks.shape[0]
    parts = torch.from_numpy(blocks).view(rows, -1, size)
    scales = parts[..., :2].contiguous().view(torch.float16).squeeze(-1)
    if kind == "Q8_0":
        return Quantised(parts[..., 2:].contiguous().view(torch.int8).flatten(1), scales, None)
    codes = parts[..., size - GROUP // 2 :]
    codes = torch.cat((codes & 15, codes >> 4), dim=-1).flatten(1)
    least = parts[..., 2:4].contiguous().view(torch.float16).squeeze(-1)
    return Quantised(codes, scales, least if kind == "Q4_1" else -8 * scales)


def _in_order(name: str, rows: np.ndarray, config: dict[str, Any]) -> np.ndarray:
    """Rows of a matrix in the order that the rotation expects."""
    heads = {
        ".q_proj.": config["num_attention_heads"],
        ".k_proj.": config["num_key_value_heads"],
    }
    if config["model_type"] in _INTERLEAVED:
        for part, count in heads.items():
            if part in name:
                rows = _pairs_apart(rows, count)
    return np.ascontiguousarray(rows)


def _name(name: str) -> str | None:
    """blk.3.attn_q.weight -> model.layers.3.self_attn.q_proj.weight; None for what is not used."""
    stem, _, kind = name.rpartition(".")
    if stem in _ROOT:
        return f"{_ROOT[stem]}.{kind}"
    if stem == "rope_freqs":
        return None
    block, _, rest = stem.partition(".")
    index, _, part = rest.partition(".")
    if block != "blk" or part not in _BLOCK:
        raise WeightsUnusable(f"The GGUF file has a tensor {name} that no supported model has.")
    return f"model.layers.{index}.{_BLOCK[part]}.{kind}"


def _pairs_apart(values: np.ndarray, heads: int) -> np.ndarray:
    """Rows (0, half), (1, half + 1), ... of each head back to 0, 1, ..., half, half + 1, ..."""
    apart = values.reshape(heads, -1, 2, *values.shape[1:]).swapaxes(1, 2)
    return apart.reshape(values.shape)
