"""Which files can be read, and the values that a parser gives back."""

from dataclasses import dataclass
from pathlib import PurePath

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
}
SUPPORTED = "Markdown (.md), plain text (.txt), HTML (.html), PDF (.pdf) and Word (.docx)"

_CONVERT = {
    ".doc": "Save it as .docx and add that.",
    ".rtf": "Save it as .docx or .txt and add that.",
    ".odt": "Save it as .docx or .pdf and add that.",
    ".epub": "Convert it to .html or .pdf and add that.",
    ".ppt": "Export it as .pdf and add that.",
    ".pptx": "Export it as .pdf and add that.",
}

# What a file is by its first bytes, whatever its name says.
_MAGIC = (
    (b"%PDF-", "a PDF"),
    (b"PK\x03\x04", "a ZIP archive or Office file"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an older Office file"),
    (b"\x89PNG\r\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"7z\xbc\xaf", "a 7-Zip archive"),
    (b"SQLite format 3", "an SQLite database"),
    (b"\x7fELF", "a program"),
    (b"{\\rtf", "an RTF document"),
)


@dataclass(frozen=True)
class Parsed:
    """What a parser found: pages as text ("\\n" line ends), page 1 first.

    `markdown` says that headings ("# ...") and tables ("| a | b |") are marked as in Markdown.
    `warnings` are sentences about what was left out or may be wrong. `labels` are what the pages
    call themselves (one for each, or none at all); `ocr_pages` are the numbers of those that were
    recognised in a picture.
    """

    title: str
    pages: tuple[str, ...]
    markdown: bool
    warnings: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    ocr_pages: tuple[int, ...] = ()


def format_of(name: str) -> str | None:
    """The format that a file's name stands for, or None if it is not supported."""
    return FORMATS.get(PurePath(name).suffix.lower())


def unsupported(name: str) -> str:
    """Why a file of this name is refused, and what to do."""
    suffix = PurePath(name).suffix.lower()
    what = f"Files of type {suffix} are" if suffix else "Files without an extension are"
    advice = _CONVERT.get(suffix, "Convert the file to one of these and add that.")
    return f"{what} not supported. Supported are {SUPPORTED}. {advice}"


def looks_like(head: bytes) -> str | None:
    """What the first bytes of a file say it is, in words, or None if they say nothing."""
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    return None
