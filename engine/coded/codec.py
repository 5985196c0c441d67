"""How a page holds numbers: in full precision, or in 8 or 4 bits with scales.

A page is coded once, when it is full and lies outside the recent window, from full precision. What
is coded once and never again does not drift: the error of a key or value stays that of one rounding
however long the conversation goes on.

    coding   a head's rows [page_size, head_dim]                 bytes a number
    int8     round(x / s), s = largest / 127 of 32 numbers       1 + 2 / 32
    int4     round(x H / s), s = largest / 7 of 32 numbers       1 / 2 + 2 / 32
                             of keys: furthest from 0 / -8
    fp8      e4m3 of x / s, s = largest / 448 of the page        1 + 4 / (page_size head_dim)

Groups of 32 lie along head_dim; scales are float16 (fp8: float32), so 0.53, 0.28 and 0.50 times
bfloat16. H is an orthogonal Hadamard matrix: it spreads the few large channels that keys have over
all of them, where 4 bits would lose the small ones (QuaRot; Ashkboos et al., 2024). Keys take part
in every score, so `k8v4` gives them the bits (KIVI; Liu et al., 2024).
"""

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F

from engine.errors import SettingError
from engine.quantised import GROUP

CodecName = Literal["fp8", "int8", "k8v4", "int4"]
CodingName = Literal["int8", "int4", "fp8"]

CODECS: dict[str, tuple[CodingName, CodingName]] = {
    "int8": ("int8", "int8"),
    "fp8": ("fp8", "fp8"),
    "k8v4": ("int8", "int4"),
    "int4": ("int4", "int4"),
}
"""Codings of keys and of values by the codec's name, the closest to full precision first."""

ALIGNMENT = 64  # of a page, in bytes: a cache line
FP8_LARGEST = 448.0


class Codes(NamedTuple):
    """Coded rows.

    Attributes:
        numbers: [..., rows, head_dim], int8; the bits of e4m3 for fp8.
        scales: [..., rows, groups] float16; [..., 1, 1] float32 for fp8.
    """

    numbers: torch.Tensor
    scales: torch.Tensor


