"""Weights in 4 or 8 bits, in groups of 32 along a row that share a scale.

The same numbers as in GGUF's Q4_0, Q4_1 and Q8_0, which are taken over without rounding again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch

GROUP = 32

Bits = Literal[4, 8]


@dataclass(frozen=True)
class Quantised:
    """A matrix w [rows, columns] as w = scale * q (8 bits), or scale * q + least (4 bits).

    Attributes:
        codes: q. [rows, columns], int8 from -128 to 127, or uint8 from 0 to 15.
        scales: [rows, columns / 32], float16.
        least: [rows, columns / 32], float16; None for 8 bits.
    """

    codes: torch.Tensor
    scales: torch.Tensor
    least: torch.Tensor | None

    @property
    def bits(self) -> Bits:
        return 8 if self.least is None else 4

    def stored(self) -> dict[str, torch.Tensor]:
        """As a file keeps it: two codes of 4 bits in a byte, the even column's below."""
        if self.least is None:
            return {"codes": self.codes, "scales": self.scales}
        pairs = self.codes.view(self.codes.shape[0], -1, 2)
        packed = pairs[..., 0] | pairs[..., 1] << 4
        return {"codes": packed, "scales": self.scales, "least": self.least}

    @staticmethod
    def from_stored(stored: Mapping[str, torch.Tensor]) -> "Quantised":
        """The inverse of `stored`."""
        codes, least = stored["codes"], stored.get("least")
        if least is not None:
            codes = torch.stack((codes & 15, codes >> 4), dim=-1).flatten(1)
        return Quantised(codes, stored["scales"], least)

    def dequantise(self) -> torch.Tensor:
        """The matrix in float32."""
        rows, columns = self.codes.shape
        groups = self.codes.float().view(rows, columns // GROUP, GROUP)
        groups = groups * self.scales.float()[..., None]
        if self.least is not None:
            groups = groups + self.least.float()[..., None]
        return groups.view(rows, columns)


def quantise(weight: torch.Tensor, bits: Bits) -> Quantised:
    """Round a matrix to the nearest codes.

    Args:
        weight: [rows, columns], columns a multiple of 32.
        bits: 8 is symmetric, with the largest magnitude at 127; 4 spans least to greatest.
    """
    rows, columns = weight.shape
    groups = weight.float().view(rows, columns // GROUP, GROUP)
    if bits == 8:
        scales = (groups.abs().amax(-1) / 127).half()
        codes = _divide(groups, scales).clamp(-127, 127).to(torch.int8)
        return Quantised(codes.view(rows, columns), scales, None)
    least = groups.amin(-1).half()
    above = groups - least.float()[..., None]
    scales = (above.amax(-1) / 15).half()
    codes = _divide(above, scales).clamp(0, 15).to(torch.uint8)
    return Quantised(codes.view(rows, columns), scales, least)


def _divide(groups: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Rounded to whole numbers; 0 in groups whose scale is 0."""
    wide = scales.float()[..., None]
    return torch.where(wide > 0, groups / wide, 0.0).round()
