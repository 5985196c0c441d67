"""HTML as readable text: headings, lists and tables as in Markdown, no scripts or styles."""

import re
from pathlib import Path

from selectolax.lexbor import LexborHTMLParser, LexborNode

from retrieval.errors import NothingToIndex
from retrieval.parsers.encoding import decode
from retrieval.parsers.formats import Parsed
from retrieval.parsers.tables import render_table

_META_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w-]+)", re.IGNORECASE)
_SKIPPED = frozenset(
    """script style template noscript head svg math iframe object canvas select button
    """.split()  # noqa: SIM905
)
_BLOCKS = frozenset(
    """address article aside blockquote body caption dd details dialog div dl dt fieldset figcaption
    figure footer form h1 h2 h3 h4 h5 h6 header hr li main nav ol p pre section summary table tr ul
    """.split()  # noqa: SIM905
)
_SPACE = re.compile(r"[ \t\n\r\f]+")


def parse_html(path: Path) -> Parsed:
    data = path.read_bytes()
    declared = _META_CHARSET.search(data[:4096])
    decoded = decode(data, declared.group(1).decode("ascii") if declared else None)
    tree = LexborHTMLParser(decoded.text)
    writer = _Writer()
    if tree.body is not None:
        _walk(tree.body, writer)
    text = writer.text()
    if not text:
        raise NothingToIndex(
            "The HTML page has no text of its own (it may be filled by a script). "
            "Save the page from a browser as text or PDF and add that."
        )
    title = tree.css_first("title")
    name = _SPACE.sub(" ", title.text()).strip() if title is not None else ""
    return Parsed(title=name, pages=(text,), markdown=True, warnings=decoded.notes)


class _Writer:
    """Collects blocks of text, with one empty line between them (none inside a list)."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._line: list[str] = []
        self._prefix = ""
        self._tight = False

    def inline(self, text: str) -> None:
        self._line.append(text)

    def start(self, prefix: str = "", tight: bool = False) -> None:
        """Begin a block; its first line carries `prefix`."""
        self.end()
        self._prefix, self._tight = prefix, tight

    def end(self) -> None:
        lines = "".join(self._line).split("\v")
        text = "\n".join(_SPACE.sub(" ", line).strip() for line in lines).strip()
        self._line.clear()
        if text:
            self.block(self._prefix + text, self._tight)
            self._prefix, self._tight = "", False

    def block(self, text: str, tight: bool = False) -> None:
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
        elif tag in _SKIPPED or not node.is_element_node or _is_hidden(node):
            continue
        elif tag == "br":
            writer.inline("\v")
        elif tag == "img":
            writer.inline(node.attributes.get("alt") or "")
        elif tag == "pre":
            writer.start()
            writer.block(node.text().strip("\n"))
        elif tag == "table" and _is_data(node):
            writer.start()
            caption = node.css_first("caption")
            if caption is not None:
                writer.block(_SPACE.sub(" ", caption.text()).strip())
            writer.block(render_table(_rows(node)))
        else:
            if tag in _BLOCKS:
                heading = len(tag) == 2 and tag[0] == "h" and tag[1].isdigit()
                prefix = "#" * int(tag[1]) + " " if heading else "- " if tag == "li" else ""
                writer.start(prefix, tight=tag in ("li", "tr", "dd"))
                stack.append((node, True))
            elif tag in ("td", "th"):
                writer.inline(" ")
            children = list(node.iter(include_text=True))
            stack.extend((child, False) for child in reversed(children))


def _is_hidden(node: LexborNode) -> bool:
    return "hidden" in node.attributes


def _is_data(table: LexborNode) -> bool:
    """A table of values, not one that lays out a page: no table or heading inside."""
    return table.css_first("table table, h1, h2, h3, h4, pre") is None


def _rows(table: LexborNode) -> list[list[str]]:
    rows = []
    for row in table.css("tr"):
        cells = [c for c in row.iter() if c.tag in ("td", "th")]
        rows.append([_cell(cell) for cell in cells])
    return rows


def _cell(cell: LexborNode) -> str:
    for unwanted in cell.css("script, style, template"):
        unwanted.decompose()
    return cell.text(separator=" ")
