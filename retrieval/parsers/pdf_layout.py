"""The reading order of a page from where its characters stand, where the file's own order misleads.

    glyphs ──> words ──> lines ──> regions ──> text
             (gaps)   (baselines)  (gutters)

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

from retrieval.parsers.pdf_columns import PROSE_LINES, SAME_SEGMENT, in_columns
from retrieval.parsers.pdf_words import Glyph, Line, Rect, Word

RTL = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_LTR_LETTER = re.compile("[A-Za-z\u00c0-\u024f\u0370-\u058f]")

# In heights of a line.
_COPY = 0.12  # the same letter this near is drawn twice to look bold
_SAME_WORD = 0.5
_TRACKED = 0.06  # letters this far apart are spaced on purpose
_TRACKED_WORD = 0.15
_TRACKED_AT_MOST = 0.6


class Arranged(NamedTuple):
    """Text in reading order; `places` has PDFium's count for each character, -1 for what is new."""

    text: str
    places: list[int]


def arrange(glyphs: Iterable[Glyph]) -> Arranged:
    """Glyphs in the file's order (spaces included, for they part words) as text to be read."""
    turned: dict[int, list[Glyph]] = defaultdict(list)
    angle = 0
    for glyph in glyphs:
        if not glyph.character.isspace():  # a space goes with what it follows
            angle = glyph.angle
        turned[angle].append(_upright(glyph))
    lines: list[Line] = []
    for angle in sorted(turned, key=lambda angle: -len(turned[angle])):
        words = list(_words(turned[angle]))
        rightward = sum(1 if RTL.search(w.text) else -1 for w in words if w.text.strip()) <= 0
        lines += in_columns([_respaced(line) for line in _lines(words)], rightward)
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


def _words(glyphs: list[Glyph]) -> Iterable[Word]:
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


def _word(glyphs: list[Glyph]) -> Word:
    return Word(
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


def _lines(words: Iterable[Word]) -> list[Line]:
    """Words that stand side by side, from the top; each line from left to right."""
    lines: list[Line] = []
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


def _respaced(line: Line) -> Line:
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


def _in_logical_order(line: Line) -> Iterable[Word]:
    """The words of a line as they are read, where Arabic or Hebrew runs from the right."""
    rtl = sum(bool(RTL.search(word.text)) for word in line)
    if not rtl:
        return line
    line = [_logical(word) for word in line]
    leading = rtl * 2 >= sum(bool(RTL.search(w.text) or _LTR_LETTER.search(w.text)) for w in line)
    runs: list[list[Word]] = []
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


def _logical(word: Word) -> Word:
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
        elif rect.left - before.right > SAME_SEGMENT * height:
            beside += 1
    places = Counter(tuple(round(edge / 2) for edge in rect) for rect in rects)
    return ups > downs or beside >= PROSE_LINES or any(n > 1 for n in places.values())
