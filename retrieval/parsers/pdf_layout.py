"""The reading order of a page from where its characters stand, where the file's own order misleads.

    glyphs ──> words ──> lines ──> regions ──> text
             (gaps)   (baselines)  (gutters)

A gutter is an upright strip that no line of a region crosses. It parts columns of prose, which are
read one after the other; a table's cells stay in their rows, for a row is what is asked for.
Everything is computed upright: text that was turned is turned back first.
"""

import math
import re
import statistics
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

RTL = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_LTR_LETTER = re.compile("[A-Za-z\u00c0-\u024f\u0370-\u058f]")

# In heights of a line, unless said otherwise.
_COPY = 0.12  # the same letter this near is drawn twice to look bold
_SAME_WORD = 0.5
_SAME_SEGMENT = 0.9
_GUTTER = 0.5
_TRACKED = 0.06  # letters this far apart are spaced on purpose
_TRACKED_WORD = 0.15
_TRACKED_AT_MOST = 0.6
# What makes two columns of a region prose rather than cells.
_PROSE_LINES = 3
_PROSE_WORDS = 3.0
_PROSE_FILL = 0.65
_PAUSE = 2.5  # between lines, where columns end


class Glyph(NamedTuple):
    """A character, its place in PDFium's count, its box on the page and where its line goes.

    `angle` is that of the baseline, in degrees against the clock, from 0 to 359.
    """

    character: str
    place: int
    left: float
    bottom: float
    right: float
    top: float
    angle: int = 0

    @property
    def height(self) -> float:
        return self.top - self.bottom


class Rect(NamedTuple):
    """A run of text of one line, on the page."""

    left: float
    bottom: float
    right: float
    top: float


class Arranged(NamedTuple):
    """Text in reading order; `places` has PDFium's count for each character, -1 for what is new."""

    text: str
    places: list[int]


class _Word(NamedTuple):
    glyphs: list[Glyph]
    left: float
    right: float
    bottom: float
    top: float

    @property
    def height(self) -> float:
        return self.top - self.bottom

    @property
    def text(self) -> str:
        return "".join(glyph.character for glyph in self.glyphs)


_Line = list[_Word]


def arrange(glyphs: Iterable[Glyph]) -> Arranged:
    """Glyphs in the file's order (spaces included, for they part words) as text to be read."""
    turned: dict[int, list[Glyph]] = defaultdict(list)
    angle = 0
    for glyph in glyphs:
        if not glyph.character.isspace():  # a space goes with what it follows
            angle = glyph.angle
        turned[angle].append(_upright(glyph))
    lines: list[_Line] = []
    for angle in sorted(turned, key=lambda angle: -len(turned[angle])):
        words = list(_words(turned[angle]))
        rightward = sum(1 if RTL.search(w.text) else -1 for w in words if w.text.strip()) <= 0
        lines += _ordered([_respaced(line) for line in _lines(words)], rightward)
    text: list[str] = []
    places: list[int] = []
    for line in lines:
        for word in _in_logical_order(line):
            text += [glyph.character for glyph in word.glyphs] + [" "]
            places += [glyph.place for glyph in word.glyphs] + [-1]
        text[-1:] = ["\n"]
    return Arranged("".join(text[:-1]), places[:-1])


def _upright(glyph: Glyph) -> Glyph:
    if glyph.angle == 0:
        return glyph
    turn = math.radians(-glyph.angle)
    cos, sin = math.cos(turn), math.sin(turn)
    x, y = (glyph.left + glyph.right) / 2, (glyph.bottom + glyph.top) / 2
    width, height = glyph.right - glyph.left, glyph.top - glyph.bottom
    if glyph.angle % 180 == 90:
        width, height = height, width
    elif glyph.angle % 90:
        width = height = min(width, height)
    x, y = x * cos - y * sin, x * sin + y * cos
    return glyph._replace(
        left=x - width / 2, right=x + width / 2, bottom=y - height / 2, top=y + height / 2, angle=0
    )


