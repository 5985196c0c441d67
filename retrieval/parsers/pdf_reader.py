"""The pages of a PDF, each by the first of PDFium, pypdf and text recognition that can read it."""

import re
import time
from pathlib import Path
from typing import Literal, NamedTuple

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from retrieval.errors import Unreadable
from retrieval.parsers import ocr
from retrieval.parsers.budget import Budget
from retrieval.parsers.formats import MAX_CHARACTERS
from retrieval.parsers.legibility import DOUBTFUL, ILLEGIBLE, legibility
from retrieval.parsers.page_process import picture
from retrieval.parsers.pdf_fields import fields
from retrieval.parsers.pdf_file import open_document
from retrieval.parsers.pdf_page import read_layer, unmapped_share
from retrieval.parsers.pdf_second import SecondReader
from retrieval.parsers.pdf_text import CUT, MARKED, clean

MAX_PAGES = 20_000
# A page of a book takes 5 ms. What takes much more is made to.
_BASE_CPU_S = 10.0
_PAGE_CPU_S = 0.04
_STEP_CPU_S = 8
_PLAIN = 0.9  # above this, nothing speaks against PDFium's text

DAMAGED = (
    "The PDF is damaged and cannot be opened. Get a fresh copy, or open it in a viewer, "
    "print it to a new PDF and add that."
)
_JUNK_TITLE = re.compile(
    r"(?i)^(untitled|title|microsoft word - .*|.*\.(docx?|pdf|tex|txt|dvi|indd|html?))$"
)

State = Literal[
    "text", "doubtful", "illegible", "picture", "late", "recognised", "blank", "damaged"
]


class Page(NamedTuple):
    """How a page was read: a "picture" was not, for want of text recognition, or of time ("late").

    The text may hold CUT marks, which only the whole document can resolve.
    """

    state: State
    text: str = ""


class Reading(NamedTuple):
    """A file's pages, or as many of them as there was time for; `claimed` is how many it has."""

    pages: list[Page]
    claimed: int
    labels: list[str]
    title: str
    attached: int = 0
    is_xfa: bool = False
    is_mended: bool = False


def read(path: Path) -> Reading:
    """Raises Unreadable for a file that nothing can open, or that is locked."""
    second = SecondReader(path)
    try:
        return _by_pdfium(path, second)
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
        return _by_pypdf(second)


def _by_pdfium(path: Path, second: SecondReader) -> Reading:
    with open_document(path) as document:
        count = len(document)
        if count > MAX_PAGES:
            raise Unreadable(
                f"The PDF claims {count:,} pages; up to {MAX_PAGES:,} are read. "
                "If that is right, split it and add the parts; otherwise it is damaged."
            )
        pages = _pages(document, count, second)
        kind = document.get_formtype()
        return Reading(
            pages=pages,
            claimed=count,
            labels=[document.get_page_label(number) for number in range(len(pages))],
            title=_title(document),
            attached=document.count_attachments(),
            is_xfa=kind in (pdfium_c.FORMTYPE_XFA_FULL, pdfium_c.FORMTYPE_XFA_FOREGROUND),
        )


def _by_pypdf(second: SecondReader) -> Reading:
    """What pypdf makes of a file that PDFium cannot open."""
    count = second.pages
    if not 0 < count <= MAX_PAGES:
        raise Unreadable(DAMAGED)
    pages: list[Page] = []
    with Budget(_BASE_CPU_S, _STEP_CPU_S) as budget:
        while len(pages) < count and not budget.is_spent:
            pages.append(_by_second(second, len(pages), 0.0) or Page("damaged"))
    if not any(page.text for page in pages):
        raise Unreadable(DAMAGED)
    return Reading(pages, count, [], "", is_mended=True)


def _pages(document: pdfium.PdfDocument, count: int, second: SecondReader) -> list[Page]:
    pages: list[Page] = []
    characters = 0
    with Budget(_BASE_CPU_S + _PAGE_CPU_S * count, _STEP_CPU_S) as budget:
        for number in range(count):
            budget.step()
            page = _page(document, number, second)
            characters += len(page.text)
            if characters > MAX_CHARACTERS:
                break
            pages.append(page)
            if budget.is_spent:
                break
    return pages


def _page(document: pdfium.PdfDocument, number: int, second: SecondReader) -> Page:
    try:
        page = document[number]
    except pdfium.PdfiumError:
        return _by_second(second, number, 0.0) or Page("damaged")
    try:
        read = _layer(page, number, second)
        filled = clean("\n".join(field.text for field in fields(page)))
        if not filled:
            return read
        unread: tuple[State, ...] = ("blank", "picture")
        return Page(
            "text" if read.state in unread else read.state, f"{read.text}\n\n{filled}".strip()
        )
    except pdfium.PdfiumError:
        return _by_second(second, number, 0.0) or Page("damaged")
    finally:
        page.close()


def _layer(page: pdfium.PdfPage, number: int, second: SecondReader) -> Page:
    raw = read_layer(page).text
    text = clean(raw)
    if not text.replace(CUT, ""):
        kinds = {found.type for found in page.get_objects(max_depth=3)}
        if pdfium_c.FPDF_PAGEOBJ_TEXT in kinds and (read := _by_second(second, number, 0.0)):
            return read
        return Page("picture" if kinds else "blank")
    score = legibility(MARKED.sub("", raw))
    if score < _PLAIN:
        score *= 1 - unmapped_share(page) / 2
    if score >= DOUBTFUL:
        return Page("text", text)
    if read := _by_second(second, number, score):
        return read
    return Page("doubtful", text) if score >= ILLEGIBLE else Page("illegible")


def _by_second(second: SecondReader, number: int, score: float) -> Page | None:
    """pypdf's text of a page, if there is some and it is clearly better than `score`."""
    text = second.page_text(number) or ""
    good = text.strip() and legibility(text) >= max(DOUBTFUL, score + 0.1)
    return Page("text", clean(text)) if good else None


def _title(document: pdfium.PdfDocument) -> str:
    try:
        title = str(document.get_metadata_value("Title")).strip()
    except (pdfium.PdfiumError, UnicodeError):
        return ""
    return "" if _JUNK_TITLE.match(title) or len(title) > 200 else title


def recognised(path: Path, pages: list[Page]) -> list[Page]:
    """The pages with those read that only a picture shows, if there is something to do it with."""
    if not ocr.is_available():
        return pages
    until = time.monotonic() + ocr.FILE_S
    return [
        _by_ocr(path, number, page, until) if page.state in ("picture", "illegible") else page
        for number, page in enumerate(pages, 1)
    ]


def _by_ocr(path: Path, number: int, page: Page, until: float) -> Page:
    if time.monotonic() > until:
        return Page("late")
    drawn = picture(path, number)
    words = ocr.recognise(drawn) if drawn else []
    if words is None:
        return Page("late")
    text = clean(ocr.as_text(words))
    if text and legibility(text) >= ILLEGIBLE:
        return Page("recognised", text)
    return Page("blank") if page.state == "picture" else page
