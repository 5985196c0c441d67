"""In which order one head's numbers lie in a page.

    rows    as they come, [page_size, head_dim]: for PyTorch
    lanes   what the native attention reads sixteen at a time (source/attention.h): keys side by
            side, so that dot products need no sums across lanes; of values, head_dim side by side

Coded numbers are int8 here, those of 4 bits within -8..7, and bytes in the page.
"""

from typing import Protocol

import torch

from engine.kv.codec import unflatten

LANES = 16
_GROUP = 32
_BY_TURNS = [0, 2, 1, 3]  # of four bytes, so that shifts leave pairs of 16 bits (source/matrix.h)


class Order(Protocol):
    """One of the two orders; everything keeps the dimensions in front."""

    def plain_shapes(self, rows: int, head_dim: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of one head's keys and of its values in a page of full precision."""
        ...

    def write(
        self,
        keys: torch.Tensor,
        values: torch.Tensor,
        pages: torch.Tensor,
        offsets: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
    ) -> None:
        """Put rows k and v [n, kv_heads, head_dim] at pages [n] and offsets [n] of one layer."""
        ...

    def rows(self, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Plain pages as two of [..., page_size, head_dim]."""
        ...

    def pack_keys(self, numbers: torch.Tensor, bits: int) -> torch.Tensor:
        """[..., page_size, head_dim] int8 -> [..., bytes] uint8."""
        ...

    def unpack_keys(self, packed: torch.Tensor, bits: int, rows: int) -> torch.Tensor: ...

    def pack_values(self, numbers: torch.Tensor, bits: int) -> torch.Tensor:
        """[..., page_size, head_dim] int8 -> [..., bytes] uint8."""
        ...

    def unpack_values(self, packed: torch.Tensor, bits: int, rows: int) -> torch.Tensor: ...

    def pack_scales(self, scales: torch.Tensor) -> torch.Tensor:
        """[..., page_size, groups] -> [..., numbers]."""
        ...

    def unpack_scales(self, packed: torch.Tensor, rows: int) -> torch.Tensor: ...


class Rows:
    """See `Order`."""

    def plain_shapes(self, rows: int, head_dim: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return (rows, head_dim), (rows, head_dim)

    def write(
        self,
        keys: torch.Tensor,
        values: torch.Tensor,
        pages: torch.Tensor,
        offsets: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
    ) -> None:
        keys[pages, :, offsets] = k
        values[pages, :, offsets] = v

    def rows(self, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return keys, values

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


class Lanes:
    """See `Order`. page_size is a multiple of 16, head_dim of 16, of 32 where it is coded.

    For d = head_dim and p = page_size:

        plain         keys [d / 2, p, 2]                    values [p / 2, d, 2]
        8 bits        keys [p / 16, d / 32, 8, 16, 4 d]     values [p / 16, d / 16, 4, 16, 4 p]
        4 bits        keys [p / 16, d / 32, 4, 16, 8 d]     values [p / 16, d / 16, 2, 16, 8 p]
        scales        [p / 16, d / 32, 16]
    """

    def plain_shapes(self, rows: int, head_dim: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return (head_dim // 2, rows, 2), (rows // 2, head_dim, 2)

    def write(
        self,
        keys: torch.Tensor,
        values: torch.Tensor,
        pages: torch.Tensor,
        offsets: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
    ) -> None:
        keys[pages, :, :, offsets] = unflatten(k, -1, (-1, 2))
        values[pages, :, offsets // 2, :, offsets % 2] = v

    def rows(self, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return keys.transpose(-3, -2).flatten(-2), values.transpose(-2, -1).flatten(-3, -2)

    def pack_keys(self, numbers: torch.Tensor, bits: int) -> torch.Tensor:
        run = 32 // bits  # numbers in a lane
        tiles = unflatten(numbers, -1, (-1, _GROUP // run, run))
        tiles = unflatten(tiles, -4, (-1, LANES))
        return _pack(
            tiles.movedim(-4, -2), bits
        )  # [P, 16, G, parts, run] -> [P, G, parts, 16, run]

    def unpack_keys(self, packed: torch.Tensor, bits: int, rows: int) -> torch.Tensor:
        run = 32 // bits
        tiles = unflatten(_unpack(packed, bits), -1, (rows // LANES, -1, _GROUP // run, LANES, run))
        return tiles.movedim(-2, -4).flatten(-3).flatten(-3, -2)

    def pack_values(self, numbers: torch.Tensor, bits: int) -> torch.Tensor:
        run = 32 // bits
        tiles = unflatten(numbers, -1, (-1, LANES))
        tiles = unflatten(tiles, -3, (-1, LANES // run, run))
        # [P, parts, run, D, 16] -> [P, D, parts, 16, run]
        return _pack(tiles.movedim(-2, -4).movedim(-2, -1), bits)

    def unpack_values(self, packed: torch.Tensor, bits: int, rows: int) -> torch.Tensor:
        run = 32 // bits
        tiles = unflatten(_unpack(packed, bits), -1, (rows // LANES, -1, LANES // run, LANES, run))
        return tiles.movedim(-1, -2).movedim(-4, -2).flatten(-2).flatten(-4, -2)

    def pack_scales(self, scales: torch.Tensor) -> torch.Tensor:
        if scales.shape[-2] == 1:
            return scales.flatten(-2)
        return unflatten(scales, -2, (-1, LANES)).transpose(-1, -2).flatten(-3)

    def unpack_scales(self, packed: torch.Tensor, rows: int) -> torch.Tensor:
        if rows == 1:
            return unflatten(packed, -1, (1, 1))
        tiles = unflatten(packed, -1, (rows // LANES, -1, LANES))
        return tiles.transpose(-1, -2).flatten(-3, -2)


def _pack(tiles: torch.Tensor, bits: int) -> torch.Tensor:
    """[a, b, c, d, run] int8, a lane's numbers last -> [bytes] uint8."""
    if bits == 8:
        return tiles[..., _BY_TURNS].flatten(-5).view(torch.uint8)
    # A lane's low half holds the even ones of eight, its high half the odd ones.
    codes = (tiles + 8).view(torch.uint8)
    return (codes[..., [0, 4, 1, 5]] | codes[..., [2, 6, 3, 7]] << 4).flatten(-5)


def _unpack(packed: torch.Tensor, bits: int) -> torch.Tensor:
    """[bytes] uint8 -> [numbers] int8, a lane's numbers in their order."""
    fours = unflatten(packed, -1, (-1, 4))
    if bits == 8:
        return fours[..., _BY_TURNS].flatten(-2).view(torch.int8)
    eights = torch.cat((fours & 15, fours >> 4), -1)
    return eights[..., [0, 2, 4, 6, 1, 3, 5, 7]].flatten(-2).view(torch.int8) - 8
