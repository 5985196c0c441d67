"""Weights in the order in which the native products read them; see source/matrix.h."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from engine.quantised import GROUP, Quantised

LANES = 16
PANEL = 2 * LANES

BFLOAT16, INT8, INT4 = 0, 1, 2  # `Kind` in source/matrix.h


class Packed(NamedTuple):
    """A matrix in blocks of sixteen rows.

    Attributes:
        rows: a multiple of 32; those beyond the matrix's own are zero.
        columns: a multiple of 32.
        kind: BFLOAT16, INT8 or INT4.
        blocks: [rows / 16, bytes of a block], uint8.
    """

    rows: int
    columns: int
    kind: int
    blocks: torch.Tensor


Join = Callable[[Sequence[torch.Tensor]], torch.Tensor]
"""How rows of several tensors become those of one: one after the other, or by turns."""


def in_a_row(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat(list(parts))


def pack(parts: Sequence[torch.Tensor | Quantised], join: Join = in_a_row) -> Packed:
    """One matrix of the rows of several, all of one kind.

    Args:
        parts: each [rows, columns], a float tensor (kept in bfloat16) or quantised.
        join: in which order the rows go.
    """
    first = parts[0]
    if isinstance(first, Quantised):
        quantised = [part for part in parts if isinstance(part, Quantised)]
        codes = _lanes(join([part.codes for part in quantised]))
        groups = [
            (_int8 if first.least is None else _int4)(codes),
            _groups(join([part.scales for part in quantised])),
        ]
        if first.least is not None:
            least = [part.least for part in quantised if part.least is not None]
            groups.append(_groups(join(least)))
        kind, columns = (INT8 if first.least is None else INT4), first.codes.shape[1]
        blocks = torch.cat(groups, dim=2).flatten(1)
    else:
        floats = join([part for part in parts if isinstance(part, torch.Tensor)])
        wide = _lanes(floats.to(torch.bfloat16))
        # [block, lane, k / 2, 2] -> [block, k / 2, lane, 2]
        pairs = wide.view(wide.shape[0], LANES, -1, 2).transpose(1, 2)
        blocks = _bytes(pairs, wide.shape[2] // GROUP)
        blocks = blocks.flatten(1)
        kind, columns = BFLOAT16, floats.shape[1]
    # A block begins on a cache line.
    blocks = torch.nn.functional.pad(blocks, (0, -blocks.shape[1] % 64))
    return Packed(blocks.shape[0] * LANES, columns, kind, blocks.contiguous())


def by_turns(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Rows of two tensors by turns of sixteen, so that a gate and its up come out together."""
    one, other = (part.view(-1, LANES, *part.shape[1:]) for part in parts)
    return torch.stack((one, other), 1).flatten(0, 2)


def _lanes(rows: torch.Tensor) -> torch.Tensor:
    """[rows, n] -> [rows / 16, 16, n], with zero rows up to a multiple of 32."""
    missing = -rows.shape[0] % PANEL
    if missing:
        rows = torch.cat([rows, rows.new_zeros(missing, rows.shape[1])])
    return rows.view(-1, LANES, rows.shape[1])


def _int8(codes: torch.Tensor) -> torch.Tensor:
    """A lane's four bytes hold k = 4 j + 0, 2, 1, 3: the words' low halves first."""
    parts = codes.view(codes.shape[0], LANES, -1, 4)[..., [0, 2, 1, 3]]
    return _bytes(parts.transpose(1, 2), codes.shape[2] // GROUP)


def _int4(codes: torch.Tensor) -> torch.Tensor:
    """A lane's low word holds k = 8 j + 0, 2, 4, 6 from its lowest nibble on, the high one 1, 3"""
    # [block, lane, j, nibble, word]
    parts = codes.to(torch.int32).view(codes.shape[0], LANES, -1, 4, 2)
    shifts = torch.tensor([0, 4, 8, 12], dtype=torch.int32)[:, None]
    words = (parts << shifts).sum(3).to(torch.int32)  # [block, lane, j, word]
    words = torch.where(words >= 2**15, words - 2**16, words).to(torch.int16)
    return _bytes(words.transpose(1, 2), codes.shape[2] // GROUP)


def _groups(values: torch.Tensor) -> torch.Tensor:
    """One number a row and group: [rows, groups] -> [blocks, groups, bytes]"""
    lanes = _lanes(values).transpose(1, 2)
    return _bytes(lanes, lanes.shape[1])


def _bytes(values: torch.Tensor, groups: int) -> torch.Tensor:
    """[blocks, ...] -> [blocks, groups, bytes]"""
    flat = values.contiguous().flatten(1).view(torch.uint8)
    return flat.view(flat.shape[0], groups, -1)
