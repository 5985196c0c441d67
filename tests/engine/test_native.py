"""The native decoder against the torch backend in float32, on the same weights.

The torch backend is held against transformers elsewhere; with `weights` it rounds to the same
groups, so what is left here is the native arithmetic: bfloat16 inputs and KV, float32 sums.
"""

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
import torch

from engine import Engine, EngineConfig, Sampling, Session
from engine.native import build
from engine.native.build import Variant
from tests.engine.driving import compute, compute_in_chunks

WEIGHTS = ("auto", "bfloat16", "int8")  # `auto` is this file's own 4 and 8 bits, so int4 as well
KL_LIMIT = 0.002
TEXT = (
    "A key-value cache keeps what attention has already computed. The ferry leaves at seven in the "
    "morning and returns before dark, and the last stop is Ærøskøbing. If pages run out, idle "
    "conversations give theirs back first; 缓存让长对话保持流畅。 "
)

needs_native = pytest.mark.skipif(not build.variants(), reason="no native kernels for this CPU")


def _logits(engine: Engine, tokens: list[int], chunks: int | list[int]) -> torch.Tensor:
    """Logits at every position, computed in chunks of one size, or of the sizes in a list."""
    session = engine.open(tokens[:1])
    session.tokens[:] = tokens
    sizes = iter(chunks) if isinstance(chunks, list) else repeat(chunks)
    logits = compute_in_chunks(engine, session, sizes)
    engine.close(session, forget=True)
    return logits


def _kl(expected: torch.Tensor, found: torch.Tensor) -> float:
    """Mean over positions of sum p log(p / q)."""
    p, q = expected.double().log_softmax(-1), found.double().log_softmax(-1)
    return float((p.exp() * (p - q)).sum(-1).mean())


@pytest.fixture(scope="module")
def tokens(real_engine: Engine) -> list[int]:
    return real_engine.format.user(TEXT * 8, first=True)[:430]


@pytest.fixture(scope="module")
def expected(chat_model: str, tokens: list[int]) -> Callable[[str], torch.Tensor]:
    """Float32 logits of the torch backend for a setting of `weights`."""
    made: dict[str, torch.Tensor] = {}

    def get(weights: str) -> torch.Tensor:
        if weights not in made:
            config = EngineConfig(
                chat_model, device="cpu", dtype="float32", backend="torch",
                weights=weights, kv_memory="64MB",
            )  # type: ignore[arg-type]  # fmt: skip
            engine = Engine(config)
            made[weights] = _logits(engine, tokens, len(tokens))
            engine.shutdown()
        return made[weights]

    return get


@pytest.fixture
def native(
    chat_model: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Variant | None, str], Engine]]:
    """Starts engines of a variant on the real model, or on another."""
    engines: list[Engine] = []

    def make(variant: Variant | None, weights: str, model: str = chat_model, **more: Any) -> Engine:
        if variant is not None:
            load = build.load
            monkeypatch.setattr(build, "load", lambda **settings: load(variant, **settings))
        settings: dict[str, Any] = {"kv_memory": "64MB", "max_sessions": 8} | more
        config = EngineConfig(model, device="cpu", backend="native", weights=weights, **settings)  # type: ignore[arg-type]
        engines.append(Engine(config))
        monkeypatch.undo()
        assert engines[-1].backend == f"native ({variant or build.variants()[0]})"
        return engines[-1]

    yield make
    for engine in engines:
        engine.check()
        engine.shutdown()


@needs_native
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("variant", build.variants())
def test_logits_equal_float32_ones_for_every_variant_and_weights(
    variant: Variant, weights: str, native: Any, expected: Any, tokens: list[int]
) -> None:
    engine = native(variant, weights)
    whole = expected(weights)
    # Whole, as decodes at the end of a long context, and on both sides of every change of path.
    for chunks in (len(tokens), [400] + [1] * 30, [1, 2, 3, 8, 9, 15, 16, 17, 31, 100, 33] * 2):
        found = _logits(engine, tokens, chunks)
        assert _kl(whole, found) < KL_LIMIT / 2, chunks
        assert (found - whole).abs().max() < 0.05 * whole.abs().max(), chunks


@needs_native
def test_decoding_is_closer_to_float32_than_prefill(
    native: Any, expected: Any, tokens: list[int]
) -> None:
    """A few rows are multiplied in 16-bit integers, with the file's own groups: next to exactly."""
    engine = native(None, "auto")
    found = _logits(engine, tokens[:120], 1)
    assert _kl(expected("auto")[:120], found) < KL_LIMIT / 10


@needs_native
def test_a_batch_of_prefills_and_decodes_gives_each_its_own_logits(
    native: Any, tokens: list[int]
) -> None:
    """On scattered pages, at contexts within and beyond one part of the keys."""
    engine = native(None, "auto")
    cache, rng = engine._cache, random.Random(2)
    taken = cache.pages.allocate(120)
    given = taken[::2]
    rng.shuffle(given)
    cache.pages.release(given)
    sessions: list[tuple[Session, int]] = []
    for length, count in ((40, 1), (300, 1), (17, 1), (257, 2), (64, 60), (301, 1), (5, 5)):
        session = engine.open(tokens[:1])
        session.tokens[:] = tokens[:length]
        if length > count:
            cache.reserve(session, length - count)
            compute(engine, [(session, length - count)])
            session.kv_tokens = length - count
        cache.reserve(session, length)
        sessions.append((session, count))
    together = compute(engine, sessions, all_logits=False)
    for (session, count), row in zip(sessions, together, strict=True):
        (alone,) = compute(engine, [(session, count)], all_logits=False)
        assert _kl(alone[None], row[None]) < KL_LIMIT
        assert row.argmax() == alone.argmax() or alone.topk(2).values.diff().abs() < 0.2
        session.kv_tokens = len(session.tokens)
        engine.close(session, forget=True)
    cache.pages.release(taken[1::2])


