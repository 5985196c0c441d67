"""HTML as readable text: headings, lists and tables as in Markdown, no scripts or styles."""

import re
from pathlib import Path
from typing import NamedTuple

from selectolax.lexbor import LexborHTMLParser, LexborNode

from retrieval.errors import NothingToIndex, Unreadable
from retrieval.parsers.encoding import decode
from retrieval.parsers.formats import Parsed
from retrieval.parsers.tables import Grid, render_table

_DECLARED = re.compile(
    rb"(?i)<meta[^>]{0,200}?charset\s*=\s*(?:[\"']\s*)?([\w.:-]+)"
    rb"|^(?:\xef\xbb\xbf)?\s*<\?xml[^>]{0,200}?encoding\s*=\s*[\"']([\w.:-]+)"
)
_DECLARED_WITHIN = 4096
_XHTML = re.compile(r"\A\s*<\?xml|\A.{0,1000}?<html[^>]{0,500}?xmlns", re.DOTALL)
# Closed in itself, such an element holds nothing in XHTML and the rest of the page in HTML.
_SELF_CLOSED = re.compile(
    r"(?i)<(script|style|title|textarea|iframe|noscript|template)\b([^<>]*)/>"
)
_SKIPPED = frozenset(
    """script style template noscript head svg iframe object canvas select button audio video
    annotation annotation-xml rp rt datalist
    """.split()  # noqa: SIM905
)
_BLOCKS = frozenset(
    """address article aside blockquote body caption center dd details dialog dir div dl dt fieldset
    figcaption figure footer form h1 h2 h3 h4 h5 h6 header hr legend li main menu nav ol p section
    summary table tbody textarea tfoot thead tr ul
    """.split()  # noqa: SIM905
)
# Elements that stay open until they are closed, each of which looks through all that are open.
_NESTING = re.compile(
    r"(?i)<(/?)(?:address|article|aside|blockquote|center|details|dialog|dir|div|dl|fieldset"
    r"|figcaption|figure|footer|header|hgroup|main|menu|nav|ol|section|summary|ul)\b"
)
MAX_DEPTH = 20_000
_PREFORMATTED = frozenset(("pre", "xmp", "listing", "plaintext"))
_SPACE = re.compile(r"[ \t\n\r\f\u00a0]+")
_INVISIBLE = re.compile("[\u00ad\u200b\u2060\ufeff]")
_NOT_SHOWN = re.compile(r"(?i)display\s*:\s*none")
# A cell with more text than this is a part of a page's layout, not a value.
_MAX_CELL = 2_000


class HtmlText(NamedTuple):
    """The text of a page as Markdown, its title ("" if none), and what decoding it showed."""

    text: str
    title: str
    notes: tuple[str, ...]


def parse_html(path: Path) -> Parsed:
    page = html_text(path.read_bytes())
    if not page.text:
        raise NothingToIndex(
            "The HTML page has no text of its own (it may be filled by a script). "
            "Save the page from a browser as text or PDF and add that."
        )
    return Parsed(title=page.title, pages=(page.text,), markdown=True, warnings=page.notes)


def html_text(data: bytes) -> HtmlText:
    """The visible text of a page in whatever encoding. Raises Unreadable for what is no text."""
    declared = _DECLARED.search(data[:_DECLARED_WITHIN])
    name = (declared.group(1) or declared.group(2)).decode("ascii") if declared else None
    decoded = decode(data, name)
    source = decoded.text
    if _XHTML.match(source[:2_000]):
        source = _SELF_CLOSED.sub(r"<\1\2></\1>", source)
    _check_depth(source)
    tree = LexborHTMLParser(source)
    writer = _Writer()
    if tree.body is not None:
        _walk(tree.body, writer)
    heading = tree.css_first("title") or tree.css_first("h1")
    title = _plain(heading.text()) if heading is not None else ""
    return HtmlText(writer.text(), title, decoded.notes)


def _check_depth(source: str) -> None:
    """Refuse what nests deeper than any page: the parser's time grows with the square of it."""
    if source.count("<") < MAX_DEPTH:
        return
    depth = 0
    for tag in _NESTING.finditer(source):
        depth = max(0, depth - 1) if tag.group(1) else depth + 1
        if depth > MAX_DEPTH:
            raise Unreadable(
                f"The HTML page nests its parts more than {MAX_DEPTH:,} deep and was not read; it "
                "is probably damaged. Save the page from a browser again and add that."
            )


def _plain(text: str) -> str:
    return _SPACE.sub(" ", _INVISIBLE.sub("", text)).strip()


