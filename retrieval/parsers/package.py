"""The container of Word, Excel and EPUB files: a ZIP archive of XML parts that point to others.

Only parts that are asked for are unpacked, each counted as it comes: the sizes that an archive
declares can lie. No entity is expanded and nothing outside the file is ever opened.
"""

import posixpath
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote
from xml.parsers import expat

from lxml import etree  # type: ignore[import-untyped]

from retrieval.errors import Unreadable
from retrieval.parsers.formats import looks_like

MAX_INFLATED_BYTES = 400 * 2**20
MAX_PARTS = 50_000
_CHUNK_BYTES = 2**20
_OLE = b"\xd0\xcf\x11\xe0"
_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
# The strict form of the standard has namespaces of its own for the same elements.
_STRICT = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/(\w+)")
_TRANSITIONAL = rb"http://schemas.openxmlformats.org/\1/2006/\2"
_RELATION = "{http://schemas.openxmlformats.org/package/2006/relationships}Relationship"


class Relation(NamedTuple):
    """A reference from one part to another; `kind` is the last word of its type."""

    kind: str
    target: str


class Damaged(Unreadable):
    """A part that is no sound ZIP entry or no XML; what does not need it may go on without."""


class Package:
    """A file of one kind, given in words ("Word file"). Raises Unreadable for any other.

    `warnings` are about what was left out on the way.
    """

    def __init__(self, path: Path, what: str) -> None:
        self._what = what
        self.warnings: list[str] = []
        self._inflated = 0
        with path.open("rb") as file:
            head = file.read(_CHUNK_BYTES)
        if head.startswith(_OLE):
            raise self._old(path)
        if not head.startswith(b"PK"):
            kind = looks_like(head)
            found = f"It is {kind}; give it the extension that fits" if kind else "Get a fresh copy"
            raise Unreadable(
                f"The file is not {_article(what)}, although its name says so. {found}."
            )
        try:
            self._archive = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise self.damaged() from error
        members = self._archive.infolist()
        if len(members) > MAX_PARTS:
            raise Unreadable(
                f"The {what} claims {len(members):,} parts and was not read. "
                "It is probably damaged."
            )
        self._members = {_normal(member.filename): member for member in members}

    def damaged(self) -> Damaged:
        return Damaged(
            f"The {self._what} is damaged and cannot be opened. Get a fresh copy, or open it with "
            "the program that made it, save it again and add that."
        )

    def _old(self, path: Path) -> Unreadable:
        if _ENCRYPTED in path.read_bytes():
            return self.locked()
        return Unreadable(
            f"The file is not {_article(self._what)} but one of an older Office format. "
            "Save it in the current format and add that."
        )

    def locked(self) -> Unreadable:
        return Unreadable(
            f"The {self._what} is protected by a password. Save a copy without one and add it."
        )

    def __contains__(self, name: str) -> bool:
        return _normal(name) in self._members

    def read(self, name: str) -> bytes | None:
        """The content of a part, or None if there is no such part."""
        member = self._members.get(_normal(name))
        if member is None:
            return None
        if member.flag_bits & 1:
            raise self.locked()
        chunks = []
        try:
            with self._archive.open(member) as stream:
                while chunk := stream.read(_CHUNK_BYTES):
                    chunks.append(chunk)
                    self._inflated += len(chunk)
                    if self._inflated > MAX_INFLATED_BYTES:
                        raise Unreadable(
                            f"The {self._what} unpacks to more than "
                            f"{MAX_INFLATED_BYTES // 2**20} MB and was not read. Split it, or "
                            "export it as PDF, and add that."
                        )
        except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OSError) as error:
            raise self.damaged() from error
        except NotImplementedError as error:  # a way of packing that Python does not know
            raise self.damaged() from error
        return b"".join(chunks)

    def xml(self, name: str, forgiving: bool = False) -> Any | None:
        """The root element of a part, or None if there is no such part.

        Entities are not expanded: a file that builds text out of them is refused. `forgiving`
        makes the best of what is no well-formed XML.
        """
        data = self.read(name)
        if data is None:
            return None
        self._check_prolog(data)
        parser = etree.XMLParser(
            resolve_entities=False,
            load_dtd=False,
            no_network=True,
            huge_tree=True,
            remove_comments=True,
            remove_pis=True,
            recover=forgiving,
        )
        try:
            return etree.fromstring(_STRICT.sub(_TRANSITIONAL, data.lstrip()), parser)
        except etree.LxmlError as error:
            if "memory" in str(error).lower():
                raise MemoryError from error
            raise self.damaged() from error

    def optional_xml(self, name: str) -> Any | None:
        """The root of a part that can be done without: a damaged one is left out and noted."""
        try:
            return self.xml(name)
        except Damaged:
            if _PART_DAMAGED not in self.warnings:
                self.warnings.append(_PART_DAMAGED)
            return None

    def _check_prolog(self, data: bytes) -> None:
        parser = expat.ParserCreate()
        length = 0

        def entity(name: str, is_parameter: int, value: str | None, *outside: Any) -> None:
            nonlocal length
            if value is None:
                if _LINKED not in self.warnings:
                    self.warnings.append(_LINKED)
                return
            length += len(value)
            if "&" in value or length > 1_000:
                raise Unreadable(
                    f"The {self._what} defines text that expands into more text, as files made to "
                    "exhaust a reader's memory do. It is not supported and was not read."
                )

        def element(name: str, attributes: dict[str, str]) -> None:
            raise _PrologEnded

        parser.EntityDeclHandler = entity
        parser.StartElementHandler = element
        try:
            for start in range(0, len(data), _CHUNK_BYTES):
                parser.Parse(data[start : start + _CHUNK_BYTES], False)
        except (_PrologEnded, expat.ExpatError, LookupError):
            return  # what is no XML is found by the parser itself

    def relations(self, part: str) -> dict[str, Relation]:
        """What a part refers to inside the file, by id. `part` "" is the file itself."""
        folder, name = posixpath.split(part)
        root = self.xml(posixpath.join(folder, "_rels", f"{name}.rels"))
        found: dict[str, Relation] = {}
        for node in root.iter(_RELATION) if root is not None else ():
            if node.get("TargetMode") == "External":
                continue
            target = join(folder, node.get("Target", ""))
            found[node.get("Id", "")] = Relation(node.get("Type", "").rsplit("/", 1)[-1], target)
        return found

    def main_part(self, usual: str) -> str:
        """The name of the part with the document itself. Raises Unreadable if there is none."""
        kinds = {relation.kind: relation.target for relation in self.relations("").values()}
        for name in (kinds.get("officeDocument", ""), usual):
            if name in self:
                return name
        if not any(name.endswith((".rels", "[content_types].xml")) for name in self._members):
            raise Unreadable(
                f"The file is a ZIP archive, not {_article(self._what)}. Unpack it first."
            )
        raise self.damaged()


class _PrologEnded(Exception):
    """The first element begins: no entity can be declared any more."""


_PART_DAMAGED = "A part of the file is damaged and was left out."
_LINKED = "The file refers to text outside of itself; that was not fetched."


def join(folder: str, target: str) -> str:
    """A reference as the name of a part, seen from a folder of the package."""
    target = unquote(target.split("#")[0])
    return posixpath.normpath(posixpath.join("/", folder, target)).lstrip("/")


def text_of(node: Any) -> str:
    """The text of an element without what entities inside it would stand for."""
    return (node.text or "") + "".join(child.tail or "" for child in node)


def _normal(name: str) -> str:
    return name.replace("\\", "/").lstrip("/").lower()


def _article(what: str) -> str:
    return f"an {what}" if what[0] in "AEIO" else f"a {what}"
