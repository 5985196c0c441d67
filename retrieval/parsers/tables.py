"""Tables as text: one row a line, in Markdown's form, so that a row stays together."""

import re
from collections.abc import Sequence

_SPACE = re.compile(r"\s+")
# What stands in merged cells is repeated in each, so that every row reads by itself; not if it is
# long: a hostile file could have a page repeated a thousand times.
MAX_REPEATED = 200
MAX_SPAN = 100
# Past so many places, what spans several stands in the first alone.
MAX_REPEATS = 100_000


def render_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as a Markdown table; the first row is its header. "" if all are empty.

    A first row that is one merged cell is the table's title and stands above it.
    """
    clean = [[_SPACE.sub(" ", cell).strip().replace("|", "\\|") for cell in row] for row in rows]
    clean = [row for row in clean if any(row)]
    if not clean:
        return ""
    width = max(len(row) for row in clean)
    if width == 1:
        return "\n".join(row[0] for row in clean)
    titles = []
    while len(clean) > 1 and len(clean[0]) == width and len(set(clean[0])) == 1:
        titles.append(clean.pop(0)[0])
    lines = ["| " + " | ".join(row + [""] * (width - len(row))) + " |" for row in clean]
    lines.insert(1, "|" + " --- |" * width)
    return "\n\n".join((*titles, "\n".join(lines)))


class Grid:
    """Cells that span rows and columns, laid out so that each place has its text."""

    def __init__(self) -> None:
        self.rows: list[list[str]] = []
        self._hanging: dict[int, tuple[int, str]] = {}  # column -> (rows still to fill, text)
        self._repeats = 0

    def start_row(self) -> None:
        self.rows.append([])

    def add(self, text: str, columns: int = 1, rows: int = 1) -> None:
        row = self.rows[-1]
        self._fill(row)
        columns, rows = max(1, min(columns, MAX_SPAN)), max(1, min(rows, MAX_SPAN))
        self._repeats += columns * rows - 1
        if self._repeats > MAX_REPEATS:
            columns = rows = 1
        repeated = text if len(text) <= MAX_REPEATED else ""
        for offset in range(columns):
            if rows > 1:
                self._hanging[len(row)] = (rows - 1, repeated)
            row.append(repeated if offset else text)

    def end_row(self) -> None:
        row = self.rows[-1]
        self._fill(row)
        while self._hanging and max(self._hanging) >= len(row):
            row.append("")
            self._fill(row)

    def _fill(self, row: list[str]) -> None:
        """Put what hangs down from the rows above where this row has come to."""
        while (hanging := self._hanging.pop(len(row), None)) is not None:
            left, text = hanging
            if left > 1:
                self._hanging[len(row)] = (left - 1, text)
            row.append(text)
