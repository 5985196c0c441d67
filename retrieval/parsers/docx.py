"""Word documents: everything that is text, in the order in which it is read.

Headers come first and footers last, each once; notes, comments and text boxes follow the
paragraph that they hang on. What was deleted with changes tracked does not count, what was
inserted does.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from retrieval.errors import NothingToIndex
from retrieval.parsers.docx_body import Block, Body, R, joined
from retrieval.parsers.docx_numbering import Numbering
from retrieval.parsers.docx_styles import Styles, W
from retrieval.parsers.formats import Parsed
from retrieval.parsers.package import Package, Relation

_TITLE = "{http://purl.org/dc/elements/1.1/}title"
_NOTES = {"footnotes": "footnote", "endnotes": "endnote", "comments": "comment"}
# Page numbers alone say nothing of a document.
_NO_WORDS = re.compile(r"[\W\d_]*|\w{1,12}\W*\d+(\W*\w{1,3}\W*\d+)?\W*")
_MAX_NUMBER = 40


def parse_docx(path: Path) -> Parsed:
    package = Package(path, "Word document")
    main = package.main_part("word/document.xml")
    root = package.xml(main)
    if root is None or root.tag != f"{W}document":
        raise package.damaged()
    relations = package.relations(main)
    styles = Styles(_part(package, relations, "styles"))
    numbering = Numbering(_part(package, relations, "numbering"))
    body = Body(package, relations, styles, numbering, _notes(package, relations))
    blocks = list(_edges(package, body, root, relations, "header"))
    for part in root.iterchildren(f"{W}body"):
        blocks += body.blocks(part)
    blocks += _edges(package, body, root, relations, "footer")
    text = joined(blocks)
    if not text.strip():
        raise NothingToIndex(
            "The Word file has no text in its body. If it holds pictures of text, run them "
            "through text recognition (OCR) and add the result."
        )
    return Parsed(
        title=_title(package) or body.title,
        pages=(text,),
        markdown=True,
        warnings=(*package.warnings, *body.warnings()),
    )


def _part(package: Package, relations: dict[str, Relation], kind: str) -> Any | None:
    targets = [relation.target for relation in relations.values() if relation.kind == kind]
    return package.optional_xml(targets[0]) if targets else None


def _notes(package: Package, relations: dict[str, Relation]) -> dict[tuple[str, str], Any]:
    """Footnotes, endnotes and comments by kind and id; without the separators among them."""
    notes = {}
    for part, kind in _NOTES.items():
        root = _part(package, relations, part)
        for note in root.iterchildren(f"{W}{kind}") if root is not None else ():
            if note.get(f"{W}type", "normal") == "normal":
                notes[kind, note.get(f"{W}id", "")] = note
    return notes


def _edges(
    package: Package, body: Body, root: Any, relations: dict[str, Relation], edge: str
) -> Iterator[Block]:
    """The headers or footers of all sections, those that say the same once."""
    seen = set()
    for reference in root.iter(f"{W}{edge}Reference"):
        relation = relations.get(reference.get(f"{R}id", ""))
        part = package.optional_xml(relation.target) if relation else None
        for block in body.blocks(part) if part is not None else ():
            is_number = len(block.text) < _MAX_NUMBER and _NO_WORDS.fullmatch(block.text)
            if block.text not in seen and not is_number:
                seen.add(block.text)
                yield Block(block.text.lstrip("# "), block.is_item)


def _title(package: Package) -> str:
    kinds = {relation.kind: relation.target for relation in package.relations("").values()}
    properties = package.optional_xml(kinds.get("core-properties", "docProps/core.xml"))
    title = properties.findtext(f".//{_TITLE}") if properties is not None else None
    return " ".join((title or "").split())
