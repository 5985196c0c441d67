"""Word, Excel and EPUB files part by part, for what no program that we have would write."""

import zipfile
from collections.abc import Mapping
from pathlib import Path

OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
_W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_S = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_MC = "http://schemas.openxmlformats.org/markup-compatibility/2006"
NAMESPACES = f'xmlns:w="{_W}" xmlns:r="{OFFICE}" xmlns:mc="{_MC}"'


def package(path: Path, parts: Mapping[str, str | bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return path


def relations(**targets: str) -> str:
    """A part of relations: kind -> target, their ids r1, r2, ... in order."""
    items = (
        f'<Relationship Id="r{n}" Type="{OFFICE}/{kind}" Target="{target}"/>'
        for n, (kind, target) in enumerate(targets.items(), 1)
    )
    return f'<Relationships xmlns="{_RELATIONS}">{"".join(items)}</Relationships>'


def word(path: Path, body: str, **parts: str) -> Path:
    """A Word file with this in its body; `parts` are the children of others by their kind."""
    roots = {"header": "hdr", "footer": "ftr"}
    files: dict[str, str | bytes] = {
        "[Content_Types].xml": "<Types/>",
        "_rels/.rels": relations(officeDocument="word/document.xml"),
        "word/document.xml": f"<w:document {NAMESPACES}><w:body>{body}</w:body></w:document>",
        "word/_rels/document.xml.rels": relations(**{kind: f"{kind}.xml" for kind in parts}),
    }
    for kind, content in parts.items():
        root = f"w:{roots.get(kind, kind)}"
        files[f"word/{kind}.xml"] = f"<{root} {NAMESPACES}>{content}</{root}>"
    return package(path, files)


def p(text: str, properties: str = "") -> str:
    """A paragraph with one run."""
    return f"<w:p><w:pPr>{properties}</w:pPr>{r(text)}</w:p>"


def r(text: str, properties: str = "") -> str:
    return f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


def table(*rows: tuple[str, ...]) -> str:
    """A table; each cell is given by its content, or by its properties and content."""
    cells = ("".join(f"<w:tc>{cell}</w:tc>" for cell in row) for row in rows)
    return f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in cells)}</w:tbl>"


def workbook(
    path: Path,
    sheets: Mapping[str, str],
    *,
    strings: str = "",
    styles: str = "",
    hidden: str = "",
    properties: str = "",
) -> Path:
    """An Excel file: names of sheets with the children of their parts."""
    listed = "".join(
        f'<sheet name="{name}" sheetId="{n}" r:id="r{n}"'
        f' state="{"hidden" if name == hidden else "visible"}"/>'
        for n, name in enumerate(sheets, 1)
    )
    items = "".join(
        f'<Relationship Id="r{n}" Type="{OFFICE}/worksheet" Target="sheet{n}.xml"/>'
        for n in range(1, len(sheets) + 1)
    )
    for kind in ("sharedStrings", "styles"):
        items += f'<Relationship Id="{kind}" Type="{OFFICE}/{kind}" Target="{kind}.xml"/>'
    root = f'xmlns="{_S}" xmlns:r="{OFFICE}"'
    files: dict[str, str | bytes] = {
        "_rels/.rels": relations(officeDocument="xl/workbook.xml"),
        "xl/workbook.xml": f"<workbook {root}>{properties}<sheets>{listed}</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": (
            f'<Relationships xmlns="{_RELATIONS}">{items}</Relationships>'
        ),
        "xl/sharedStrings.xml": f"<sst {root}>{strings}</sst>",
        "xl/styles.xml": f"<styleSheet {root}>{styles}</styleSheet>",
    }
    for n, content in enumerate(sheets.values(), 1):
        files[f"xl/sheet{n}.xml"] = f"<worksheet {root}>{content}</worksheet>"
    return package(path, files)


def rows(*lines: tuple[str, ...]) -> str:
    """The data of a sheet: each line holds cells as texts; "" is an empty cell."""
    out = ""
    for number, line in enumerate(lines, 1):
        cells = "".join(
            f'<c r="{chr(65 + i)}{number}" t="inlineStr"><is><t>{text}</t></is></c>'
            for i, text in enumerate(line)
            if text
        )
        out += f'<row r="{number}">{cells}</row>'
    return f"<sheetData>{out}</sheetData>"


def book(path: Path, chapters: Mapping[str, str], *, contents: str = "", **parts: str) -> Path:
    """An EPUB: chapters (name -> body) in the order of the spine; `contents` is an NCX's points."""
    manifest = "".join(
        f'<item id="c{n}" href="{name}" media-type="application/xhtml+xml"/>'
        for n, name in enumerate(chapters)
    )
    spine = "".join(f'<itemref idref="c{n}"/>' for n in range(len(chapters)))
    files: dict[str, str | bytes] = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": (
            '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
            '<rootfile full-path="OPS/book.opf"/></rootfiles></container>'
        ),
        "OPS/book.opf": (
            '<package xmlns="http://www.idpf.org/2007/opf"><metadata '
            'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>Ponds</dc:title></metadata>'
            f'<manifest>{manifest}<item id="x" href="toc.ncx" '
            f'media-type="application/x-dtbncx+xml"/></manifest><spine>{spine}</spine></package>'
        ),
        "OPS/toc.ncx": f'<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/">{contents}</ncx>',
    }
    for name, body in chapters.items():
        files[f"OPS/{name}"] = (
            '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><head><title/></head>'
            f"<body>{body}</body></html>"
        )
    return package(path, files | parts)
