"""The order of a coded page's numbers that the native attention reads; see lanes.py."""

import torch

from engine.coded.codec import unflatten

LANES = 16
_GROUP = 32
_BY_TURNS = [0, 2, 1, 3]  # of four bytes, so that shifts leave pairs of 16 bits (source/matrix.h)


class LanePacking:
    """See `Packing`."""

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
