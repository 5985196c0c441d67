"""Excel workbooks: one page a sheet, tables with their header, values as they are shown."""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from retrieval.errors import NothingToIndex, Unreadable
from retrieval.parsers.formats import Parsed, page_name
from retrieval.parsers.package import Package, Relation, text_of
from retrieval.parsers.tables import MAX_REPEATED, render_table
from retrieval.parsers.xlsx_formats import BUILTIN, plain, shown

S = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_R_ID = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
MAX_CELLS = 1_000_000
_MAX_MERGED = 1_000
_REFERENCE = re.compile(r"([A-Z]{1,3})(\d{1,7})")

# The filled cells of a sheet: row -> column -> text, both from 1.
_Cells: TypeAlias = dict[int, dict[int, str]]


class _Sheet(NamedTuple):
    name: str
    part: str
    is_hidden: bool


def parse_xlsx(path: Path) -> Parsed:
    package = Package(path, "Excel workbook")
    main = package.main_part("xl/workbook.xml")
    book = package.xml(main)
    if book is None or book.tag != f"{S}workbook":
        raise package.damaged()
    relations = package.relations(main)
    reader = _Reader(package, book, relations)
    pages, labels = [], []
    for sheet in _sheets(book, relations):
        text = reader.text(sheet)
        if text:
            pages.append(f"# {sheet.name}\n\n{text}")
            labels.append(page_name(sheet.name))
            if sheet.is_hidden:
                package.warnings.append(f"The sheet “{sheet.name}” is hidden; it was read too.")
    if not pages:
        raise NothingToIndex("The Excel workbook has no filled cells. There is nothing to index.")
    if reader.uncomputed:
        package.warnings.append(
            f"{reader.uncomputed} formulas have no stored result and were left out. "
            "Open the workbook in a spreadsheet program, save it and add it again."
        )
    return Parsed(
        title="",
        pages=tuple(pages),
        markdown=True,
        warnings=tuple(package.warnings),
        labels=tuple(labels),
    )


def _sheets(book: Any, relations: dict[str, Relation]) -> Iterator[_Sheet]:
    for sheet in book.iter(f"{S}sheet"):
        relation = relations.get(sheet.get(_R_ID, ""))
        if relation is not None and relation.kind == "worksheet":
            hidden = sheet.get("state", "visible") != "visible"
            yield _Sheet(" ".join(sheet.get("name", "").split()), relation.target, hidden)


class _Reader:
    """Reads the sheets of one workbook; `uncomputed` counts formulas without a stored result."""

    def __init__(self, package: Package, book: Any, relations: dict[str, Relation]) -> None:
        self.uncomputed = 0
        self._package = package
        self._count = 0
        properties = book.find(f"{S}workbookPr")
        self._is_1904 = properties is not None and properties.get("date1904") in ("1", "true")
        kinds = {relation.kind: relation.target for relation in relations.values()}
        self._strings = [
            _rich_text(item) for item in _items(package, kinds.get("sharedStrings"), "si")
        ]
        self._formats = _formats(package, kinds.get("styles"))

    def text(self, sheet: _Sheet) -> str:
        root = self._package.optional_xml(sheet.part)
        if root is None:
            self._package.warnings.append(f"The sheet “{sheet.name}” could not be read.")
            return ""
        cells = self._cells(root)
        _repeat_merged(root, cells)
        blocks = [_table(block) for block in _blocks(cells)]
        blocks += self._beside(sheet.part)
        return "\n\n".join(filter(None, blocks))

    def _cells(self, root: Any) -> _Cells:
        cells: _Cells = {}
        number = 0
        for row in root.iter(f"{S}row"):
            number = _whole(row.get("r"), number + 1)
            column = 0
            for cell in row.iterchildren(f"{S}c"):
                place = _REFERENCE.match(cell.get("r", ""))
                column = _column(place.group(1)) if place else column + 1
                text = " ".join(self._value(cell).split())
                if not text:
                    continue
                self._count += 1
                if self._count > MAX_CELLS:
                    raise Unreadable(
                        f"The Excel workbook has more than {MAX_CELLS:,} filled cells. Save the "
                        "sheets that matter as files of their own and add those."
                    )
                cells.setdefault(number, {})[column] = text
        return cells

    def _value(self, cell: Any) -> str:
        kind = cell.get("t", "n")
        if kind == "inlineStr":
            inline = cell.find(f"{S}is")
            return _rich_text(inline) if inline is not None else ""
        stored = cell.find(f"{S}v")
        value = text_of(stored).strip() if stored is not None else ""
        if not value:
            self.uncomputed += kind != "str" and cell.find(f"{S}f") is not None
            return ""
        if kind == "s":
            index = _whole(value, -1)
            return self._strings[index] if 0 <= index < len(self._strings) else ""
        if kind == "b":
            return "TRUE" if value == "1" else "FALSE"
        return value if kind in ("str", "e") else self._number(value, kind, cell.get("s"))

    def _number(self, value: str, kind: str, style: str | None) -> str:
        index = _whole(style, 0)
        code = self._formats[index] if index < len(self._formats) else ""
        try:
            if kind == "d":
                moment = datetime.fromisoformat(value)
                is_day = not (moment.hour or moment.minute or moment.second)
                return moment.strftime("%Y-%m-%d" if is_day else "%Y-%m-%d %H:%M:%S")
            number = float(value)
            return shown(number, code, self._is_1904) if code else plain(number)
        except (ValueError, OverflowError):
            return value

    def _beside(self, part: str) -> list[str]:
        """Comments on cells and the text of shapes that lie on the sheet."""
        found = []
        for relation in self._package.relations(part).values():
            if relation.kind == "comments":
                for comment in _items(self._package, relation.target, "comment"):
                    text = " ".join(_rich_text(comment).split())
                    found.append(f"Comment on {comment.get('ref', '')}: {text}")
            elif relation.kind == "drawing":
                root = self._package.optional_xml(relation.target)
                paragraphs = root.iter(f"{_DRAWING}p") if root is not None else ()
                found += ["".join(map(text_of, p.iter(f"{_DRAWING}t"))) for p in paragraphs]
        return [text.strip() for text in found]


