"""Column types of the conversation tables."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence

from sqlalchemy import LargeBinary
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

_INT32 = "i"


class TokenIds(TypeDecorator[tuple[int, ...]]):
    """Token ids as int32, little-endian, one after another."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: Sequence[int] | None, dialect: Dialect) -> bytes | None:
        if value is None:
            return None
        return _little_endian(array(_INT32, value)).tobytes()

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> tuple[int, ...] | None:
        if value is None:
            return None
        ids = array(_INT32)
        ids.frombytes(value)
        return tuple(_little_endian(ids))


def _little_endian(ids: array[int]) -> array[int]:
    if sys.byteorder == "big":
        ids.byteswap()
    return ids
