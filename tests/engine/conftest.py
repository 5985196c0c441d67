"""Engines for the tests: the real model in float32, and tiny random ones."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engine import Engine, EngineConfig
from engine.coded.gate import Gate
from engine.coded.verdict import Verdict

SYSTEM = "You are a helpful assistant. Answer in one or two sentences."


@pytest.fixture(scope="session")
def model_folder(chat_model: str) -> Path:
    """The folder that holds the default chat model's file."""
    return Path(chat_model).parent


@pytest.fixture(scope="session")
def real_engine(model_folder: Path) -> Iterator[Engine]:
    """SmolLM2-135M-Instruct in float32, for comparisons; tests leave no session open."""
    engine = Engine(EngineConfig(str(model_folder), device="cpu", dtype="float32", max_sessions=4))
    engine.set_system(SYSTEM)
    yield engine
    engine.check()
    engine.shutdown()


@pytest.fixture(scope="session")
def tokenizer_files(real_engine: Engine, model_folder: Path) -> Path:
    """The converted model's folder, for its tokenizer and chat template."""
    (converted,) = model_folder.glob("*.converted")
    return converted


@pytest.fixture(scope="session")
def make_tiny(
    tokenizer_files: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """Makes model folders: random weights of a few layers under the real tokenizer."""

    def make(family: str = "Llama", **changes: Any) -> Path:
        import transformers

        torch.manual_seed(11)
        settings: dict[str, Any] = {
            "vocab_size": 49152, "hidden_size": 64, "intermediate_size": 96,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "head_dim": 16, "max_position_embeddings": 2048, "initializer_range": 0.2,
            "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": True,
        } | changes  # fmt: skip
        config = getattr(transformers, f"{family}Config")(**settings)
        model = getattr(transformers, f"{family}ForCausalLM")(config)
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):  # transformers starts them at zero, which would hide a fault
                torch.nn.init.normal_(parameter, std=0.2)
        folder = tmp_path_factory.mktemp(f"tiny-{family}")
        model.save_pretrained(folder)
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            shutil.copy(tokenizer_files / name, folder)
        _cut_tokenizer(folder / "tokenizer.json", settings["vocab_size"])
        return folder

    return make


def _cut_tokenizer(file: Path, size: int) -> None:
    """Leave the first `size` tokens of a tokenizer, and the merges that lead to them."""
    data = json.loads(file.read_text())
    vocabulary = {token: i for token, i in data["model"]["vocab"].items() if i < size}
    data["model"]["vocab"] = vocabulary
    data["model"]["merges"] = [
        merge for merge in data["model"]["merges"] if {*merge, "".join(merge)} <= vocabulary.keys()
    ]
    file.write_text(json.dumps(data))


@pytest.fixture(scope="session")
def tiny_folder(make_tiny: Callable[..., Path]) -> Path:
    return make_tiny()


@pytest.fixture
def open_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every codec is good enough. Random weights predict nothing for sure: it would refuse most."""
    passing = Verdict(kl=0.0, top1=1.0, error=0.0, positions=1000, dtype="float32")
    monkeypatch.setattr(Gate, "verdict", lambda *_: passing)


@pytest.fixture
def make_engine(tiny_folder: Path, open_gate: None) -> Iterator[Callable[..., Engine]]:
    """Starts engines on the tiny model; holds their books against the invariants at the end."""
    engines: list[Engine] = []

    def make(**settings: Any) -> Engine:
        config = {"model": str(tiny_folder), "device": "cpu", "dtype": "float32"} | settings
        engines.append(Engine(EngineConfig(**config)))
        return engines[-1]

    yield make
    for engine in engines:
        engine.check()
        engine.shutdown()
