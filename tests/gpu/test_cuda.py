"""On a CUDA device: the same answers as on the CPU, and memory as the card reports it.

These need a card. What does not (that no tensor is made on another than the configured device, how
NVML is read) is tested in tests/engine.
"""

from collections.abc import Iterator

import pytest
import torch

from engine import Engine, EngineConfig, Sampling
from tests.engine.driving import compute

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")

QUESTION = "Name three rivers in France and say which is the longest."


@pytest.fixture(scope="module")
def engines(chat_model: str) -> Iterator[tuple[Engine, Engine]]:
    pair = tuple(
        Engine(EngineConfig(chat_model, device=device, dtype="float32", max_sessions=2))
        for device in ("cpu", "cuda")
    )
    for engine in pair:
        engine.set_system("Answer in one sentence.")
    yield pair  # type: ignore[misc]
    for engine in pair:
        engine.check()
        engine.shutdown()


def test_logits_equal_those_of_the_cpu(engines: tuple[Engine, Engine]) -> None:
    tokens = engines[0].format.user(QUESTION * 20, first=True)
    logits = []
    for engine in engines:
        session = engine.open(tokens)
        engine._cache.reserve(session, len(tokens))
        logits.append(compute(engine, [(session, len(tokens))]).cpu())
        engine.close(session)
    assert (logits[0] - logits[1]).abs().max() < 1e-3


def test_greedy_answers_equal_those_of_the_cpu(engines: tuple[Engine, Engine]) -> None:
    answers = []
    for engine in engines:
        session = engine.open()
        new = engine.format.user(QUESTION, first=True)
        answers.append(engine.generate(session, new, Sampling(max_tokens=40)).result().tokens)
        engine.close(session)
    assert answers[0] == answers[1]


def test_recomputed_pages_are_bit_identical(engines: tuple[Engine, Engine]) -> None:
    engine = engines[1]
    tokens = engine.format.user(QUESTION * 15, first=True)
    pages = []
    for _ in range(2):
        session = engine.open(tokens)
        engine.recompute(session)
        pages.append(engine._pool.keys[:, session.pages].clone())
        engine.close(session, forget=True)
    rows = len(tokens) // 16
    assert torch.equal(pages[0][:, :rows], pages[1][:, :rows])


def test_memory_is_the_cards(engines: tuple[Engine, Engine]) -> None:
    report = engines[1].memory()
    assert report.device_name.startswith("VRAM")
    assert report.device_allocated_bytes >= report.weights_bytes + report.kv_pool_bytes
    assert report.device_used_bytes >= report.device_reserved_bytes > 0
    assert report.device_total_bytes > report.device_used_bytes


@pytest.mark.parametrize("codec", ["int8", "fp8", "k8v4", "int4"])
def test_coded_pages_are_refreshed_to_the_same_bits(codec: str, chat_model: str) -> None:
    engine = Engine(
        EngineConfig(chat_model, device="cuda", kv_dtype=codec, kv_memory="256MiB")  # type: ignore[arg-type]
    )
    try:
        tokens = engine.format.user(QUESTION * 30, first=True)
        slots = []
        for _ in range(2):
            session = engine.open(tokens)
            engine.generate(session, (), Sampling(max_tokens=5)).result()
            engine.truncate(session, len(tokens))
            engine.recompute(session)
            coded = [
                page - engine._pool.frames for page in session.pages if page >= engine._pool.frames
            ]
            slots.append(engine._pool.slots[:, coded].clone())
            engine.close(session, forget=True)
        assert slots[0].shape[1] > 10
        assert torch.equal(slots[0], slots[1])
        engine.check()
    finally:
        engine.shutdown()
