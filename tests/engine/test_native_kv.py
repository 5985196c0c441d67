"""The native decoder on coded pages, against the torch backend in float32 on the same numbers."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.attention.batch import Batch, Span
from engine.kv.layout import PageLayout
from engine.kv.pool import PagePool
from engine.model_config import ModelConfig
from engine.native import build
from engine.native.build import Variant
from engine.native.decoder import NativeDecoder
from engine.weight_scheme import SchemedTensors
from engine.weights import Tensors, read_json

pytestmark = pytest.mark.skipif(not build.variants(), reason="no native kernels for this CPU")


def _config(folder: Path) -> ModelConfig:
    return ModelConfig.from_json(read_json(folder, "config.json"))


def _native(folder: Path, variant: Variant | None = None, threads: int = 2) -> NativeDecoder:
    with Tensors(folder) as tensors:
        schemed = SchemedTensors(tensors, "bfloat16")
        return NativeDecoder(build.load(variant), _config(folder), schemed, threads)


def _batch(
    parts: Sequence[tuple[torch.Tensor, int, torch.Tensor]], page_size: int, every: bool = True
) -> Batch:
    """Of (tokens, position of the first, table) for each sequence."""
    spans: list[Span] = []
    row = 0
    for tokens, start, table in parts:
        spans.append(Span(row, row + len(tokens), table, start + len(tokens)))
        row += len(tokens)
    positions = torch.cat([torch.arange(s, s + len(t)) for t, s, _ in parts])
    places = [table[torch.arange(s, s + len(t)) // page_size] for t, s, table in parts]
    wanted = torch.arange(row) if every else torch.tensor([span.stop - 1 for span in spans])
    return Batch(
        tokens=torch.cat([tokens for tokens, _, _ in parts]), positions=positions,
        pages=torch.cat(places), offsets=positions % page_size, spans=tuple(spans),
        logit_rows=wanted,
    )  # fmt: skip


def _tokens(count: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(17, 1000, (count,), generator=torch.Generator().manual_seed(seed))


def _layer_by_layer(model: NativeDecoder, batch: Batch, pools: list[PagePool]) -> torch.Tensor:
    x = model.embed(batch.tokens)
    for layer, pool in enumerate(pools):
        x = model.run_layer(layer, x, batch, pool)
    return x


@pytest.mark.parametrize("rows", [1, 128])
@pytest.mark.parametrize("threads", [1, 2])
def test_layers_one_by_one_write_the_same_bits_as_a_whole_pass(
    rows: int, threads: int, make_tiny: Callable[..., Path]
) -> None:
    folder = make_tiny()
    whole, split = _native(folder), _native(folder, threads=threads)
    layout = PageLayout.of(whole.config, 16, torch.bfloat16)
    one = replace(layout, layers=1)
    pool, pools = whole.make_pool(layout, 24), [split.make_pool(one, 24) for _ in range(2)]
    table = torch.randperm(24, generator=torch.Generator().manual_seed(2))
    tokens = _tokens(384)
    for start in [0, *range(128, 128 + 2 * rows, rows)]:
        batch = _batch([(tokens[start : start + (rows if start else 128)], start, table)], 16)
        whole.forward(batch, pool)
        _layer_by_layer(split, batch, pools)
    for layer, part in enumerate(pools):
        for mine, theirs in zip(
            pool.read(layer, table, start + rows), part.read(0, table, start + rows), strict=True
        ):
            assert torch.equal(mine, theirs)
