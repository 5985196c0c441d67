"""Columns of prose, read one after the other; and what only looks like them.

A gutter is an upright strip that no line of a region crosses. It parts columns of prose; a table's
cells stay in their rows, for a row is what is asked for.
"""

import statistics
from itertools import pairwise
from typing import NamedTuple

from retrieval.parsers.pdf_words import Line

# In heights of a line.
SAME_SEGMENT = 0.9  # words further apart are of different columns or cells
_GUTTER = 0.5
_PAUSE = 2.5  # between lines, where columns end
# What makes two columns of a region prose rather than cells.
PROSE_LINES = 3
_PROSE_WORDS = 3.0
_PROSE_FILL = 0.65


class _Gutter(NamedTuple):
    left: float
    right: float
    lines: int


def in_columns(lines: list[Line], rightward: bool) -> list[Line]:
    """Lines with columns one after the other."""
    done: list[Line] = []
    at = 0
    while at < len(lines):
        gutter = _gutter(lines, at)
        if gutter is None:
            done.append(lines[at])
            at += 1
            continue
        region = lines[at : at + gutter.lines]
        left = [part for line in region if (part := [w for w in line if w.right <= gutter.left])]
        right = [part for line in region if (part := [w for w in line if w.left >= gutter.right])]
        for side in (left, right) if rightward else (right, left):
            done += in_columns(side, rightward)
        at += gutter.lines
    return done


def _gutter(lines: list[Line], at: int) -> _Gutter | None:
    """The gutter between columns of prose that begins at a line and goes down furthest."""
    found = []
    for left, right in _gaps(lines[at]):
        count = 1
        for above, line in pairwise(lines[at:]):
            narrowed = _narrowed(line, left, right)
            if narrowed is None or above[0].bottom - line[0].top > _PAUSE * line[0].height:
                break
            left, right = narrowed
            count += 1
        gutter = _Gutter(left, right, count)
        if _parts_prose(lines[at : at + count], gutter):
            found.append(gutter)
    return max(found, key=lambda gutter: (gutter.lines, gutter.right - gutter.left), default=None)


def _gaps(line: Line) -> list[tuple[float, float]]:
    height = max(word.height for word in line)
    return [
        (a.right, b.left) for a, b in pairwise(line) if b.left - a.right > SAME_SEGMENT * height
    ]


def _narrowed(line: Line, left: float, right: float) -> tuple[float, float] | None:
    """What a line leaves of a strip: the widest part between its words; None if too little."""
    edges = [left, *(min(max(w.right, left), right) for w in line)]
    starts = [*(min(max(w.left, left), right) for w in line), right]
    a, b = max(zip(edges, starts, strict=True), key=lambda strip: strip[1] - strip[0])
    height = min(word.height for word in line)
    return (a, b) if b - a > _GUTTER * height else None


def _parts_prose(lines: list[Line], gutter: _Gutter) -> bool:
    both = 0
    sides: tuple[list[Line], list[Line]] = ([], [])
    for line in lines:
        parts = (
            [word for word in line if word.right <= gutter.left],
            [word for word in line if word.left >= gutter.right],
        )
        both += all(parts)
        for side, part in zip(sides, parts, strict=True):
            side += [part] if part else []
    return both >= PROSE_LINES and all(map(_is_prose, sides))


def _is_prose(lines: list[Line]) -> bool:
    """Whether what stands between gaps has words enough and mostly goes from edge to edge."""
    left = min(line[0].left for line in lines)
    width = max(line[-1].right for line in lines) - left
    words = sum(len(line) for line in lines)
    if any(map(_is_unspaced, lines)):  # Chinese: no spaces, so no words to count
        words = sum(len(word.glyphs) for line in lines for word in line) // 2
    cells = sum(1 + len(_gaps(line)) for line in lines)
    fill = statistics.mean((line[-1].right - left) / width for line in lines) if width else 0.0
    return words >= _PROSE_WORDS * cells and fill >= _PROSE_FILL


def _is_unspaced(line: Line) -> bool:
    return any(
        len(word.glyphs) > 8 and "\u3040" <= word.glyphs[0].character < "\uac00" for word in line
    )