class _Writer:
    """Collects blocks of text, with one empty line between them (none inside a list)."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._line: list[str] = []
        self._prefix = ""
        self._tight = False
        self._items: dict[int, int] = {}

    def inline(self, text: str) -> None:
        self._line.append(text)

    def start(self, prefix: str = "", tight: bool = False) -> None:
        """Begin a block; its first line carries `prefix`."""
        self.end()
        self._prefix, self._tight = prefix, tight

    def start_item(self, node: LexborNode) -> None:
        """Begin an item of a list, with its number if the list has an order."""
        above = node.parent
        if above is None or above.tag != "ol":
            self.start("- ", tight=True)
            return
        first = above.attributes.get("start") or "1"
        known = self._items.get(above.mem_id, _number(first, 1) - 1)
        self._items[above.mem_id] = known + 1
        self.start(f"{known + 1}. ", tight=True)

    def end(self) -> None:
        lines = "".join(self._line).split("\v")
        text = "\n".join(map(_plain, lines)).strip()
        self._line.clear()
        if text:
            if self._prefix.startswith("#"):
                text = " ".join(text.split())
            self.block(self._prefix + text, self._tight)
            self._prefix, self._tight = "", False

    def block(self, text: str, tight: bool = False) -> None:
        if text:
            self._parts.append(("\n" if tight else "\n\n") + text)

    def text(self) -> str:
        self.end()
        return "".join(self._parts).strip("\n")


def _walk(root: LexborNode, writer: _Writer) -> None:
    """Depth first with a stack of our own: pages nest deeper than Python recurses."""
    stack: list[tuple[LexborNode, bool]] = [(root, False)]
    while stack:
        node, leaving = stack.pop()
        tag = node.tag or ""
        if leaving:
            writer.end()
        elif node.is_text_node:
            writer.inline(node.text_content or "")
        elif tag in _SKIPPED or not node.is_element_node or _is_hidden(node) or _is_sign(node):
            continue
        elif tag == "br":
            writer.inline("\v")
        elif tag == "img":
            writer.inline(node.attributes.get("alt") or "")
        elif tag in _PREFORMATTED:
            writer.start()
            writer.block(_code(node))
        elif tag == "table" and (table := _values(node)) is not None:
            writer.start()
            writer.block(table)
        else:
            if tag == "li":
                writer.start_item(node)
            elif tag in _BLOCKS:
                heading = len(tag) == 2 and tag[0] == "h" and tag[1].isdigit()
                writer.start("#" * int(tag[1]) + " " if heading else "", tight=tag in ("tr", "dd"))
            elif tag in ("td", "th"):
                writer.inline(" ")
            if tag in _BLOCKS:
                stack.append((node, True))
            children = list(node.iter(include_text=True))
            stack.extend((child, False) for child in reversed(children))


def _is_hidden(node: LexborNode) -> bool:
    attributes = node.attributes
    return "hidden" in attributes or bool(_NOT_SHOWN.search(attributes.get("style") or ""))


def _is_sign(node: LexborNode) -> bool:
    """Whether it is a link that is only a sign to click on, as the "¶" behind a heading."""
    if node.tag != "a" or not (node.attributes.get("href") or "").startswith("#"):
        return False
    text = node.text().strip()
    return bool(text) and not any(map(str.isalnum, text))


def _code(node: LexborNode) -> str:
    """Preformatted text as a fenced block: its lines are kept, and it is known not to be prose."""
    parts: list[str] = []
    stack = [node]
    while stack:
        here = stack.pop()
        if here.is_text_node:
            parts.append(here.text_content or "")
        elif here.tag == "br":
            parts.append("\n")
        elif here.tag not in _SKIPPED:
            stack.extend(reversed(list(here.iter(include_text=True))))
    text = "".join(parts).strip("\n")
    if not text.strip():
        return ""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}\n{text}\n{fence}"


def _values(table: LexborNode) -> str | None:
    """A table of values as text; None for one that lays out a page."""
    if table.attributes.get("role") == "presentation":
        return None
    if any(child.css_first("table, h1, h2, h3, h4, pre") is not None for child in table.iter()):
        return None
    grid = Grid()
    for row in table.css("tr"):
        if _is_hidden(row):
            continue
        grid.start_row()
        for cell in row.iter():
            if cell.tag in ("td", "th") and not _is_hidden(cell):
                text = _cell(cell)
                if len(text) > _MAX_CELL:
                    return None
                attributes = cell.attributes
                grid.add(
                    text,
                    columns=_number(attributes.get("colspan"), 1),
                    rows=_number(attributes.get("rowspan"), 1),
                )
        grid.end_row()
    if max(map(len, grid.rows), default=0) < 2:
        return None
    caption = table.css_first("caption")
    parts = (_cell(caption) if caption is not None else "", render_table(grid.rows))
    return "\n\n".join(filter(None, parts))


def _cell(cell: LexborNode) -> str:
    writer = _Writer()
    for child in cell.iter(include_text=True):
        _walk(child, writer)
        if child.is_element_node and child.tag in _BLOCKS:
            writer.end()
    return " ".join(writer.text().split())


def _number(text: str | None, otherwise: int) -> int:
    """A small count in an attribute, or what stands where it is none."""
    return int(text) if text and text.isdecimal() and len(text) < 6 else otherwise
