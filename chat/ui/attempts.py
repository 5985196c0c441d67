"""How fast passwords may be guessed: who was wrong before waits, and few checks wait at a time."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import NamedTuple

FREE_FAILURES = 3  # a slip of the finger costs nothing
LONGEST_DELAY_S = 8.0
FORGOTTEN_AFTER_S = 900.0
_FIRST_DELAY_S = 0.5
_KEPT = 10_000  # names and addresses remembered
_WAITING = 32
_WAITING_FROM_ONE = 4


class TooMany(Exception):
    """As many checks wait as may: of this address, or of all."""


class _Failures(NamedTuple):
    number: int
    last_s: float


class Attempts:
    """Counts wrong passwords by name and by address; for one thread, that of the event loop.

    The delay grows with either and has an end, so that nobody is locked out by another's guesses:
    not by name, since it is at most `LONGEST_DELAY_S`, and not by filling the queue, in which an
    address has few places.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._failures: OrderedDict[tuple[str, str], _Failures] = OrderedDict()
        self._waiting: dict[str, int] = {}

    @contextmanager
    def place(self, address: str) -> Iterator[None]:
        """A place in the queue of checks. Raises TooMany."""
        address = _network(address)
        here = self._waiting.get(address, 0)
        if here >= _WAITING_FROM_ONE or sum(self._waiting.values()) >= _WAITING:
            raise TooMany
        self._waiting[address] = here + 1
        try:
            yield
        finally:
            left = self._waiting.pop(address) - 1
            if left:
                self._waiting[address] = left

    def delay_s(self, name: str, address: str) -> float:
        """How long the next check for this name from this address has to wait, in seconds."""
        failures = max(self._count(key) for key in _keys(name, address))
        if failures < FREE_FAILURES:
            return 0.0
        doubled = min(failures - FREE_FAILURES, 8)
        return min(_FIRST_DELAY_S * 2.0**doubled, LONGEST_DELAY_S)

    def failed(self, name: str, address: str) -> None:
        for key in _keys(name, address):
            self._failures[key] = _Failures(self._count(key) + 1, self._clock())
            self._failures.move_to_end(key)
        while len(self._failures) > _KEPT:
            self._failures.popitem(last=False)

    def succeeded(self, name: str) -> None:
        """Its failures are forgotten; those of the address stay: it may guess other names."""
        self._failures.pop(("name", name), None)

    def _count(self, key: tuple[str, str]) -> int:
        failures = self._failures.get(key)
        if failures is None or self._clock() - failures.last_s > FORGOTTEN_AFTER_S:
            return 0
        return failures.number


def _keys(name: str, address: str) -> tuple[tuple[str, str], tuple[str, str]]:
    return ("name", name), ("address", _network(address))


def _network(address: str) -> str:
    """What one person has for themselves: an IPv4 address, or 64 bits of an IPv6 one."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    return str(ipaddress.ip_network((int(parsed) >> 64 << 64, 64)))
