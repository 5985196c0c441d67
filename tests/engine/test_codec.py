"""Codecs and the order of their numbers: how far a coded page is from what was coded."""

import math
from itertools import product

import pytest
import torch

from engine.coded.codec import CODECS, Codec, Coding, hadamard
from engine.coded.layout import CodedLayout
from engine.coded.pool import CodedPool
from engine.errors import SettingError
from engine.kv.layout import PageLayout
from engine.kv.pool import PagePool
from engine.native.lane_packing import LanePacking
from engine.native.lanes import LanePool

CPU = torch.device("cpu")


class LaneCodedPool(LanePool, CodedPool):
    """Coded pages in the order of the native kernels, without the kernels."""

    packing = LanePacking()


POOLS = (CodedPool, LaneCodedPool)


def _pool(codec: str, head_dim: int, kind: type[CodedPool]) -> CodedPool:
    plain = PageLayout(2, 3, head_dim, 16, torch.float32)
    return kind(CodedLayout.of(plain, Codec.of(codec, head_dim)), 6, CPU)


def _fill(pool: PagePool, pages: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Normal numbers in the first pages of both layers; the second's keys are twice as large."""
    layout = pool.layout
    torch.manual_seed(5)
    shape = (pages * layout.page_size, layout.kv_heads, layout.head_dim)
    keys, values = torch.randn(shape), torch.randn(shape)
    positions = torch.arange(shape[0])
    for layer in range(2):
        pool.write(layer, positions, keys * (layer + 1), values)
    return keys.transpose(0, 1), values.transpose(0, 1)


@pytest.mark.parametrize(("codec", "head_dim"), list(product(CODECS, (32, 64, 80, 96, 128, 256))))
def test_a_coded_page_reads_back_within_its_codecs_error(codec: str, head_dim: int) -> None:
    # Of uniform rounding: half a step, the step being the largest of 32 normal numbers over 127 or
    # 7, is about 0.5% or 9% of their spread; e4m3 has three bits after the first.
    bounds = {"int8": 0.008, "int4": 0.11, "fp8": 0.035}
    for kind in POOLS:
        if kind is LaneCodedPool and head_dim % 32:
            continue
        pool = _pool(codec, head_dim, kind)
        keys, values = _fill(pool, 4)
        first = pool.frames + 4 * pool.layout.slots_per_frame
        pool.put(pool.encode([1, 2]), [first, first + 1])
        table = torch.tensor([0, first, first + 1, 3])
        got = pool.read(1, table, 60)
        exact = (keys[:, :60] * 2, values[:, :60])
        for coding, is_, was in zip(CODECS[codec], got, exact, strict=True):
            inner = slice(16, 48)
            assert torch.equal(is_[:, :16], was[:, :16])
            assert torch.equal(is_[:, 48:], was[:, 48:])
            error = (is_[:, inner] - was[:, inner]).norm() / was[:, inner].norm()
            assert 0 < error < bounds[coding]


@pytest.mark.parametrize("codec", CODECS)
def test_both_orders_hold_the_same_numbers(codec: str) -> None:
    read = []
    for kind in POOLS:
        pool = _pool(codec, 64, kind)
        _fill(pool, 2)
        first = pool.frames + 2 * pool.layout.slots_per_frame
        pool.put(pool.encode([0, 1]), [first, first + 1])
        read.append(pool.read(1, torch.tensor([first, first + 1]), 32))
    assert torch.equal(read[0][0], read[1][0])
    assert torch.equal(read[0][1], read[1][1])


@pytest.mark.parametrize(
    ("codec", "coded", "whole"),
    [("int8", 0.54, 0.55), ("fp8", 0.51, 0.52), ("k8v4", 0.42, 0.43), ("int4", 0.30, 0.31)],
)
def test_sizes_against_bfloat16(codec: str, coded: float, whole: float) -> None:
    plain = PageLayout(30, 3, 64, 16, torch.bfloat16)
    layout = CodedLayout.of(plain, Codec.of(codec, 64))
    assert layout.unit_bytes <= coded * plain.unit_bytes
    # The first page, the window and the page that is being filled are in frames, with their gaps.
    tokens = 8_000
    in_use = layout.units(tokens) * layout.unit_bytes
    assert in_use <= whole * plain.units(tokens) * plain.unit_bytes
    assert layout.units(tokens) == tokens / 16 + 9 * (layout.slots_per_frame - 1)


def test_four_bits_keep_small_channels_beside_large_ones_by_rotation() -> None:
    torch.manual_seed(1)
    x = torch.randn(64, 64)
    x[:, 7] *= 50
    coding = Coding("int4")
    small = torch.arange(64) != 7
    rotated = coding.decode(coding.encode(x))
    plain = _without_rotation(x)
    error = (rotated - x)[:, small].norm()
    assert error < 0.8 * (plain - x)[:, small].norm()


def _without_rotation(x: torch.Tensor) -> torch.Tensor:
    groups = x.unflatten(-1, (-1, 32))  # type: ignore[no-untyped-call]
    scale = groups.abs().amax(-1, keepdim=True) / 7
    return ((groups / scale).round() * scale).flatten(-2)


@pytest.mark.parametrize("size", [16, 32, 64, 80, 96, 128, 192, 256])
def test_hadamard_matrices_are_orthogonal_and_flat(size: int) -> None:
    matrix = hadamard(size)
    assert torch.allclose(matrix @ matrix.T, torch.eye(size), atol=1e-6)
    assert torch.allclose(matrix.abs(), torch.full((size, size), 1 / math.sqrt(size)))


def test_a_codec_that_cannot_take_a_head_says_so() -> None:
    with pytest.raises(SettingError, match=r"A head of 72 numbers.*--kv-dtype int8"):
        Codec.of("int4", 72)
    assert Codec.of("int8", 72).page_bytes(1, 16, 72) > 0


def test_zeros_and_the_largest_numbers_survive() -> None:
    for name in ("int8", "int4", "fp8"):
        coding = Coding(name)  # type: ignore[arg-type]
        assert torch.equal(coding.decode(coding.encode(torch.zeros(16, 32))), torch.zeros(16, 32))
        large = torch.full((16, 32), 3e4)
        assert torch.allclose(coding.decode(coding.encode(large)), large, rtol=0.02)
