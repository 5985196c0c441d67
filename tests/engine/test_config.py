"""Settings of the engine, and what they make of memory."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import engine.device
from engine import EngineConfig
from engine.config import KVMemory
from engine.errors import ModelNotFound, PoolTooSmall, SettingError
from engine.loading import codec_name, plain_layout, pool_frames
from engine.model_config import ModelConfig
from engine.weights import model_folder

MODEL = ModelConfig.from_json(
    {
        "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 30, "hidden_size": 576,
        "intermediate_size": 1536, "num_attention_heads": 9, "num_key_value_heads": 3,
        "vocab_size": 49152, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
    }
)  # fmt: skip
CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("auto", KVMemory()), ("2GiB", KVMemory(2 * 2**30)), ("512MB", KVMemory(512 * 10**6)),
        ("512 mib", KVMemory(512 * 2**20)), ("1.5GiB", KVMemory(3 * 2**29)),
        ("1048576", KVMemory(1048576)), ("0.5", KVMemory(fraction=0.5)),
        ("1.0", KVMemory(fraction=1.0)),
    ],
)  # fmt: skip
def test_kv_memory_is_bytes_or_a_fraction(text: str, expected: KVMemory) -> None:
    assert KVMemory.parse(text) == expected


@pytest.mark.parametrize("text", ["", "much", "2 potatoes", "-1GiB", "1.5", "0.0", "0", "0GiB"])
def test_kv_memory_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(SettingError):
        KVMemory.parse(text)


@pytest.mark.parametrize(
    "wrong",
    [
        {"device": "tpu"}, {"dtype": "int8"}, {"kv_memory": "lots"}, {"page_size": 0},
        {"page_size": 24}, {"max_sessions": 0}, {"step_target_s": 0.0},
    ],
)  # fmt: skip
def test_settings_that_cannot_be_used_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingError):
        EngineConfig("model", **wrong)


def test_a_token_of_smollm2_takes_23040_bytes() -> None:
    assert MODEL.kv_values_per_token * torch.bfloat16.itemsize == 23_040


def _pages(monkeypatch: pytest.MonkeyPatch, kv: str, ram: int, free: int, **more: Any) -> int:
    monkeypatch.setattr("engine.loading.ram_limit_bytes", lambda: ram)
    monkeypatch.setattr("engine.loading.free_bytes", lambda _: free)
    layout = plain_layout(EngineConfig("m"), MODEL, torch.bfloat16)
    return pool_frames(EngineConfig("m", kv_memory=kv, **more), MODEL, CPU, layout)


def test_auto_takes_what_full_contexts_need_or_a_quarter_of_the_ram(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = 16 * 23_040
    assert _pages(monkeypatch, "auto", 2**40, 2**40, max_sessions=2) == 2 * 512 + 1
    assert _pages(monkeypatch, "auto", 2**32, 2**40) == 2**30 // page
    assert _pages(monkeypatch, "auto", 2**40, 2**30) == int(2**30 * 0.9) // page
    assert _pages(monkeypatch, "0.5", 2**40, 2**30) == 2**29 // page
    assert _pages(monkeypatch, "100MiB", 2**40, 2**30) == 100 * 2**20 // page


@pytest.mark.parametrize(
    ("ram", "setting", "codec"),
    [
        (2**40, "auto", None),
        (2**32, "auto", "int8"),  # a quarter of it is less than eight full contexts
        (2**32, "bfloat16", None),
        (2**40, "k8v4", "k8v4"),
    ],
)
def test_kv_is_coded_where_it_is_asked_for_or_memory_is_short(
    monkeypatch: pytest.MonkeyPatch, ram: int, setting: Any, codec: str | None
) -> None:
    monkeypatch.setattr("engine.loading.ram_limit_bytes", lambda: ram)
    config = EngineConfig("m", kv_dtype=setting)
    layout = plain_layout(config, MODEL, torch.bfloat16)
    assert codec_name(config, MODEL, CPU, layout) == codec


def test_a_pool_that_does_not_fit_is_refused_with_what_would(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(PoolTooSmall, match=r"10\.0 GiB does not fit.*--kv-memory 512MiB"):
        _pages(monkeypatch, "10GiB", 2**40, 2**30)
    with pytest.raises(PoolTooSmall, match="at least two"):
        _pages(monkeypatch, "360KiB", 2**40, 2**30)


def test_a_cgroup_limit_is_respected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    limit = tmp_path / "memory.max"
    limit.write_text("123456789\n")

    class CgroupPath:
        def __init__(self, path: str) -> None:
            self.read_text = (
                limit.read_text if path.endswith("memory.max") else Path(path).read_text
            )

    monkeypatch.setattr(engine.device, "Path", CgroupPath)
    assert engine.device.ram_limit_bytes() == 123_456_789


def test_vram_is_read_from_nvml_by_the_cards_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    nvml = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: asked.append(uuid) or "card",
        nvmlDeviceGetMemoryInfo=lambda card: SimpleNamespace(used=3 * 2**30, total=8 * 2**30),
    )
    properties = SimpleNamespace(uuid="1234-abcd")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Test Card")
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 10)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 20)
    memory = engine.device.device_memory(torch.device("cuda"), tensor_bytes=5, nvml=nvml)
    assert memory == ("VRAM (Test Card)", 10, 20, 3 * 2**30, 8 * 2**30)
    assert asked == ["GPU-1234-abcd"]


def test_without_nvml_the_cuda_runtime_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise OSError("libnvidia-ml.so was not found")

    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Test Card")
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 10)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 20)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (60, 100))
    memory = engine.device.device_memory(
        torch.device("cuda"), tensor_bytes=5, nvml=SimpleNamespace(nvmlInit=absent)
    )
    assert (memory.used_bytes, memory.total_bytes) == (40, 100)


def test_on_a_cpu_the_device_is_this_process() -> None:
    memory = engine.device.device_memory(CPU, tensor_bytes=77)
    assert memory.name.startswith("RAM")
    assert memory.allocated_bytes == 77
    assert 0 < memory.used_bytes < memory.total_bytes


@pytest.mark.skipif(torch.cuda.is_available(), reason="refused only where there is no CUDA")
def test_cuda_is_refused_where_there_is_none() -> None:
    with pytest.raises(SettingError, match="finds no CUDA device"):
        engine.device.choose_device("cuda")


@pytest.mark.parametrize("name", ["no-such-model", "nobody/no-such-model", "/no/such/folder"])
def test_an_unknown_model_is_named_and_nothing_is_downloaded(name: str) -> None:
    with pytest.raises(ModelNotFound, match=name):
        model_folder(name, None, lambda _: None)
