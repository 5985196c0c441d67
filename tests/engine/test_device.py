"""Nothing assumes a device: every tensor is made on the configured one."""

from collections.abc import Callable
from pathlib import Path

import torch

from engine import Engine, EngineConfig, Sampling
from engine.refresh import Refresh
from engine.sampler import Sampler

MakeEngine = Callable[..., Engine]


def test_no_tensor_is_made_on_the_default_device(tiny_folder: Path) -> None:
    # Under this context a tensor that is made without naming its device has no data at all, and
    # whatever meets it fails: a CPU stands in for "the configured device", meta for any other.
    with torch.device("meta"):
        engine = Engine(EngineConfig(str(tiny_folder), device="cpu", dtype="float32"))
        engine.shutdown()
        session, other = engine.open([5] * 40), engine.open([6] * 9)
        for each in (session, other):
            engine._cache.reserve(each, 128)
        logits = engine._runner.run([(session, 40), (other, 9)])
        refresh = Refresh(engine._model, engine._pool, session, idle=False)
        engine._cache.add(refresh.shadow)
        engine._cache.reserve_exact(refresh.shadow, at_all_costs=True)
        refresh.step(9)
        sampler = Sampler(Sampling(temperature=1.0, top_p=0.9, seed=1, repetition_penalty=1.2))
        token = sampler.choose(logits[0], [1, 2, 3])
    assert logits.device.type == "cpu"
    assert 0 <= token < logits.shape[1]
    assert torch.isfinite(logits).all()
