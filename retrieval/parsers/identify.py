"""What a file is: by its content where that says so, by its name otherwise.

Reads the beginning and the end of a file and unpacks nothing, so it is safe outside the child.
"""

import re
from pathlib import Path
from typing import NamedTuple

from retrieval.errors import Unreadable
from retrieval.parsers.formats import (
    AS_DOCX,
    AS_EPUB,
    AS_PDF,
    AS_TEXT,
    AS_XLSX,
    RECOGNISE,
    SUPPORTED,
    UNPACK,
    format_of,
    looks_like,
    unsupported,
)

_HEAD_BYTES = 2**20
_TAIL_BYTES = 2**18


class Kind(NamedTuple):
    """What the content of a file is, in words, and what to do with a file of this kind."""

    name: str
    advice: str


# The name of an entry, in a ZIP archive's directory at its end or before the entry itself.
_ZIP_ENTRY = re.compile(
    rb"PK(?:\x01\x02.{42}|\x03\x04.{26})(word/|xl/workbook\.bin|xl/|ppt/|visio/"
    rb"|META-INF/container\.xml|Index/Document\.iwa)",
    re.DOTALL,
)
_ZIP_FORMATS = {b"word/": "docx", b"xl/": "xlsx", b"META-INF/container.xml": "epub"}
_ZIP_KINDS = {
    b"ppt/": Kind("a PowerPoint presentation (.pptx)", AS_PDF),
    b"xl/workbook.bin": Kind("a binary Excel workbook (.xlsb)", AS_XLSX),
    b"visio/": Kind("a Visio drawing", AS_PDF),
    b"Index/Document.iwa": Kind("an Apple iWork document", AS_PDF),
}
_OPEN_DOCUMENT = re.compile(rb"mimetypeapplication/vnd\.oasis\.opendocument\.([a-z]+)")
_OPEN_KINDS = {
    b"text": Kind("an OpenDocument text (.odt)", AS_DOCX),
    b"spreadsheet": Kind("an OpenDocument spreadsheet (.ods)", AS_XLSX),
    b"presentation": Kind("an OpenDocument presentation (.odp)", AS_PDF),
}
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_LOCKED = "EncryptedPackage"
_OLE_STREAMS = {
    "WordDocument": Kind("a Word document of the older .doc format", AS_DOCX),
    "PowerPoint Document": Kind("a PowerPoint presentation of the older .ppt format", AS_PDF),
    "Workbook": Kind("an Excel workbook of the older .xls format", AS_XLSX),
    "Book": Kind("an Excel workbook of the older .xls format", AS_XLSX),
    "__properties_version1.0": Kind("an Outlook message (.msg)", AS_TEXT),
    "VisioDocument": Kind("a Visio drawing", AS_PDF),
}
_HTML = re.compile(
    rb"(?i)(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]{0,200}>\s*)?(?:<!--.{0,2000}?-->\s*){0,5}"
    rb"<(?:!doctype\s+html|html)\b",
    re.DOTALL,
)
_TEXTUAL = (
    (re.compile(rb"\s*\{\\rtf"), Kind("an RTF document", AS_DOCX)),
    (
        re.compile(rb"(?is)(?:[\w-]+:[^\n]*\n|[ \t][^\n]*\n){0,40}?content-type:\s*multipart/rel"),
        Kind("a web archive (.mhtml)", AS_PDF),
    ),
    (
        re.compile(rb"(?s)\s*<\?xml.{0,400}?<(?:w:wordDocument|pkg:package)\b"),
        Kind("a Word document saved as XML", AS_DOCX),
    ),
    (re.compile(rb"(?s)\s*<\?xml.{0,400}?<FictionBook\b"), Kind("a FictionBook", AS_EPUB)),
)
_MOBI = (b"BOOKMOBI", b"TEXtREAd")
# Names that promise one kind of container: their own parser says best what is wrong with it.
_CONTAINERS = frozenset(("pdf", "docx", "xlsx", "epub"))


def identify(path: Path, name: str) -> str:
    """The format to read a file as. Raises Unreadable, with what it is, if it is none of ours."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
        size = file.seek(0, 2)
        file.seek(max(len(head), size - _TAIL_BYTES))
        tail = file.read()
    named = format_of(name)
    found = _content(head, tail, named)
    if isinstance(found, Kind):
        raise Unreadable(
            f"The file is {found.name}, which is not supported. "
            f"Supported are {SUPPORTED}. {found.advice}"
        )
    format = found or named
    if format is None:
        raise Unreadable(unsupported(name))
    return format


def _content(head: bytes, tail: bytes, named: str | None) -> str | Kind | None:
    """The format that the content shows, or the kind that is not read; None if it is silent."""
    if head.lstrip(b"\xef\xbb\xbf\r\n\t ").startswith(b"%PDF-"):
        return "pdf"
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _zip_content(head, tail, named)
    if head.startswith(_OLE):
        return _ole_content(head + tail, named)
    if head[60:68] in _MOBI:
        return Kind("a Kindle book (.mobi)", AS_EPUB)
    for pattern, kind in _TEXTUAL:
        if pattern.match(head):
            return kind
    if _HTML.match(head):
        # Many Markdown files begin with a tag, and a page saved under a container's name is
        # most often a server's error message.
        return named if named in ("md", *_CONTAINERS) else "html"
    magic = looks_like(head)
    if magic is None or named in _CONTAINERS:
        return None
    advice = RECOGNISE if "image" in magic else UNPACK if "archive" in magic else ""
    return Kind(magic, advice or "Convert it to one of these and add that.")


def _zip_content(head: bytes, tail: bytes, named: str | None) -> str | Kind | None:
    if opened := _OPEN_DOCUMENT.search(head[:200]):
        return _OPEN_KINDS.get(opened.group(1), Kind("an OpenDocument file", AS_PDF))
    if b"mimetypeapplication/epub+zip" in head[:200]:
        return "epub"
    # The last entry of the directory counts: a file packed into this one may come before it.
    names = _ZIP_ENTRY.findall(tail) or _ZIP_ENTRY.findall(head)
    if names:
        return _ZIP_FORMATS.get(names[-1]) or _ZIP_KINDS[names[-1]]
    return None if named in _CONTAINERS else Kind("a ZIP archive", UNPACK)


def _ole_content(data: bytes, named: str | None) -> str | Kind:
    if _utf16(_LOCKED) in data:
        # The parser of the format says how to unlock it.
        return named if named in ("docx", "xlsx") else "docx"
    for stream, kind in _OLE_STREAMS.items():
        if _utf16(stream) in data:
            return kind
    return Kind("a file of an older Office format", AS_DOCX if named == "docx" else AS_PDF)


def _utf16(name: str) -> bytes:
    return name.encode("utf-16-le")
