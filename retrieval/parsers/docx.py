"""Word documents: paragraphs and tables in the order of the page, headings kept as such."""

import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docx
from docx.opc.constants import RELATIONSHIP_TYPE
from docx.opc.exceptions import PackageNotFoundError
from docx.oxml.ns import qn
from docx.oxml.parser import parse_xml
from lxml.etree import LxmlError  # type: ignore[import-untyped]

from retrieval.errors import NothingToIndex, Unreadable
from retrieval.parsers.formats import Parsed, looks_like
from retrieval.parsers.tables import render_table

MAX_INFLATED_BYTES = 400 * 2**20
_CHUNK_BYTES = 2**20
_OLE = b"\xd0\xcf\x11\xe0"
_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
_HEADING = re.compile(r"(?i)^heading ([1-6])$")
_DAMAGED = (
    "The Word file is damaged and cannot be opened. Open it in a word processor, "
    "save it again as .docx and add that."
)


def parse_docx(path: Path) -> Parsed:
    _check_container(path)
    _check_inflated_size(path)
    try:
        document = docx.Document(str(path))
        blocks = list(_blocks(document.element.body, document))
        blocks += _footnotes(document)
        title = (document.core_properties.title or "").strip()
    except (PackageNotFoundError, zipfile.BadZipFile, zlib.error, LxmlError) as error:
        raise Unreadable(_DAMAGED) from error
    except (KeyError, ValueError, AttributeError, TypeError) as error:
        # python-docx meets a part that is missing or of another kind than the standard says.
        raise Unreadable(_DAMAGED) from error
    text = "\n\n".join(block for block in blocks if block)
    if not text.strip():
        raise NothingToIndex(
            "The Word file has no text in its body. If it holds pictures of text, run them "
            "through text recognition (OCR) and add the result."
        )
    first = re.search(r"^# (.+)$", text, re.MULTILINE)
    return Parsed(title=title or (first.group(1) if first else ""), pages=(text,), markdown=True)


def _check_container(path: Path) -> None:
    data = path.read_bytes()
    if data.startswith(_OLE):
        if _ENCRYPTED in data:
            raise Unreadable(
                "The Word file is protected by a password. Save a copy without one and add it."
            )
        raise Unreadable("The file is in Word's older .doc format. Save it as .docx and add that.")
    if not data.startswith(b"PK"):
        kind = looks_like(data[:16])
        found = f"It is {kind}; give it the extension that fits" if kind else "Get a fresh copy"
        raise Unreadable(f"The file is not a Word document, although its name says so. {found}.")


def _check_inflated_size(path: Path) -> None:
    """Count what the archive really unpacks to: the sizes it declares can lie."""
    total = 0
    try:
        with zipfile.ZipFile(path) as archive:
            if "[Content_Types].xml" not in archive.namelist():
                raise Unreadable("The file is a ZIP archive, not a Word document. Unpack it first.")
            for member in archive.infolist():
                with archive.open(member) as stream:
                    while chunk := stream.read(_CHUNK_BYTES):
                        total += len(chunk)
                        if total > MAX_INFLATED_BYTES:
                            raise Unreadable(
                                "The Word file unpacks to more than "
                                f"{MAX_INFLATED_BYTES // 2**20} MB and was not read. "
                                "Remove its pictures, or export it as PDF, and add that."
                            )
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise Unreadable(_DAMAGED) from error


def _blocks(parent: Any, document: Any) -> Iterator[str]:
    for element in parent:
        if element.tag == qn("w:p"):
            yield _paragraph(element, document)
        elif element.tag == qn("w:tbl"):
            yield render_table(_rows(element))
        elif element.tag == qn("w:sdt"):
            content = element.find(qn("w:sdtContent"))
            if content is not None:
                yield from _blocks(content, document)


def _paragraph(element: Any, document: Any) -> str:
    text = _text(element).strip()
    if not text:
        return ""
    style = element.style and document.styles.element.get_by_id(element.style)
    name = (style.name_val or "") if style is not None else ""
    heading = _HEADING.match(name)
    if heading or name.lower() == "title":
        return "#" * (int(heading.group(1)) if heading else 1) + " " + " ".join(text.split())
    is_list = element.pPr is not None and element.pPr.numPr is not None
    return f"- {text}" if is_list else text


def _text(element: Any) -> str:
    """The visible text below an element: text boxes too, but no deleted text and no copies."""
    parts: list[str] = []
    stack = [element]
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            parts.append(node)
            continue
        tag = node.tag
        if tag == qn("w:t"):
            parts.append(node.text or "")
        elif tag in (qn("w:tab"), qn("w:ptab")) and node.getparent().tag == qn("w:r"):
            parts.append("\t")
        elif tag in (qn("w:br"), qn("w:cr")):
            parts.append("\n")
        elif tag == qn("w:noBreakHyphen"):
            parts.append("-")
        # A text box stands twice, for newer and older readers; the Fallback is the copy.
        elif tag not in (qn("w:del"), qn("w:moveFrom"), _FALLBACK):
            if tag == qn("w:txbxContent"):
                parts.append("\n")
            if node is not element and tag in (qn("w:p"), qn("w:tr")):
                stack.append("\n")
            if tag == qn("w:tc"):
                stack.append(" ")
            stack.extend(reversed(node))
    return "".join(parts)


_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"


def _rows(table: Any) -> list[list[str]]:
    return [
        [_text(cell) for cell in row.iter(qn("w:tc")) if _is_inside(cell, row)]
        for row in table.iterchildren(qn("w:tr"))
    ]


def _is_inside(cell: Any, row: Any) -> bool:
    """Whether a cell is of this row itself and not of a table nested in it."""
    return next(cell.iterancestors(qn("w:tr"))) is row


def _footnotes(document: Any) -> list[str]:
    notes = []
    for relation in document.part.rels.values():
        if relation.is_external or relation.reltype not in (
            RELATIONSHIP_TYPE.FOOTNOTES,
            RELATIONSHIP_TYPE.ENDNOTES,
        ):
            continue
        for note in parse_xml(relation.target_part.blob):
            text = " ".join(_text(note).split()) if isinstance(note.tag, str) else ""
            if text:
                notes.append(f"Note {note.get(qn('w:id'))}: {text}")
    return notes
