"""Which files can be read, and the values that a parser gives back."""

from dataclasses import dataclass
from pathlib import PurePath

from retrieval.errors import Unreadable

FORMATS = {
    ".md": "md",
    ".markdown": "md",
    ".txt": "txt",
    ".text": "txt",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".pdf": "pdf",
    ".docx": "docx",
    ".docm": "docx",
    ".dotx": "docx",
    ".xlsx": "xlsx",
    ".xlsm": "xlsx",
    ".xltx": "xlsx",
    ".epub": "epub",
    ".csv": "csv",
    ".tsv": "csv",
}
SUPPORTED = (
    "Markdown (.md), plain text (.txt), HTML (.html), PDF (.pdf), Word (.docx), Excel (.xlsx), "
    "EPUB (.epub) and CSV (.csv)"
)

AS_DOCX = "Save it as .docx and add that."
AS_XLSX = "Save it as .xlsx and add that."
AS_PDF = "Export it as .pdf and add that."
AS_TEXT = "Save it as .txt or .pdf and add that."
AS_EPUB = "Convert it to .epub or .pdf and add that."
RECOGNISE = "Run it through text recognition (OCR) and add the result."
UNPACK = "Unpack it and add the files in it."

_CONVERT = {
    AS_DOCX: "doc dot rtf odt wpd wps sxw",
    AS_XLSX: "xls xlt xlsb ods numbers",
    AS_PDF: "ppt pptx pps ppsx odp key pages vsd vsdx ps xps djvu mhtml mht",
    AS_TEXT: "eml msg tex rst json xml yaml log",
    AS_EPUB: "mobi azw azw3 fb2 lit chm",
    RECOGNISE: "png jpg jpeg gif tif tiff bmp webp heic svg",
    UNPACK: "zip tar gz tgz bz2 xz 7z rar zst",
}
_ADVICE = {f".{suffix}": advice for advice, names in _CONVERT.items() for suffix in names.split()}

# What a file is by its first bytes, whatever its name says.
_MAGIC = (
    (b"%PDF-", "a PDF"),
    (b"PK\x03\x04", "a ZIP archive or Office file"),
    (b"PK\x05\x06", "an empty ZIP archive"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an older Office file"),
    (b"\x89PNG\r\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"II*\x00", "a TIFF image"),
    (b"MM\x00*", "a TIFF image"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"7z\xbc\xaf", "a 7-Zip archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ\x00", "an xz archive"),
    (b"(\xb5/\xfd", "a Zstandard archive"),
    (b"%!PS", "a PostScript document"),
    (b"AT&TFORM", "a DjVu document"),
    (b"SQLite format 3", "an SQLite database"),
    (b"\x7fELF", "a program"),
    (b"{\\rtf", "an RTF document"),
)


# What one document may hold: 5,000 pages of a book. The parent process keeps all of it at a time.
MAX_CHARACTERS = 10_000_000
MAX_NAME_CHARACTERS = 80


@dataclass(frozen=True)
class Parsed:
    """What a parser found: pages as text ("\\n" line ends), page 1 first.

    `markdown` says that headings ("# ...") and tables ("| a | b |") are marked as in Markdown.
    `warnings` are sentences about what was left out or may be wrong. `labels` are what the pages
    call themselves (one for each, or none at all): a number as it is printed ("iii"), "", or the
    `page_name` of a chapter or a sheet. `ocr_pages` are the numbers of those that were recognised
    in a picture.
    """

    title: str
    pages: tuple[str, ...]
    markdown: bool
    warnings: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    ocr_pages: tuple[int, ...] = ()


def page_name(name: str) -> str:
    """The label of a page that is called by a name, in quotation marks, and so needs no number."""
    name = " ".join(name.split())
    if len(name) > MAX_NAME_CHARACTERS:
        name = f"{name[: MAX_NAME_CHARACTERS - 1].rstrip()}…"
    return f"“{name}”" if name else ""


def check_length(characters: int) -> None:
    """Raises Unreadable for more text than one document may hold."""
    if characters > MAX_CHARACTERS:
        raise Unreadable(
            f"The file holds more than {MAX_CHARACTERS:,} characters of text, which is more "
            "than one document may have. Split it and add the parts."
        )


def format_of(name: str) -> str | None:
    """The format that a file's name stands for, or None if it is not supported."""
    return FORMATS.get(PurePath(name).suffix.lower())


def unsupported(name: str) -> str:
    """Why a file of this name is refused, and what to do."""
    suffix = PurePath(name).suffix.lower()
    what = f"Files of type {suffix} are" if suffix else "Files without an extension are"
    advice = _ADVICE.get(suffix, "Convert the file to one of these and add that.")
    return f"{what} not supported. Supported are {SUPPORTED}. {advice}"


def looks_like(head: bytes) -> str | None:
    """What the first bytes of a file say it is, in words, or None if they say nothing."""
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    return None
