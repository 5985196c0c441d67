"""EPUB books: one page a chapter, in the order of the spine, titled as in the contents."""

import posixpath
import re
from pathlib import Path
from typing import Any, NamedTuple

from retrieval.errors import NothingToIndex, Unreadable
from retrieval.parsers.formats import Parsed, page_name
from retrieval.parsers.html import html_text
from retrieval.parsers.package import Damaged, Package, join

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
# Fonts may be obfuscated in a book that anyone can read.
_FONT_METHODS = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
_PAGES = frozenset(("application/xhtml+xml", "text/html", "application/x-dtbook+xml"))
_PAGE_NAME = re.compile(r"(?i)\.x?html?$")
_FIRST_HEADING = re.compile(r"^#{1,6} (.*)", re.MULTILINE)
MAX_CHAPTERS = 20_000


class _Item(NamedTuple):
    """A file of the book: the name of its part, its type and its properties."""

    part: str
    type: str
    properties: str


def parse_epub(path: Path) -> Parsed:
    package = Package(path, "EPUB book")
    main = _root_file(package)
    book = package.xml(main, forgiving=True)
    if book is None:
        raise package.damaged()
    _check_locked(package)
    folder = posixpath.dirname(main)
    items = {
        node.get("id", ""): _Item(
            join(folder, node.get("href", "")),
            node.get("media-type", ""),
            node.get("properties") or "",
        )
        for node in _named(book, "item")
    }
    spine = [items[id] for id in _spine(book) if id in items]
    names = _contents(package, items)
    pages, labels, missing = [], [], 0
    for item in spine[:MAX_CHAPTERS]:
        is_page = item.type in _PAGES or _PAGE_NAME.search(item.part)
        if not is_page or "nav" in item.properties.split():
            continue
        data = _read(package, item.part)
        if data is None:
            missing += 1
        elif text := _chapter(data, name := names.get(item.part.lower(), "")):
            pages.append(text)
            heading = _FIRST_HEADING.search(text[:2_000])
            labels.append(page_name(name or (heading.group(1) if heading else "")))
    if not pages:
        raise NothingToIndex(
            "The EPUB book has no chapters with text; it is damaged or holds only pictures. "
            "Get a fresh copy, or convert it to PDF and add that."
        )
    if missing:
        package.warnings.append(f"{missing} of {len(spine)} chapters are missing or damaged.")
    title = next((" ".join(node.itertext()) for node in _named(book, "title")), "")
    return Parsed(
        title=" ".join(title.split()),
        pages=tuple(pages),
        markdown=True,
        warnings=tuple(package.warnings),
        labels=tuple(labels),
    )


def _read(package: Package, part: str) -> bytes | None:
    try:
        return package.read(part)
    except Damaged:
        return None


def _root_file(package: Package) -> str:
    container = package.xml(_CONTAINER)
    if container is None:
        raise Unreadable(
            "The file is a ZIP archive, not an EPUB book: it has no META-INF/container.xml. "
            "Unpack it and add the files in it."
        )
    for node in _named(container, "rootfile"):
        return join("", node.get("full-path", ""))
    raise package.damaged()


def _check_locked(package: Package) -> None:
    root = package.xml(_ENCRYPTION)
    methods = _named(root, "EncryptionMethod") if root is not None else []
    if any(node.get("Algorithm") not in _FONT_METHODS for node in methods):
        raise Unreadable(
            "The EPUB book is protected against copying (DRM) and cannot be read. "
            "Add a copy without protection."
        )


def _spine(book: Any) -> list[str]:
    """The ids of the chapters in reading order; one that is listed twice comes once."""
    return list(dict.fromkeys(node.get("idref", "") for node in _named(book, "itemref")))


def _contents(package: Package, items: dict[str, _Item]) -> dict[str, str]:
    """The titles of chapters by part: of the table of contents, of either version of EPUB."""
    names: dict[str, str] = {}
    for item in items.values():
        if item.type == "application/x-dtbncx+xml":
            root = package.xml(item.part, forgiving=True)
            for point in _named(root, "navPoint") if root is not None else ():
                label, content = _first(point, "text"), _first(point, "content")
                if label is not None and content is not None:
                    _add_name(names, item.part, content.get("src"), label.text)
        elif "nav" in item.properties.split():
            root = package.xml(item.part, forgiving=True)
            for link in _named(root, "a") if root is not None else ():
                _add_name(names, item.part, link.get("href"), " ".join(link.itertext()))
    return names


def _add_name(names: dict[str, str], part: str, target: str | None, name: str | None) -> None:
    if target and name and name.strip():
        names.setdefault(join(posixpath.dirname(part), target).lower(), " ".join(name.split()))


def _chapter(data: bytes, name: str) -> str:
    """The text of a chapter; one without a heading begins with its title of the contents."""
    text = html_text(data).text
    if text and name and not _FIRST_HEADING.search(text[:2_000]):
        return f"# {name}\n\n{text}"
    return text


def _named(root: Any, name: str) -> list[Any]:
    """All elements of a local name; books use several namespaces for the same."""
    return list(root.iter("{*}" + name))


def _first(root: Any, name: str) -> Any | None:
    return next(root.iter("{*}" + name), None)
