"""A device's page table follows the sequences' own, and is sent nothing but what is new."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.kv.table import PageTable, TableChange

OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("extend"), st.lists(st.integers(0, 99), max_size=4)),
        st.tuples(st.just("cut"), st.integers(0, 12)),
        st.tuples(st.just("replace"), st.integers(0, 11)),
        st.tuples(st.just("pop"), st.none()),
        st.tuples(st.just("move"), st.integers(0, 2)),
        st.tuples(st.just("step"), st.none()),
    ),
    max_size=40,
)


def _operate(table: PageTable, name: str, value: Any) -> None:
    if name == "extend":
        table += value
    elif name == "cut":
        del table[value:]
    elif name == "replace" and value < len(table):
        table[value] = 1000 + value
    elif name == "pop" and len(table):
        table.pop()
    elif name == "move":
        table.take_row(value)


def _apply(device: list[list[int | None]], change: TableChange | None) -> None:
    if change is not None:
        device[change.row][change.first : change.first + len(change.pages)] = change.pages


@given(OPERATIONS)
def test_the_device_has_every_entry_after_every_step(operations: list[tuple[str, Any]]) -> None:
    table, expected = PageTable(), []
    table.take_row(0)
    device: list[list[int | None]] = [[None] * 200 for _ in range(3)]
    for name, value in [*operations, ("step", None)]:
        _operate(table, name, value)
        if name == "step":
            _apply(device, table.take_change())
            assert table.row is not None
            expected = list(table)
            assert device[table.row][: len(expected)] == expected
            assert table.take_change() is None  # nothing is sent twice


def test_only_what_is_new_is_sent() -> None:
    table = PageTable([5, 6])
    table.take_row(3)
    assert table.take_change() == (3, 0, [5, 6])
    table.append(7)
    assert table.take_change() == (3, 2, [7])
    table[1] = 9
    assert table.take_change() == (3, 1, [9, 7])
    table.pop()
    table.append(7)
    assert table.take_change() == (3, 2, [7])  # it may stand for something else by now
    table.forget_told()
    assert table.take_change() == (3, 0, [5, 9, 7])
    table.take_row(1)
    assert table.take_change() == (1, 0, [5, 9, 7])


def test_a_table_without_a_row_cannot_be_told() -> None:
    with pytest.raises(AssertionError, match="without a row"):
        PageTable([1]).take_change()
