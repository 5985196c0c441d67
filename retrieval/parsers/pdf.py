"""The text layer of a PDF, page by page, by PDFium."""

import re
import unicodedata
from pathlib import Path

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from retrieval.errors import NothingToIndex, Unreadable
from retrieval.parsers.formats import Parsed, looks_like

MAX_PAGES = 20_000
_DAMAGED = (
    "The PDF is damaged and cannot be opened. Get a fresh copy, or open it in a viewer, "
    "print it to a new PDF and add that."
)
# PDFium marks a hyphen at a line's end, where a word goes on, with U+FFFE or U+0002.
_BROKEN_WORD = re.compile("[\ufffe\x02]\r?\n?")
_PRESENTATION_FORM = re.compile("[\ufb00-\ufdff\ufe70-\ufefc]+")
_INVISIBLE = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\u00ad\ufeff]")
_JUNK_TITLE = re.compile(
    r"(?i)^(untitled|title|microsoft word - .*|.*\.(docx?|pdf|tex|txt|dvi|indd|html?))$"
)
_MAX_UNREADABLE_SHARE = 0.3


def parse_pdf(path: Path) -> Parsed:
    _check_header(path)
    with _open(path) as document:
        count = len(document)
        if count > MAX_PAGES:
            raise Unreadable(
                f"The PDF claims {count:,} pages; up to {MAX_PAGES:,} are read. "
                "If that is right, split it and add the parts; otherwise it is damaged."
            )
        pages = [page_text(document, number) for number in range(count)]
        title = _title(document)
    if all(page is None for page in pages):
        raise Unreadable(_DAMAGED)
    texts = tuple(page or "" for page in pages)
    _check_text(texts)
    return Parsed(title=title, pages=texts, markdown=False, warnings=_warnings(pages))


def _check_header(path: Path) -> None:
    with path.open("rb") as file:
        head = file.read(1024)
    if b"%PDF-" not in head:
        kind = looks_like(head)
        found = f"It is {kind}; give it the extension that fits" if kind else "Get a fresh copy"
        raise Unreadable(f"The file is not a PDF, although its name says so. {found}.")


def _open(path: Path) -> pdfium.PdfDocument:
    try:
        return pdfium.PdfDocument(path)
    except pdfium.PdfiumError as error:
        if error.err_code == pdfium_c.FPDF_ERR_PASSWORD:
            raise Unreadable(
                "The PDF is protected by a password. Save a copy without one and add it again."
            ) from None
        if error.err_code == pdfium_c.FPDF_ERR_SECURITY:
            raise Unreadable(
                "The PDF is encrypted in a way that cannot be read. "
                "Save a copy without protection and add it again."
            ) from None
        raise Unreadable(_DAMAGED) from None


def page_text(document: pdfium.PdfDocument, number: int) -> str | None:
    """The text of a page counted from 0; None if the page itself cannot be loaded."""
    try:
        page = document[number]
        text = page.get_textpage().get_text_bounded()
        page.close()
    except pdfium.PdfiumError:
        return None
    text = _BROKEN_WORD.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    text = _PRESENTATION_FORM.sub(lambda m: unicodedata.normalize("NFKC", m.group()), text)
    return _INVISIBLE.sub("", text).strip()


def _title(document: pdfium.PdfDocument) -> str:
    try:
        title = str(document.get_metadata_value("Title")).strip()
    except (pdfium.PdfiumError, UnicodeError):
        return ""
    return "" if _JUNK_TITLE.match(title) or len(title) > 200 else title


def _check_text(pages: tuple[str, ...]) -> None:
    letters = [c for page in pages for c in page if not c.isspace()]
    if not letters:
        n = len(pages)
        raise NothingToIndex(
            f"The PDF has {n} page{'s' * (n != 1)} and no text layer; it is probably a scan. "
            "Run it through text recognition (OCR) and add the result."
        )
    unknown = sum(c == "\ufffd" or unicodedata.category(c) in ("Co", "Cn", "Cc") for c in letters)
    if unknown > _MAX_UNREADABLE_SHARE * len(letters):
        raise Unreadable(
            "The PDF's fonts do not say which letters they show, so its text cannot be read "
            "reliably. Run it through text recognition (OCR) and add the result."
        )


def _warnings(pages: list[str | None]) -> tuple[str, ...]:
    def listed(numbers: list[int]) -> str:
        shown = ", ".join(map(str, numbers[:10]))
        return shown + (f" and {len(numbers) - 10} more" if len(numbers) > 10 else "")

    warnings = []
    silent = [i for i, page in enumerate(pages, 1) if page == ""]
    broken = [i for i, page in enumerate(pages, 1) if page is None]
    if silent:
        warnings.append(f"No text on {len(silent)} of {len(pages)} pages: {listed(silent)}.")
    if broken:
        warnings.append(f"Damaged and left out, of {len(pages)} pages: {listed(broken)}.")
    return tuple(warnings)
