"""Weights in groups: a file's own are taken over exactly, others rounded to the nearest."""

import gguf
import numpy as np
import pytest
import torch

from engine.gguf_file import _quantised
from engine.quantised import Quantised, quantise


def _weights(rows: int = 48, columns: int = 96) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(1)) * 0.3


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0"])
def test_a_files_groups_are_its_dequantised_weights_bit_for_bit(kind: str) -> None:
    form = gguf.GGMLQuantizationType[kind]
    blocks = gguf.quantize(_weights().numpy(), form)
    expected = torch.from_numpy(np.array(gguf.dequantize(blocks, form)))
    assert torch.equal(_quantised(blocks, kind).dequantise(), expected)


@pytest.mark.parametrize("bits", [4, 8])
def test_a_stored_matrix_is_read_back_as_it_was(bits: int) -> None:
    matrix = quantise(_weights(), bits)  # type: ignore[arg-type]
    again = Quantised.from_stored(matrix.stored())
    assert again.bits == bits
    assert torch.equal(again.codes, matrix.codes)
    assert torch.equal(again.dequantise(), matrix.dequantise())


@pytest.mark.parametrize(("bits", "steps"), [(8, 127), (4, 15)])
def test_rounding_is_off_by_half_a_step_at_most(bits: int, steps: int) -> None:
    weights = _weights()
    weights[3, 32:64] = 0.0
    weights[4, :32] = 0.25  # all the same
    off = (quantise(weights, bits).dequantise() - weights).abs().view(48, 3, 32)  # type: ignore[arg-type]
    groups = weights.view(48, 3, 32)
    span = groups.abs().amax(-1) if bits == 8 else groups.amax(-1) - groups.amin(-1)
    # Scales and least values are float16 themselves.
    assert (off.amax(-1) <= span / steps * 0.51 + groups.abs().amax(-1) * 2**-10).all()


def test_a_group_of_zeros_stays_zero() -> None:
    for bits in (4, 8):
        assert not quantise(torch.zeros(16, 32), bits).dequantise().any()  # type: ignore[arg-type]