TINY: dict[str, tuple[str, dict[str, Any]]] = {
    "grouped heads": ("Llama", {}),
    "one KV head, untied": ("Llama", {"num_key_value_heads": 1, "tie_word_embeddings": False}),
    "as many KV heads as heads": ("Llama", {"num_key_value_heads": 4}),
    "biases, an odd vocabulary": (
        "Llama",
        {"attention_bias": True, "mlp_bias": True, "vocab_size": 1001},
    ),
    "head_dim 80": ("Llama", {"head_dim": 80, "num_attention_heads": 2}),
    "head_dim 128": ("Llama", {"head_dim": 128}),
    "a sliding window": ("Mistral", {"sliding_window": 50}),
    "qkv bias": ("Qwen2", {}),
    "q and k norms": ("Qwen3", {}),
}


@needs_native
@pytest.mark.parametrize("page_size", [16, 64])
@pytest.mark.parametrize("name", TINY)
def test_every_family_runs(
    name: str, page_size: int, native: Any, make_tiny: Callable[..., Path]
) -> None:
    family, changes = TINY[name]
    folder = str(make_tiny(family, **{"initializer_range": 0.1, **changes}))
    weights = "bfloat16" if page_size == 16 else "int4"
    engine = native(None, weights, folder, page_size=page_size)
    reference = Engine(
        EngineConfig(folder, device="cpu", dtype="float32", kv_memory="64MB", weights=weights)
    )
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(17, 1000, (300,), generator=generator).tolist()
    whole = _logits(reference, tokens, 300)
    for chunks in (300, [200, 37, 1, 1, 1, 60]):
        found = _logits(engine, tokens, chunks)
        assert (found - whole).abs().max() < 0.04 * whole.abs().max(), chunks
    reference.shutdown()


@needs_native
def test_answers_survive_preemption_and_forks(native: Any, real_engine: Engine) -> None:
    engine = native(None, "auto", kv_memory="4MB")
    ask = real_engine.format.user("Name three rivers in France.", first=True)
    alone = engine.generate(engine.open(), ask, Sampling(max_tokens=40)).result().tokens
    many = [engine.generate(engine.open(), ask, Sampling(max_tokens=40)) for _ in range(5)]
    answers = [generation.result().tokens for generation in many]
    assert all(answer[:8] == alone[:8] for answer in answers)


@needs_native
def test_threads_that_cannot_be_had_are_an_error_and_no_hang() -> None:
    script = """
import ctypes, resource
from pathlib import Path
from engine.native import build
from engine.native.weights import Model
begin = build.load().functions.pageturn_open
begin.restype = ctypes.c_void_p
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, used + 2**28))
print(begin(ctypes.byref(Model()), 500))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == "None"


@needs_native
def test_other_threads_keep_pytorchs_own_number_of_threads(native: Any, tiny: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        native(None, "auto", str(tiny), kv_memory="4MB")
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(torch.get_num_threads).result() == 2
    finally:
        torch.set_num_threads(before)


# -- where it cannot be had ------------------------------------------------------------------


def _backend(folder: Path, **settings: Any) -> str:
    engine = Engine(EngineConfig(str(folder), device="cpu", kv_memory="4MB", **settings))
    engine.generate(engine.open(), [5, 6, 7], Sampling(max_tokens=3)).result()
    engine.shutdown()
    return engine.backend


@pytest.fixture(scope="module")
def tiny(make_tiny: Callable[..., Path]) -> Path:
    return make_tiny()


def test_without_a_compiler_pytorch_computes_and_says_why(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "compiler", lambda: None)
    assert "install g++ or clang++" in _backend(tiny) or not build.variants()
    with pytest.raises(Exception, match="native backend cannot be used"):
        _backend(tiny, backend="native")


def test_a_build_that_fails_leaves_pytorch_and_no_file(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "broken"
    compiler.write_text("#!/bin/sh\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    folder = tmp_path / "cache"
    assert _backend(tiny, native_dir=folder).startswith("PyTorch (")
    assert not list(folder.glob("*.so")) + list(folder.glob("*.part"))


@needs_native
def test_a_library_is_built_once_and_shared(tmp_path: Path) -> None:
    told: list[str] = []
    for _ in range(2):
        build.load("avx2", tmp_path, told.append)
    assert len(told) == 1
    assert len(list(tmp_path.glob("*.so"))) == 1


def test_other_cpus_get_pytorch(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert build.variants(frozenset({"asimd", "bf16"})) == []
    assert build.variants(frozenset({"avx2", "fma", "f16c", "bmi2"})) == ["avx2"]
    monkeypatch.setattr(build, "variants", list)
    assert "no native kernels for this CPU" in _backend(tiny)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"dtype": "float32"}, "not float32"),
        ({"page_size": 8}, "page size of 8"),
        ({"backend": "torch"}, "as set"),
    ],
)
def test_what_the_kernels_do_not_cover_runs_on_pytorch(
    settings: dict[str, Any], reason: str, tiny: Path
) -> None:
    assert reason in _backend(tiny, **settings)


def test_odd_sizes_run_on_pytorch(make_tiny: Callable[..., Path]) -> None:
    assert "not multiples of 32" in _backend(make_tiny(hidden_size=72, head_dim=24))