def _words(glyphs: list[Glyph]) -> Iterable[_Word]:
    seen: dict[tuple[str, int, int], list[Glyph]] = defaultdict(list)
    run: list[Glyph] = []
    for glyph in glyphs:
        if glyph.character.isspace():
            if run:
                yield _word(run)
            run = []
        elif not _is_copy(glyph, seen):
            if run and not _goes_on(run[-1], glyph):
                yield _word(run)
                run = []
            run.append(glyph)
    if run:
        yield _word(run)


def _word(glyphs: list[Glyph]) -> _Word:
    return _Word(
        glyphs,
        min(glyph.left for glyph in glyphs),
        max(glyph.right for glyph in glyphs),
        min(glyph.bottom for glyph in glyphs),
        max(glyph.top for glyph in glyphs),
    )


def _is_copy(glyph: Glyph, seen: dict[tuple[str, int, int], list[Glyph]]) -> bool:
    """Whether the same letter stands there already; if not, it is remembered."""
    near = max(_COPY * glyph.height, 0.1)
    column, row = int(glyph.left // near), int(glyph.bottom // near)
    for x in (column - 1, column, column + 1):
        for y in (row - 1, row, row + 1):
            for other in seen.get((glyph.character, x, y), ()):
                # What one ligature stands for has one box: "ff" is two letters, not a copy.
                if (
                    other.place != glyph.place - 1
                    and abs(other.left - glyph.left) < near
                    and abs(other.bottom - glyph.bottom) < near
                    and abs(other.height - glyph.height) < 2 * near
                ):
                    return True
    seen[glyph.character, column, row].append(glyph)
    return False


def _goes_on(before: Glyph, glyph: Glyph) -> bool:
    """Whether a glyph stands beside the one before it, on either side."""
    size = max(before.height, glyph.height)
    overlap = min(before.top, glyph.top) - max(before.bottom, glyph.bottom)
    gap = max(glyph.left - before.right, before.left - glyph.right)
    return overlap > 0.3 * min(before.height, glyph.height) and -size < gap < _SAME_WORD * size


def _lines(words: Iterable[_Word]) -> list[_Line]:
    """Words that stand side by side, from the top; each line from left to right."""
    lines: list[_Line] = []
    bottom = top = 0.0
    for word in sorted(words, key=lambda word: -(word.bottom + word.top)):
        overlap = min(top, word.top) - max(bottom, word.bottom)
        if lines and overlap > 0.5 * min(top - bottom, word.height):
            lines[-1].append(word)
            # A tall sign in a line must not draw the next line into it.
            bottom = max(bottom, min(bottom, word.bottom), word.top - 1.5 * (top - bottom))
        else:
            lines.append([word])
            bottom, top = word.bottom, word.top
    return [sorted(line, key=lambda word: word.left) for line in lines]


def _respaced(line: _Line) -> _Line:
    """A line whose letters were drawn apart, with spaces where the words end."""
    text = "".join(word.text for word in line)
    short = sum(len(word.glyphs) <= 2 for word in line)
    if len(line) < 3 or short < 0.6 * len(line) or sum(c.isalpha() for c in text) < 0.8 * len(text):
        return line
    glyphs = sorted((glyph for word in line for glyph in word.glyphs), key=lambda g: g.left)
    gaps = [b.left - a.right for a, b in pairwise(glyphs)]
    size = statistics.median(glyph.height for glyph in glyphs)
    usual = statistics.median(gaps)
    if not _TRACKED * size < usual < _TRACKED_AT_MOST * size:
        return line
    words, run = [], [glyphs[0]]
    for gap, glyph in zip(gaps, glyphs[1:], strict=True):
        if gap > usual + _TRACKED_WORD * size:
            words.append(_word(run))
            run = []
        run.append(glyph)
    return [*words, _word(run)]


class _Gutter(NamedTuple):
    left: float
    right: float
    lines: int


def _ordered(lines: list[_Line], rightward: bool) -> list[_Line]:
    """Lines with columns one after the other."""
    done: list[_Line] = []
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
            done += _ordered(side, rightward)
        at += gutter.lines
    return done


def _gutter(lines: list[_Line], at: int) -> _Gutter | None:
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


def _gaps(line: _Line) -> list[tuple[float, float]]:
    height = max(word.height for word in line)
    return [
        (a.right, b.left) for a, b in pairwise(line) if b.left - a.right > _SAME_SEGMENT * height
    ]


def _narrowed(line: _Line, left: float, right: float) -> tuple[float, float] | None:
    """What a line leaves of a strip: the widest part between its words; None if too little."""
    edges = [left, *(min(max(w.right, left), right) for w in line)]
    starts = [*(min(max(w.left, left), right) for w in line), right]
    a, b = max(zip(edges, starts, strict=True), key=lambda strip: strip[1] - strip[0])
    height = min(word.height for word in line)
    return (a, b) if b - a > _GUTTER * height else None


def _parts_prose(lines: list[_Line], gutter: _Gutter) -> bool:
    both = 0
    sides: tuple[list[_Line], list[_Line]] = ([], [])
    for line in lines:
        parts = (
            [word for word in line if word.right <= gutter.left],
            [word for word in line if word.left >= gutter.right],
        )
        both += all(parts)
        for side, part in zip(sides, parts, strict=True):
            side += [part] if part else []
    return both >= _PROSE_LINES and all(map(_is_prose, sides))


def _is_prose(lines: list[_Line]) -> bool:
    """Whether what stands between gaps has words enough and mostly goes from edge to edge."""
    left = min(line[0].left for line in lines)
    width = max(line[-1].right for line in lines) - left
    words = sum(len(line) for line in lines)
    if any(map(_is_unspaced, lines)):  # Chinese: no spaces, so no words to count
        words = sum(len(word.glyphs) for line in lines for word in line) // 2
    cells = sum(1 + len(_gaps(line)) for line in lines)
    fill = statistics.mean((line[-1].right - left) / width for line in lines) if width else 0.0
    return words >= _PROSE_WORDS * cells and fill >= _PROSE_FILL


def _is_unspaced(line: _Line) -> bool:
    return any(
        len(word.glyphs) > 8 and "\u3040" <= word.glyphs[0].character < "\uac00" for word in line
    )


def _in_logical_order(line: _Line) -> Iterable[_Word]:
    """The words of a line as they are read, where Arabic or Hebrew runs from the right."""
    rtl = sum(bool(RTL.search(word.text)) for word in line)
    if not rtl:
        return line
    line = [_logical(word) for word in line]
    leading = rtl * 2 >= sum(bool(RTL.search(w.text) or _LTR_LETTER.search(w.text)) for w in line)
    runs: list[list[_Word]] = []
    against = False
    for word in reversed(line) if leading else line:
        # A run that goes the other way than the line is turned round as a whole.
        other = bool((_LTR_LETTER if leading else RTL).search(word.text))
        if other and against:
            runs[-1].insert(0, word)
        else:
            runs.append([word])
        against = other
    return [word for run in runs for word in run]


def _logical(word: _Word) -> _Word:
    """A word of Arabic or Hebrew whose letters were drawn from left to right, turned round."""
    letters = [glyph for glyph in word.glyphs if RTL.match(glyph.character)]
    rising = sum(a.left < b.left for a, b in pairwise(letters))
    falling = sum(a.left > b.left for a, b in pairwise(letters))
    if rising <= falling:
        return word
    clusters: list[list[Glyph]] = []
    for glyph in word.glyphs:
        if clusters and unicodedata.combining(glyph.character):
            clusters[-1].append(glyph)
        else:
            clusters.append([glyph])
    return word._replace(glyphs=[glyph for cluster in reversed(clusters) for glyph in cluster])


def misleads(rects: Sequence[Rect]) -> bool:
    """Whether a file's runs of text, in its own order, do not simply lead down the page.

    They go up more often than down, or side by side as columns and cells are, or lie on each other.
    """
    ups = downs = beside = 0
    for before, rect in pairwise(rects):
        height = min(before.top - before.bottom, rect.top - rect.bottom)
        if rect.bottom > before.top - 0.3 * height:
            ups += 1
        elif rect.top < before.bottom + 0.3 * height:
            downs += 1
        elif rect.left - before.right > _SAME_SEGMENT * height:
            beside += 1
    places = Counter(tuple(round(edge / 2) for edge in rect) for rect in rects)
    return ups > downs or beside >= _PROSE_LINES or any(n > 1 for n in places.values())
