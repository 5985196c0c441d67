"""What KV takes, by attention and dtype: against the articles' examples and against coded pages."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from engine.calculator.shape import Latent, Shape, read_config
from engine.calculator.size import KV_DTYPES, Need, Size, attentions, rows
from engine.coded.codec import CODECS, Codec
from engine.errors import ModelNotFound, SettingError, WeightsUnusable

SEVEN_B = {"layers": 32, "heads": 32, "kv_heads": None, "head_dim": 128}
DEEPSEEK_V2 = {
    "num_hidden_layers": 60,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "hidden_size": 5120,
    "head_dim": 64,  # newer files hold the rotated part here
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
}
GIB = 2**30


def reckon(shape: Shape, need: Need) -> dict[tuple[str, str], Size | None]:
    return {
        (attention.name, row.kv_dtype): row.size
        for attention in attentions(shape)
        for row in rows(shape, attention, need)
    }


def given(**sizes: int | None) -> dict[str, int | None]:
    return {"layers": None, "heads": None, "kv_heads": None, "head_dim": None, **sizes}


# The examples of the sample library -------------------------------------------------------------


@pytest.mark.parametrize("kv_dtype", ["bfloat16", "float16"])
def test_the_articles_7b_model_takes_half_a_gibibyte_for_1024_tokens(kv_dtype: str) -> None:
    found = reckon(Shape.of({}, SEVEN_B), Need(1024, 1, 16 * GIB))["MHA", kv_dtype]
    assert found is not None
    assert found.total_bytes == 536_870_912 == 0.50 * GIB


@pytest.mark.parametrize(
    ("attention", "token_bytes", "longest"),
    [("MHA", 524_288, 32_768), ("GQA", 131_072, 131_072), ("MQA", 16_384, 1_048_576)],
)
def test_a_7b_model_takes_less_with_fewer_kv_heads(
    attention: str, token_bytes: int, longest: int
) -> None:
    found = reckon(Shape.of({}, SEVEN_B), Need(32_768, 1, 16 * GIB))[attention, "float16"]
    assert found is not None
    assert found.token_bytes == token_bytes
    assert found.total_bytes == 32_768 * token_bytes
    assert found.longest_tokens == longest
    assert found.sessions_that_fit == longest // 32_768


def test_latent_attention_takes_its_two_vectors_and_no_values() -> None:
    shape = Shape.of(DEEPSEEK_V2, {})
    found = reckon(shape, Need(4096, 1, 16 * GIB))
    assert shape.latent == Latent(512, 64)
    assert [one.own for one in attentions(shape)] == [False, False, False, True]
    sizes = {name: size.token_bytes for name, size in found.items() if size}
    assert sizes["MLA", "bfloat16"] == 60 * (512 + 64) * 2 == 69_120
    assert sizes["MHA", "bfloat16"] == 3_932_160
    assert sizes["MLA", "int8"] == 60 * (512 + 2 * 512 // 32 + 2 * 64)
    assert sizes["MLA", "int4"] == 60 * (512 // 2 + 2 * 512 // 32 + 2 * 64)
    assert found["MLA", "k8v4"] is None, "there are no values to code apart"


# Coded pages ------------------------------------------------------------------------------------


def coded_bytes(codec: Codec, rows: torch.Tensor) -> int:
    """What the codes and scales of keys [kv_heads, page, head_dim] and as many values hold."""
    total = 0
    for kind in (codec.keys, codec.values):
        codes = kind.encode(rows)
        total += codes.numbers.numel() * kind.bits // 8 + codes.scales.nbytes
    return total


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 256])
def test_a_coded_page_is_counted_with_its_scales(name: str, head_dim: int) -> None:
    shape = Shape.of({}, given(layers=3, heads=8, kv_heads=2, head_dim=head_dim))
    found = reckon(shape, Need(1000, 1, GIB))["GQA", name]
    assert found is not None
    page = coded_bytes(Codec.of(name, head_dim), torch.randn(2, 16, head_dim))
    aligned = -(-page // 64) * 64
    assert found.token_bytes * 16 == 3 * aligned
    assert aligned - page < 64


@pytest.mark.parametrize("name", CODECS)
def test_the_first_page_and_the_window_of_every_session_are_counted_in_full(name: str) -> None:
    shape = Shape.of({}, given(layers=2, heads=4, kv_heads=4, head_dim=64))
    found = {
        tokens: reckon(shape, Need(tokens, 3, GIB))["MHA", name] for tokens in (144, 160, 1600)
    }
    sizes = {tokens: size.session_bytes for tokens, size in found.items() if size}
    plain = reckon(shape, Need(144, 1, GIB))["MHA", "bfloat16"]
    coded = found[144]
    assert plain is not None
    assert coded is not None
    page = 16 * coded.token_bytes
    assert sizes[144] >= plain.session_bytes, "nothing is coded yet"
    assert sizes[160] - sizes[144] == page
    assert sizes[1600] - sizes[144] == 91 * page
    assert all(size is not None and size.total_bytes == 3 * size.session_bytes
               for size in found.values())  # fmt: skip


def test_pages_in_full_precision_have_the_dtype_that_is_asked_for() -> None:
    shape = Shape.of({}, SEVEN_B)
    half = reckon(shape, Need(1024, 1, GIB))["MHA", "int8"]
    full = reckon(shape, Need(1024, 1, GIB, dtype="float32"))["MHA", "int8"]
    assert half is not None
    assert full is not None
    assert full.token_bytes == half.token_bytes
    assert full.session_bytes > half.session_bytes


def test_a_head_that_a_codec_cannot_take_is_said_with_the_reason() -> None:
    shape = Shape.of({}, given(layers=2, heads=2, head_dim=72))
    found = {row.kv_dtype: row for row in rows(shape, attentions(shape)[0], Need(100, 1, GIB))}
    assert list(found) == list(KV_DTYPES)
    assert {name for name, row in found.items() if row.size is None} == {"k8v4", "int4"}
    assert "72 numbers can't be rotated" in found["int4"].refused
    assert not found["int8"].refused


@pytest.mark.parametrize("memory", [0, 10**6, 10**8 + 7, 3 * GIB])
def test_the_longest_session_fits_and_one_page_more_does_not(memory: int) -> None:
    shape = Shape.of(DEEPSEEK_V2, {})
    for (attention, kv_dtype), size in reckon(shape, Need(64, 1, memory)).items():
        if size is None:
            continue
        for tokens, fits in ((size.longest_tokens, True), (size.longest_tokens + 16, False)):
            if tokens:
                again = reckon(shape, Need(tokens, 1, memory))[attention, kv_dtype]
                assert again is not None
                assert (again.sessions_that_fit > 0) is fits, (attention, kv_dtype, tokens)
                assert (again.total_bytes <= memory) >= fits


# Sizes of a configuration -----------------------------------------------------------------------

LAYERED = {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256}


@pytest.mark.parametrize(
    ("config", "sizes"),
    [
        ({"n_layer": 12, "n_head": 12, "n_embd": 768}, (12, 12, 12, 64)),
        ({"n_layers": 32, "n_heads": 32, "d_model": 4096}, (32, 32, 32, 128)),
        (
            {"num_hidden_layers": 32, "num_attention_heads": 71, "hidden_size": 4544,
             "num_kv_heads": 71, "multi_query": True},
            (32, 71, 1, 64),
        ),
        (
            {"num_layers": 40, "num_attention_heads": 32, "kv_channels": 128,
             "multi_query_group_num": 2, "hidden_size": 4096},
            (40, 32, 2, 128),
        ),
        ({"text_config": {"num_hidden_layers": 26, **LAYERED}, "hidden_size": 9}, (26, 8, 2, 256)),
        (
            {"num_hidden_layers": 4, **LAYERED,
             "layer_types": ["linear_attention"] * 3 + ["full_attention"]},
            (1, 8, 2, 256),
        ),
        (
            {"num_hidden_layers": 6, **LAYERED, "num_kv_shared_layers": 2,
             "layer_types": ["sliding_attention"] * 5 + ["full_attention"]},
            (4, 8, 2, 256),
        ),
    ],
    ids=["gpt2", "mpt", "falcon", "chatglm", "pictures", "hybrid", "shared"],
)  # fmt: skip
def test_sizes_are_found_under_the_names_of_every_family(
    config: Mapping[str, Any], sizes: tuple[int, ...]
) -> None:
    shape = Shape.of(config, {})
    assert (shape.layers, shape.heads, shape.kv_heads, shape.head_dim) == sizes


def test_what_the_sizes_leave_out_is_said() -> None:
    gemma = {"num_hidden_layers": 26, **LAYERED, "sliding_window": 512, "global_head_dim": 512}
    window, heads = Shape.of(gemma, {}).notes
    assert "sliding window are counted in full" in window
    assert "global_head_dim" in heads
    some = Shape.of({"num_hidden_layers": 8, **LAYERED, "full_attention_interval": 4}, {})
    assert "give their number with --layers" in some.notes[0]
    assert Shape.of({"num_hidden_layers": 8, **LAYERED}, {}).notes == ()


def test_what_is_given_wins_over_the_configuration() -> None:
    config = {"num_hidden_layers": 26, **LAYERED}
    shape = Shape.of(config, given(layers=3, kv_heads=4))
    assert shape == replace(Shape.of(config, {}), layers=3, kv_heads=4)


@pytest.mark.parametrize(
    ("config", "sizes", "said"),
    [
        ({}, given(heads=2, head_dim=4), "add --layers"),
        ({}, given(layers=2, head_dim=4), "add --heads"),
        ({}, given(layers=2, heads=4), "add --head-dim"),
        ({"num_hidden_layers": 2, "num_attention_heads": [4, 8]}, given(head_dim=4), "add --heads"),
        (
            {"num_hidden_layers": 2, "num_attention_heads": 4, "num_kv_heads": [1, 2]},
            given(head_dim=4),
            "add --kv-heads",
        ),
        ({}, given(layers=2, heads=4, kv_heads=3, head_dim=4), "cannot share 3 KV heads"),
        ({}, given(layers=0, heads=4, head_dim=4), "--layers must lie between"),
        ({}, given(layers=2, heads=4, head_dim=10**6), "--head-dim must lie between"),
        ({**DEEPSEEK_V2, "kv_lora_rank": 10**6}, given(), "out of range"),
    ],
)
def test_a_missing_or_impossible_size_is_named_with_its_option(
    config: Mapping[str, Any], sizes: Mapping[str, int | None], said: str
) -> None:
    with pytest.raises(SettingError, match=said):
        Shape.of(config, sizes)


def test_a_configuration_alone_is_read_from_a_file_or_a_folder(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "gemma4", "num_hidden_layers": 2}))
    assert read_config(str(file)) == read_config(str(tmp_path))
    file.write_text("[1]")
    with pytest.raises(WeightsUnusable, match=r"not a model's configuration"):
        read_config(str(file))
    file.write_text("{")
    with pytest.raises(WeightsUnusable, match="cannot be read as JSON"):
        read_config(str(file))
    file.unlink()
    with pytest.raises(WeightsUnusable, match=r"neither a config\.json nor"):
        read_config(str(tmp_path))
    with pytest.raises(ModelNotFound):
        read_config("nobody/no-such-model")


def test_a_gguf_file_of_a_family_that_the_engine_does_not_run_gives_its_sizes(
    tmp_path: Path,
) -> None:
    writer = gguf.GGUFWriter(tmp_path / "small.gguf", "gemma3")
    writer.add_block_count(26)
    writer.add_embedding_length(1152)
    writer.add_head_count(4)
    writer.add_head_count_kv(1)
    writer.add_key_length(256)
    writer.add_tensor("output_norm.weight", np.zeros(32, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    shape = Shape.of(read_config(str(tmp_path)), {})
    assert (shape.layers, shape.heads, shape.kv_heads, shape.head_dim) == (26, 4, 1, 256)
    assert [path.name for path in tmp_path.iterdir()] == ["small.gguf"], "nothing is converted"
