"""Nothing assumes a device: every tensor is made on the configured one."""

from collections.abc import Callable
from pathlib import Path

import torch

from engine import Engine, EngineConfig, Sampling
from tests.engine.driving import compute

MakeEngine = Callable[..., Engine]


def test_no_tensor_is_made_on_the_default_device(tiny_folder: Path) -> None:
    # Under this context a tensor that is made without naming its device has no data at all, and
    # whatever meets it fails: a CPU stands in for "the configured device", meta for any other.
    with torch.device("meta"):
        engine = Engine(EngineConfig(str(tiny_folder), device="cpu", dtype="float32"))
        session, other = engine.open([5] * 40), engine.open([6] * 9)
        for each in (session, other):
            engine._cache.reserve(each, 128)
        logits = compute(engine, [(session, 40), (other, 9)], all_logits=False)
        assert engine.recompute(session) == 40
        new = engine.generate(other, [7] * 3, Sampling(max_tokens=5, temperature=1.0, seed=1))
        assert all(0 <= token < logits.shape[1] for token in new.result(60).tokens)
        engine.shutdown()
    assert logits.device.type == "cpu"
    assert torch.isfinite(logits).all()
