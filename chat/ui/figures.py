"""Numbers as people read them."""

from __future__ import annotations

_UNITS = ("B", "kB", "MB", "GB", "TB")
_BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size(size_bytes: int) -> str:
    """A size in decimal units with two or three figures: 27 MB, 1.4 GB, 512 B."""
    value = float(size_bytes)
    for unit in _UNITS:
        if value < 999.5 or unit == _UNITS[-1]:
            decimals = 1 if value < 9.95 and unit != "B" else 0
            return f"{value:.{decimals}f} {unit}"
        value /= 1000
    raise AssertionError("the last unit takes every size")


def binary_size(size_bytes: float) -> str:
    """A size in binary units, as KV is counted: 128 MiB, 0.50 GiB, 16.0 GiB, 512 B.

    From half of a unit on it is told in that unit.
    """
    value = float(size_bytes)
    for unit in _BINARY_UNITS:
        if value < 511.5 or unit == _BINARY_UNITS[-1]:
            decimals = 0 if unit == "B" or value >= 99.95 else 1 if value >= 9.995 else 2
            return f"{value:.{decimals}f} {unit}"
        value /= 1024
    raise AssertionError("the last unit takes every size")


def seconds(time_s: float) -> str:
    """A time with the decimals that matter: 0.31 s, 4.2 s, 75 s."""
    if time_s < 1:
        return f"{time_s:.2f} s"
    return f"{time_s:.1f} s" if time_s < 10 else f"{time_s:.0f} s"


def roughly(time_s: float) -> str:
    """A time that is only estimated, never none: 5 s, 20 s, 3 min, 2 h."""
    if time_s < 57.5:
        return f"{max(1, round(time_s / 5)) * 5} s"
    minutes = max(1, round(time_s / 60))
    return f"{minutes} min" if minutes < 90 else f"{minutes / 60:.0f} h"


def rate(per_second: float) -> str:
    """Tokens a second, with one decimal below ten."""
    return f"{per_second:.1f}" if per_second < 10 else f"{per_second:.0f}"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """1 page, 12 pages, 1,204 passages."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