def _items(package: Package, part: str | None, name: str) -> Iterator[Any]:
    root = package.optional_xml(part) if part else None
    if root is not None:
        yield from root.iter(f"{S}{name}")


def _rich_text(item: Any) -> str:
    """The text of all runs; without the reading aids over East Asian characters."""
    return "".join(
        text_of(node)
        for node in item.iter(f"{S}t")
        if node.getparent() is None or node.getparent().tag != f"{S}rPh"
    )


def _formats(package: Package, part: str | None) -> list[str]:
    """The format code of each cell style; "" where a number is shown as it is."""
    root = package.xml(part) if part else None
    if root is None:
        return []
    own = {
        _whole(node.get("numFmtId"), 0): node.get("formatCode") or ""
        for node in root.iter(f"{S}numFmt")
    }
    styles = root.find(f"{S}cellXfs")
    ids = (_whole(style.get("numFmtId"), 0) for style in (styles if styles is not None else ()))
    return [own.get(id, BUILTIN.get(id, "")) for id in ids]


def _repeat_merged(root: Any, cells: _Cells) -> None:
    for merged in root.iter(f"{S}mergeCell"):
        corners = _REFERENCE.findall(merged.get("ref", ""))
        if len(corners) != 2:
            continue
        (left, top), (right, bottom) = ((_column(name), int(row)) for name, row in corners)
        text = cells.get(top, {}).get(left, "")
        if not text or len(text) > MAX_REPEATED:
            continue
        if (right - left + 1) * (bottom - top + 1) <= _MAX_MERGED:
            for row in range(top, bottom + 1):
                for column in range(left, right + 1):
                    cells.setdefault(row, {}).setdefault(column, text)


def _blocks(cells: _Cells) -> Iterator[list[dict[int, str]]]:
    """Rows that follow each other; an empty row ends a block."""
    block: list[dict[int, str]] = []
    previous = 0
    for number in sorted(cells):
        if block and number > previous + 1:
            yield block
            block = []
        block.append(cells[number])
        previous = number
    if block:
        yield block


def _table(block: list[dict[int, str]]) -> str:
    """A block as a table without empty columns; single cells above its header as lines."""
    start = 0
    while start < len(block) and len(block[start]) == 1:
        start += 1
    lines = [next(iter(row.values())) for row in block[:start]]
    rows = block[start:]
    columns = sorted(set().union(*rows)) if rows else []
    table = render_table([[row.get(column, "") for column in columns] for row in rows])
    return "\n\n".join(filter(None, ("\n".join(lines), table)))


def _column(letters: str) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - ord("A") + 1
    return number


def _whole(text: str | None, otherwise: int) -> int:
    return int(text) if text is not None and text.isdecimal() and len(text) < 9 else otherwise
