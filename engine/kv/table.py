"""A sequence's page table, which knows what a device has not been told of yet."""

from collections.abc import Iterable, MutableSequence
from typing import NamedTuple, overload


class TableChange(NamedTuple):
    """Entries of a device's page table, [rows, entries], that are new.

    Attributes:
        row: of the table.
        first: entry that the pages begin at.
        pages: what stands there now.
    """

    row: int
    first: int
    pages: list[int]


class PageTable(MutableSequence[int]):
    """Pages of a sequence: position p lies in page `table[p // page_size]`.

    While the sequence runs it has a row in the device's table, which is sent what has changed
    since the last step and nothing else.

    Attributes:
        row: in the device's table; None while it has none.
    """

    def __init__(self, pages: Iterable[int] = ()) -> None:
        self._pages = list(pages)
        self._told = 0  # leading entries that the device has as they are
        self.row: int | None = None

    def take_row(self, row: int | None) -> None:
        """Stand in another row from now on, of which the device knows nothing."""
        self.row, self._told = row, 0

    def take_change(self) -> TableChange | None:
        """What the device has to be told now, if anything; it counts as told."""
        if self._told == len(self._pages):
            return None
        assert self.row is not None, "a sequence without a row cannot be computed"
        change = TableChange(self.row, self._told, self._pages[self._told :])
        self._told = len(self._pages)
        return change

    def forget_told(self) -> None:
        """A step was lost: tell everything again."""
        self._told = 0

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        return self._pages[index]

    @overload
    def __setitem__(self, index: int, value: int) -> None: ...
    @overload
    def __setitem__(self, index: slice, value: Iterable[int]) -> None: ...
    def __setitem__(self, index: int | slice, value: int | Iterable[int]) -> None:
        self._changed(index)
        self._pages[index] = value  # type: ignore[assignment,index]

    def __delitem__(self, index: int | slice) -> None:
        self._changed(index)
        del self._pages[index]

    def __len__(self) -> int:
        return len(self._pages)

    def insert(self, index: int, value: int) -> None:
        self._changed(slice(index, None))
        self._pages.insert(index, value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Iterable) and self._pages == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"PageTable({self._pages})"

    def _changed(self, index: int | slice) -> None:
        first = slice(index, None) if isinstance(index, int) else index
        self._told = min(self._told, first.indices(len(self._pages))[0])
