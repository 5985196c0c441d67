"""In which order the codes of one head's rows lie in a coded page.

Codes are int8 here, those of 4 bits within -8..7, and bytes in the page.
"""

from typing import Protocol

import torch

from engine.coded.codec import unflatten


class Packing(Protocol):
    """An order. Everything keeps the dimensions in front of the two that are named."""

    def pack_keys(self, numbers: torch.Tensor, bits: int) -> torch.Tensor:
        """[..., page_size, head_dim] int8 -> [..., bytes] uint8."""
        ...

    def unpack_keys(self, packed: torch.Tensor, bits: int, rows: int) -> torch.Tensor:
        """The inverse of `pack_keys`."""
        ...

    def pack_values(self, numbers: torch.Tensor, bits: int) -> torch.Tensor:
        """[..., page_size, head_dim] int8 -> [..., bytes] uint8."""
        ...

    def unpack_values(self, packed: torch.Tensor, bits: int, rows: int) -> torch.Tensor:
        """The inverse of `pack_values`."""
        ...

    def pack_scales(self, scales: torch.Tensor) -> torch.Tensor:
        """[..., page_size, groups] -> [..., numbers]."""
        ...

    def unpack_scales(self, packed: torch.Tensor, rows: int) -> torch.Tensor:
        """The inverse of `pack_scales`."""
        ...


class RowPacking:
    """Codes as they come, row after row: for PyTorch."""

    def pack_keys(self, numbers: torch.Tensor, bits: int) -> torch.Tensor:
        if bits == 4:
            pairs = unflatten((numbers + 8).view(torch.uint8), -1, (-1, 2))
            numbers = pairs[..., 0] | pairs[..., 1] << 4
        return numbers.flatten(-2).view(torch.uint8)

    def unpack_keys(self, packed: torch.Tensor, bits: int, rows: int) -> torch.Tensor:
        if bits == 4:
            packed = torch.stack((packed & 15, packed >> 4), -1).flatten(-2)
            return unflatten(packed.view(torch.int8), -1, (rows, -1)) - 8
        return unflatten(packed.view(torch.int8), -1, (rows, -1))

    pack_values, unpack_values = pack_keys, unpack_keys

    def pack_scales(self, scales: torch.Tensor) -> torch.Tensor:
        return scales.flatten(-2)

    def unpack_scales(self, packed: torch.Tensor, rows: int) -> torch.Tensor:
        return unflatten(packed, -1, (rows, -1))
