"""CSV files as one table: the encoding and the delimiter are found, the first row is the header."""

import csv
import io
from collections import Counter
from pathlib import Path

from retrieval.errors import NothingToIndex
from retrieval.parsers.encoding import decode
from retrieval.parsers.formats import Parsed, check_length
from retrieval.parsers.tables import render_table

_DELIMITERS = (",", ";", "\t", "|", ":", "^")
_SAMPLE_CHARACTERS = 100_000
_SAMPLE_ROWS = 200
# A first line "sep=;" tells Excel the delimiter and is no row.
_SEPARATOR_LINE = "sep="
# A quote that is never closed swallows the rest of the file: then quotes mean nothing in it.
_MAX_FIELD = 100_000
_MAX_LINES = 100


def parse_csv(path: Path) -> Parsed:
    decoded = decode(path.read_bytes())
    text = decoded.text.strip("\n")
    check_length(len(text))
    if not text.strip():
        raise NothingToIndex("The file holds only white space. There is nothing to index.")
    first = text[: text.find("\n")] if "\n" in text else text
    if first.lower().startswith(_SEPARATOR_LINE) and len(first) == len(_SEPARATOR_LINE) + 1:
        delimiter, text = first[-1], text[len(first) + 1 :]
    else:
        delimiter = _delimiter(text) or ""
    if not delimiter:
        # One column: lines of text.
        return Parsed(title="", pages=(text,), markdown=False, warnings=decoded.notes)
    table = render_table(_rows(text, delimiter))
    return Parsed(title="", pages=(table,), markdown=True, warnings=decoded.notes)


def _rows(text: str, delimiter: str, quoting: bool = True) -> list[list[str]]:
    csv.field_size_limit(_MAX_FIELD)
    source = io.StringIO(text, newline="")
    reader = csv.reader(
        source, delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if quoting else csv.QUOTE_NONE
    )
    try:
        rows = list(reader)
    except csv.Error:
        rows = []
    if not rows or any(field.count("\n") > _MAX_LINES for field in rows[-1]):
        if quoting:
            return _rows(text, delimiter, quoting=False)
        return [line.split(delimiter) for line in text.split("\n")]
    return rows


def _delimiter(text: str) -> str | None:
    """The sign that cuts most rows into the same number of cells, more than one."""
    sample = text[:_SAMPLE_CHARACTERS]
    if len(text) > len(sample) and "\n" in sample:
        sample = sample[: sample.rfind("\n")]
    best, best_score = None, 0.0
    for delimiter in _DELIMITERS:
        rows = [row for row in _rows(sample, delimiter)[:_SAMPLE_ROWS] if row]
        if not rows:
            continue
        width, count = Counter(map(len, rows)).most_common(1)[0]
        # Nearly all rows alike, and among those that do it, the one that cuts into more.
        score = count / len(rows) + min(width, 20) / 100
        if width > 1 and count * 2 > len(rows) and score > best_score:
            best, best_score = delimiter, score
    return best
