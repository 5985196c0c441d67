"""A step: what is computed at once, as plain numbers on the host.

The new tokens of several sequences lie one after the other in one row dimension, without padding.
Whoever computes a step gets nothing else: no session, no request, no tensor.

    rows       | a a a a a | b | c |          starts    [0, 5, 6, 7]
    logits               x   x   x            contexts  keys that each sequence has afterwards
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.kv.session import Session
from engine.kv.table import TableChange
from engine.sampling import Draw

Ints = NDArray[np.int32]

KNOWN = -1
"""In `Step.sources`: the token is in `Step.tokens`."""


class Part(NamedTuple):
    """One sequence's rows in a step.

    Attributes:
        session: has a row in the page table, and pages for all these rows.
        start: position of the first row.
        rows: how many.
        draw: how the token after the last row is chosen; None where it is not wanted.
        source: where the token of the first row is still being drawn by the step before, its
            place among that step's draws; else `KNOWN`.
        all_logits: whether the logits of every row are wanted, for comparisons.
    """

    session: Session
    start: int
    rows: int
    draw: Draw | None = None
    source: int = KNOWN
    all_logits: bool = False


@dataclass(frozen=True)
class Step:
    """New tokens of several sequences. All arrays are int32.

    Attributes:
        tokens: [rows]; 0 where the token is not known yet.
        sources: [rows]; the place among the draws of the step before, or `KNOWN`.
        positions: [rows], absolute. A row sees the keys at positions up to its own.
        slots: [rows], where each row's key and value go: page * page_size + place in the page.
        starts: [sequences + 1], the first row of each sequence, and the number of rows.
        contexts: [sequences], keys of each once this step's are written.
        table_rows: [sequences], the row of each in the page table.
        logit_rows: [logits], rows whose logits are wanted.
        draws: one for each row of logits; none where only logits are wanted.
        changes: what is new in the page table.
    """

    tokens: Ints
    sources: Ints
    positions: Ints
    slots: Ints
    starts: Ints
    contexts: Ints
    table_rows: Ints
    logit_rows: Ints
    draws: tuple[Draw, ...]
    changes: tuple[TableChange, ...]

    @property
    def rows(self) -> int:
        return len(self.tokens)

    @staticmethod
    def of(parts: Sequence[Part], page_size: int) -> "Step":
        """Lay parts one after the other.

        The sessions' page tables count as told of their changes from here on.
        """
        counts = [part.rows for part in parts]
        starts = np.zeros(len(parts) + 1, dtype=np.int32)
        np.cumsum(counts, out=starts[1:])
        tokens, sources, positions, slots = np.zeros((4, int(starts[-1])), dtype=np.int32)
        sources[:] = KNOWN
        logit_rows: list[int] = []
        for part, row in zip(parts, starts.tolist(), strict=False):
            stop = row + part.rows
            if part.source == KNOWN:
                tokens[row:stop] = part.session.tokens[part.start : part.start + part.rows]
            else:
                sources[row] = part.source
            _place(part, page_size, positions[row:stop], slots[row:stop])
            if part.all_logits:
                logit_rows += range(row, stop)
            elif part.draw is not None:
                logit_rows.append(stop - 1)
        changes = (part.session.pages.take_change() for part in parts)
        return Step(
            tokens, sources, positions, slots, starts,
            contexts=np.array([part.start + part.rows for part in parts], dtype=np.int32),
            table_rows=np.array([part.session.pages.row for part in parts], dtype=np.int32),
            logit_rows=np.array(logit_rows, dtype=np.int32),
            draws=tuple(part.draw for part in parts if part.draw is not None),
            changes=tuple(change for change in changes if change is not None),
        )  # fmt: skip


def _place(part: Part, page_size: int, positions: Ints, slots: Ints) -> None:
    """Fill in where a sequence's rows stand, and where their keys and values go."""
    if part.rows == 1:  # most steps have nothing but such parts, and these are quicker by far
        positions[0] = part.start
        page = part.session.pages[part.start // page_size]
        slots[0] = page * page_size + part.start % page_size
        return
    positions[:] = np.arange(part.start, part.start + part.rows)
    first = part.start // page_size
    pages = part.session.pages[first : (part.start + part.rows - 1) // page_size + 1]
    table = np.array(pages, dtype=np.int32)
    slots[:] = table[positions // page_size - first] * page_size + positions % page_size
