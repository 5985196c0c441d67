"""The body of a Word document as blocks of text: paragraphs, list items and tables in order."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

from retrieval.errors import Unreadable
from retrieval.parsers.docx_numbering import Numbering
from retrieval.parsers.docx_styles import Styles, W, is_on, value
from retrieval.parsers.encoding import decode
from retrieval.parsers.html import html_text
from retrieval.parsers.package import Package, Relation, text_of
from retrieval.parsers.tables import MAX_REPEATED, Grid, render_table

R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_MATH_TEXT = "{http://schemas.openxmlformats.org/officeDocument/2006/math}t"
_DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_DIAGRAM = "{http://schemas.openxmlformats.org/drawingml/2006/diagram}relIds"
_CHECKBOX = f"{W}checkBox"

# Deleted text, field codes, properties and the reading aids over East Asian characters.
_SKIPPED = frozenset(
    f"{W}{name}"
    for name in (
        "del", "moveFrom", "delText", "instrText", "delInstrText", "pPr", "rPr", "tblPr", "trPr",
        "tcPr", "tblGrid", "sectPr", "sdtPr", "sdtEndPr", "rt", "customXmlPr", "smartTagPr",
    )
)  # fmt: skip
_SIMPLE = {
    f"{W}tab": "\t", f"{W}ptab": "\t", f"{W}br": "\n", f"{W}cr": "\n", f"{W}noBreakHyphen": "-",
}  # fmt: skip
_REFERENCES = {
    f"{W}footnoteReference": "footnote",
    f"{W}endnoteReference": "endnote",
    f"{W}commentReference": "comment",
}
# What people draw with symbol fonts and mean as signs; the letters are at U+F000 and on.
_SYMBOLS = {
    "A8": "☐", "6F": "☐", "71": "☐", "FE": "☑", "FD": "☒", "FC": "✓", "FB": "✗", "52": "☑",
    "A7": "•", "B7": "•", "6C": "•", "E0": "→", "DF": "←",
}  # fmt: skip
_WRAPPERS = frozenset(
    f"{W}{name}" for name in ("sdt", "sdtContent", "ins", "moveTo", "customXml", "smartTag")
)
_MAX_DEPTH = 60
# A cell with more text than this is a part of a page's layout, not a value.
_MAX_CELL = 2_000


class Block(NamedTuple):
    """A paragraph, heading, table or item of a list."""

    text: str
    is_item: bool = False


def joined(blocks: Iterable[Block]) -> str:
    """Blocks with an empty line between them, none between the items of a list."""
    text, after_item = "", False
    parts = []
    for text, is_item in blocks:
        parts.append(("\n" if is_item and after_item else "\n\n") + text)
        after_item = is_item
    return "".join(parts).strip("\n")


# The cells of a row, each with its blocks.
_Row: TypeAlias = list[tuple[Any, list[Block]]]


class Body:
    """Reads the blocks of one document; numbers of lists go on from call to call.

    `title` is its first heading. `notes` are footnotes, endnotes and comments by kind and id.
    """

    def __init__(
        self,
        package: Package,
        relations: dict[str, Relation],
        styles: Styles,
        numbering: Numbering,
        notes: dict[tuple[str, str], Any],
    ) -> None:
        self.title = ""
        self._package = package
        self._relations = relations
        self._styles = styles
        self._numbering = numbering
        self._notes = notes
        self._hanging: list[Block] = []  # notes and boxes of the paragraph that is being read
        self._carried = ""  # text of a paragraph whose end was deleted
        self._depth = 0
        self._left_out = 0

    def warnings(self) -> list[str]:
        if not self._left_out:
            return []
        n = self._left_out
        return [f"{n} part{'s' * (n != 1)} inserted from other files could not be read."]

    def blocks(self, parent: Any) -> list[Block]:
        """The blocks below an element; each followed by what hangs on it."""
        found: list[Block] = []
        for element in _children(parent):
            if element.tag == f"{W}p":
                found += self._paragraph(element)
            elif element.tag == f"{W}tbl":
                found += self._table(element)
            elif element.tag == f"{W}altChunk":
                found += self._inserted(element)
            hanging, self._hanging = self._hanging, []
            found += hanging
        return found

    def _paragraph(self, element: Any) -> list[Block]:
        properties = element.find(f"{W}pPr")
        text = self._carried + self._inline(element)
        self._carried = ""
        mark = properties.find(f"{W}rPr") if properties is not None else None
        if mark is not None and mark.find(f"{W}del") is not None:
            self._carried = text
            return []
        text = text.strip()
        if not text:
            return []
        level = self._styles.heading_level(properties)
        place = self._styles.list_place(properties)
        label = self._numbering.label(place) if place else ""
        if level is not None:
            text = " ".join(text.split())
            if label not in ("", "-"):
                text = f"{label} {text}"
            self.title = self.title or text
            return [Block("#" * level + " " + text)]
        if place is None or not label:
            return [Block(text)]
        return [Block(f"{'  ' * place.level}{label} {text}", is_item=True)]

    def _inline(self, element: Any) -> str:
        """The text in a paragraph; what hangs on it is put aside."""
        parts: list[str] = []
        stack = list(reversed(list(_children(element))))
        while stack:
            node = stack.pop()
            tag = node.tag
            if tag in (f"{W}t", _MATH_TEXT):
                parts.append(text_of(node))
            elif tag in _SIMPLE:
                parts.append(_SIMPLE[tag])
            elif tag == f"{W}sym":
                parts.append(_SYMBOLS.get((node.get(f"{W}char") or "")[-2:].upper(), ""))
            elif tag == _CHECKBOX:
                setting = "default" if node.find(f"{W}checked") is None else "checked"
                parts.append("☑ " if is_on(node, setting) else "☐ ")
            elif tag == f"{W}txbxContent":
                self._hanging += self._nested(node)
            elif tag == _DIAGRAM:
                self._hanging += self._diagram(node)
            elif tag in _REFERENCES:
                self._hang_note(_REFERENCES[tag], node.get(f"{W}id", ""))
            elif not (tag == f"{W}r" and is_on(node.find(f"{W}rPr"), "vanish")):
                stack.extend(reversed(list(_children(node))))
        return "".join(parts)

    def _nested(self, element: Any) -> list[Block]:
        """Blocks inside a paragraph or cell. Deeper than anyone writes, they are left out."""
        if self._depth >= _MAX_DEPTH:
            self._left_out += 1
            return []
        outer, self._hanging = self._hanging, []
        self._depth += 1
        blocks = self.blocks(element)
        self._depth -= 1
        self._hanging = outer
        return blocks

    def _hang_note(self, kind: str, id: str) -> None:
        note = self._notes.pop((kind, id), None)
        if note is None:
            return
        text = " ".join(" ".join(block.text for block in self._nested(note)).split())
        author = note.get(f"{W}author")
        name = f"Comment by {author}" if author else "Comment" if kind == "comment" else "Note"
        if text:
            self._hanging.append(Block(f"{name}: {text}"))

    def _diagram(self, node: Any) -> list[Block]:
        relation = self._relations.get(node.get(f"{R}dm", ""))
        root = self._package.optional_xml(relation.target) if relation else None
        paragraphs = root.iter(f"{_DRAWING}p") if root is not None else ()
        texts = ("".join(map(text_of, p.iter(f"{_DRAWING}t"))).strip() for p in paragraphs)
        return [Block(f"- {text}", is_item=True) for text in texts if text]

    def _inserted(self, element: Any) -> list[Block]:
        """Text that Word would convert when it opens the file: a web page or plain text."""
        relation = self._relations.get(element.get(f"{R}id", ""))
        data = self._package.read(relation.target) if relation else None
        name = relation.target.lower() if relation else ""
        try:
            if data is not None and name.endswith((".htm", ".html", ".xhtml")):
                return [Block(html_text(data).text)]
            if data is not None and name.endswith(".txt"):
                return [Block(decode(data).text.strip())]
        except Unreadable:
            pass
        self._left_out += 1
        return []

    # Tables

    def _table(self, table: Any) -> list[Block]:
        """A table of values as one block; one that lays out a page as the blocks of its cells."""
        rows = [
            [(cell, self._nested(cell)) for cell in _of(row, "tc")]
            for row in _of(table, "tr")
            if not _is_deleted(row, "trPr", "del")
        ]
        if _is_layout(table, rows):
            return [block for row in rows for block in _row(row)]
        grid = Grid()
        above: dict[int, str] = {}
        for row in rows:
            grid.start_row()
            for cell, blocks in row:
                properties = cell.find(f"{W}tcPr")
                if _is_deleted(cell, "tcPr", "cellDel"):
                    continue
                text = " ".join(block.text.strip().lstrip("#").strip() for block in blocks)
                column = len(grid.rows[-1])
                merge = properties.find(f"{W}vMerge") if properties is not None else None
                if merge is not None and merge.get(f"{W}val", "continue") == "continue":
                    text = text or above.get(column, "")
                above[column] = text if len(text) <= MAX_REPEATED else ""
                span = value(properties, "gridSpan") or "1"
                grid.add(text, columns=int(span) if span.isdigit() and len(span) < 4 else 1)
            grid.end_row()
        text = render_table(grid.rows)
        return [Block(text)] if text else []


def _children(parent: Any) -> Iterator[Any]:
    """The elements of an element that count: wrappers opened, one of several alternatives."""
    stack = [iter(parent)]
    while stack:
        child = next(stack[-1], None)
        if child is None:
            stack.pop()
        elif not isinstance(child.tag, str) or child.tag in _SKIPPED:
            continue
        elif child.tag == f"{_MC}AlternateContent":
            stack.append(iter(_alternative(child)))
        elif child.tag in _WRAPPERS:
            stack.append(iter(child))
        else:
            yield child


def _alternative(element: Any) -> Any:
    """The same content stands once for newer and once for older readers: the first with text."""
    branches = [branch for branch in element if isinstance(branch.tag, str)]
    worded = (branch for branch in branches if branch.find(f".//{W}t") is not None)
    return next(worded, branches[0] if branches else ())


def _of(parent: Any, name: str) -> list[Any]:
    return [child for child in _children(parent) if child.tag == f"{W}{name}"]


def _is_deleted(element: Any, holder: str, mark: str) -> bool:
    properties = element.find(f"{W}{holder}")
    return properties is not None and properties.find(f"{W}{mark}") is not None


def _is_layout(table: Any, rows: list[_Row]) -> bool:
    if table.find(f".//{W}tbl") is not None or all(len(row) < 2 for row in rows):
        return True
    return any(
        sum(len(block.text) for block in blocks) > _MAX_CELL
        or (len(blocks) > 1 and any(block.text.startswith("#") for block in blocks))
        for row in rows
        for _, blocks in row
    )


def _row(row: _Row) -> list[Block]:
    """A row of a layout: one line if its cells are short, else the blocks of each."""
    blocks = [block for _, cell in row for block in cell]
    if len(row) > 1 and all(len(cell) < 2 for _, cell in row):
        texts = [block.text.lstrip("# ") for block in blocks]
        if not any("\n" in text or len(text) > MAX_REPEATED for text in texts):
            return [Block(" | ".join(texts))] if texts else []
    return blocks