@dataclass(frozen=True)
class Coding:
    """One way to hold a head's rows.

    Attributes:
        signed: whether scales may be negative. In 4 bits that makes steps an eighth shorter, and KL
            a third smaller. Those of values may not: attention multiplies its weights with them and
            counts on products without a sign (native/source/codes.h).
    """

    name: CodingName
    signed: bool = False

    @property
    def bits(self) -> int:
        return 4 if self.name == "int4" else 8

    @property
    def rotates(self) -> bool:
        """Whether rows are multiplied by the Hadamard matrix before they are rounded."""
        return self.name == "int4"

    @property
    def scale_dtype(self) -> torch.dtype:
        return torch.float32 if self.name == "fp8" else torch.float16

    def scale_shape(self, rows: int, head_dim: int) -> tuple[int, int]:
        return (1, 1) if self.name == "fp8" else (rows, -(-head_dim // GROUP))

    def code_bytes(self, rows: int, head_dim: int) -> int:
        return rows * head_dim * self.bits // 8

    def scale_bytes(self, rows: int, head_dim: int) -> int:
        height, width = self.scale_shape(rows, head_dim)
        return height * width * self.scale_dtype.itemsize

    def bytes(self, rows: int, head_dim: int) -> int:
        """Of one head's rows, scales included."""
        return self.code_bytes(rows, head_dim) + self.scale_bytes(rows, head_dim)

    def encode(self, x: torch.Tensor) -> Codes:
        """Round rows [..., page_size, head_dim] of any dtype."""
        x = x.float()
        if self.name == "fp8":
            scales = x.abs().amax((-2, -1), keepdim=True) / FP8_LARGEST
            numbers = torch.where(scales > 0, x / scales, 0.0).to(torch.float8_e4m3fn)
            return Codes(numbers.view(torch.int8), scales)
        if self.rotates:
            x = x @ hadamard(x.shape[-1]).to(x.device)
        groups = _in_groups(x)
        if self.signed:
            # The number furthest from 0 is -8, whatever its sign: all sixteen codes are used.
            high, low = groups.amax(-1), groups.amin(-1)
            least, most, scales = -8, 7, torch.where(high >= -low, high, low) / -8
        else:
            most = 7 if self.bits == 4 else 127
            least, scales = -most, groups.abs().amax(-1) / most
        scales = scales.clamp(-65504, 65504).half()
        wide = scales.float()[..., None]
        numbers = torch.where(wide != 0, groups / wide, 0.0).round().clamp(least, most)
        return Codes(numbers.to(torch.int8).flatten(-2)[..., : x.shape[-1]], scales)

    def decode(self, codes: Codes) -> torch.Tensor:
        """float32 rows [..., rows, head_dim]."""
        if self.name == "fp8":
            return codes.numbers.view(torch.float8_e4m3fn).float() * codes.scales
        head_dim = codes.numbers.shape[-1]
        groups = _in_groups(codes.numbers.float())
        x: torch.Tensor = (groups * codes.scales.float()[..., None]).flatten(-2)[..., :head_dim]
        if self.rotates:
            x = torch.matmul(x, hadamard(head_dim).to(x.device).T)
        return x


def unflatten(x: torch.Tensor, dim: int, sizes: tuple[int, ...]) -> torch.Tensor:
    """`Tensor.unflatten`, which PyTorch leaves untyped."""
    split: torch.Tensor = x.unflatten(dim, sizes)  # type: ignore[no-untyped-call]
    return split


def _in_groups(x: torch.Tensor) -> torch.Tensor:
    """[..., head_dim] as [..., groups, 32], the last one filled with zeros."""
    missing = -x.shape[-1] % GROUP
    return unflatten(F.pad(x, (0, missing)), -1, (-1, GROUP))


@cache
def hadamard(size: int) -> torch.Tensor:
    """An orthogonal matrix [size, size] of entries +-1 / sqrt(size), in float32.

    Sylvester's doubling of Paley's matrices of order 1, 12 and 20.

    Raises:
        SettingError: there is none of that size here.
    """
    odd = next((base for base in (1, 12, 20) if _is_power_of_two(size / base)), None)
    if odd is None:
        raise SettingError(
            f"A head of {size} numbers can't be rotated for 4 bits: use --kv-dtype int8 or fp8."
        )
    matrix = torch.ones(1, 1, device="cpu") if odd == 1 else _paley(odd - 1)
    while len(matrix) < size:
        top, bottom = torch.cat((matrix, matrix), 1), torch.cat((matrix, -matrix), 1)
        matrix = torch.cat((top, bottom))
    return matrix / math.sqrt(size)


def _is_power_of_two(x: float) -> bool:
    return x >= 1 and x == int(x) and not int(x) & (int(x) - 1)


def _paley(prime: int) -> torch.Tensor:
    """The Hadamard matrix of order prime + 1, for a prime that is 3 modulo 4 (Paley, 1933)."""
    squares = {i * i % prime for i in range(1, prime)}
    matrix = torch.ones(prime + 1, prime + 1, device="cpu")
    for i in range(prime):
        matrix[i + 1, 0] = -1
        for j in range(prime):
            matrix[i + 1, j + 1] = 1 if i == j or (i - j) % prime not in squares else -1
    return matrix


@dataclass(frozen=True)
class Codec:
    """Codings of a page's keys and values, and where they stand in it.

    A coded page of one layer holds four arrays, each over all KV heads: codes of keys, codes of
    values, scales of keys, scales of values.
    """

    name: str
    keys: Coding
    values: Coding

    @staticmethod
    def of(name: str, head_dim: int) -> "Codec":
        """The codec of a name.

        Raises:
            SettingError: it cannot take heads of that size.
        """
        keys, values = (Coding(name) for name in CODECS[name])
        if keys.name == "int4":
            keys = replace(keys, signed=True)
        if keys.rotates or values.rotates:
            hadamard(head_dim)
        return Codec(name, keys, values)

    def sections(self, kv_heads: int, page_size: int, head_dim: int) -> list[int]:
        """Bytes of the four arrays of one layer's page."""
        return [
            kv_heads * size(page_size, head_dim)
            for size in (
                self.keys.code_bytes,
                self.values.code_bytes,
                self.keys.scale_bytes,
                self.values.scale_bytes,
            )
        ]

    def page_bytes(self, kv_heads: int, page_size: int, head_dim: int) -> int:
        """Of one layer's page, filled up to a cache line."""
        size = sum(self.sections(kv_heads, page_size, head_dim))
        return -(-size // ALIGNMENT) * ALIGNMENT
