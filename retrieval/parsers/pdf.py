"""A PDF page by page: its text layer, where that is none its picture, and what to know of both."""

import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from retrieval.errors import NothingToIndex, Unreadable
from retrieval.parsers import ocr
from retrieval.parsers.budget import Budget
from retrieval.parsers.formats import MAX_CHARACTERS, Parsed, looks_like
from retrieval.parsers.legibility import DOUBTFUL, ILLEGIBLE, legibility
from retrieval.parsers.page_process import picture
from retrieval.parsers.pdf_fields import fields
from retrieval.parsers.pdf_page import read_layer, unmapped_share
from retrieval.parsers.pdf_second import SecondReader
from retrieval.parsers.pdf_text import CUT, MARKED, clean, join_words

MAX_PAGES = 20_000
# A page of a book takes 5 ms. What takes much more is made to.
_BASE_CPU_S = 10.0
_PAGE_CPU_S = 0.04
_STEP_CPU_S = 8
_PLAIN = 0.9  # above this, nothing speaks against PDFium's text

_DAMAGED = (
    "The PDF is damaged and cannot be opened. Get a fresh copy, or open it in a viewer, "
    "print it to a new PDF and add that."
)
_UNRELIABLE = (
    "The text could not be read reliably: the PDF's fonts do not say which letters they show."
)
_INSTALL = "install tesseract (text recognition, OCR) to read them"
_JUNK_TITLE = re.compile(
    r"(?i)^(untitled|title|microsoft word - .*|.*\.(docx?|pdf|tex|txt|dvi|indd|html?))$"
)

_State = Literal["text", "doubtful", "illegible", "picture", "recognised", "blank", "damaged"]


class _Page(NamedTuple):
    state: _State
    text: str = ""


def parse_pdf(path: Path) -> Parsed:
    _check_header(path)
    second = SecondReader(path)
    with _open(path) as document:
        count = _count(document)
        pages = _read(document, count, second)
        labels = [document.get_page_label(number) for number in range(len(pages))]
        title, attached = _title(document), document.count_attachments()
        is_xfa = document.get_formtype() in (
            pdfium_c.FORMTYPE_XFA_FULL,
            pdfium_c.FORMTYPE_XFA_FOREGROUND,
        )
    if all(page.state == "damaged" for page in pages):
        raise Unreadable(_DAMAGED)
    read, late = _recognised(path, pages)
    texts = join_words([page.text for page in read])
    if not any(texts):
        raise _without_text(read, is_xfa)
    return Parsed(
        title=title,
        pages=tuple(texts),
        markdown=False,
        warnings=tuple(_warnings(read, count, late, attached)),
        labels=tuple(labels) if any(labels) else (),
        ocr_pages=tuple(n for n, page in enumerate(read, 1) if page.state == "recognised"),
    )


def _check_header(path: Path) -> None:
    with path.open("rb") as file:
        head = file.read(1024)
    if b"%PDF-" not in head:
        kind = looks_like(head)
        found = f"It is {kind}; give it the extension that fits" if kind else "Get a fresh copy"
        raise Unreadable(f"The file is not a PDF, although its name says so. {found}.")


def _open(path: Path) -> pdfium.PdfDocument:
    try:
        document = pdfium.PdfDocument(path)
        document.init_forms()  # before any page is loaded, or its fields stay unknown
        return document
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


def _count(document: pdfium.PdfDocument) -> int:
    count = len(document)
    if count > MAX_PAGES:
        raise Unreadable(
            f"The PDF claims {count:,} pages; up to {MAX_PAGES:,} are read. "
            "If that is right, split it and add the parts; otherwise it is damaged."
        )
    return count


def _read(document: pdfium.PdfDocument, count: int, second: SecondReader) -> list[_Page]:
    """The pages, or as many of them as the budget allows."""
    budget = Budget(_BASE_CPU_S + _PAGE_CPU_S * count, _STEP_CPU_S)
    pages: list[_Page] = []
    characters = 0
    for number in range(count):
        budget.step()
        page = _page(document, number, second)
        characters += len(page.text)
        if characters > MAX_CHARACTERS:
            break
        pages.append(page)
        if budget.is_spent:
            break
    budget.end()
    return pages


def _page(document: pdfium.PdfDocument, number: int, second: SecondReader) -> _Page:
    try:
        page = document[number]
    except pdfium.PdfiumError:
        return _by_second(second, number, 0.0) or _Page("damaged")
    try:
        state, text = _layer(page, number, second)
        filled = "\n".join(field.text for field in fields(page))
        if filled:
            text = f"{text}\n\n{clean(filled)}".strip()
            state = "text" if state in ("blank", "picture") else state
        return _Page(state, text)
    except pdfium.PdfiumError:
        return _by_second(second, number, 0.0) or _Page("damaged")
    finally:
        page.close()


def _layer(page: pdfium.PdfPage, number: int, second: SecondReader) -> _Page:
    raw = read_layer(page).text
    text = clean(raw)
    if not text.replace(CUT, ""):
        kinds = {found.type for found in page.get_objects(max_depth=3)}
        if pdfium_c.FPDF_PAGEOBJ_TEXT in kinds and (read := _by_second(second, number, 0.0)):
            return read
        return _Page("picture" if kinds else "blank")
    score = legibility(MARKED.sub("", raw))
    if score < _PLAIN:
        score *= 1 - unmapped_share(page) / 2
    if score >= DOUBTFUL:
        return _Page("text", text)
    if read := _by_second(second, number, score):
        return read
    return _Page("doubtful", text) if score >= ILLEGIBLE else _Page("illegible")


def _by_second(second: SecondReader, number: int, score: float) -> _Page | None:
    """The other reader's text of a page, if it is there and clearly better than `score`."""
    text = second.page_text(number) or ""
    good = text.strip() and legibility(text) >= max(DOUBTFUL, score + 0.1)
    return _Page("text", clean(text)) if good else None


def _recognised(path: Path, pages: list[_Page]) -> tuple[list[_Page], int]:
    """The pages with those read that only a picture shows; and how many there was no time for."""
    if not ocr.is_available():
        return pages, 0
    read, late, until = [], 0, time.monotonic() + ocr.FILE_S
    for number, page in enumerate(pages, 1):
        if page.state in ("picture", "illegible"):
            if time.monotonic() > until:
                late += 1
            elif drawn := picture(path, number):
                text = clean(ocr.as_text(ocr.recognise(drawn)))
                if text:
                    page = _Page("recognised", text)
                elif page.state == "picture":
                    page = _Page("blank")
        read.append(page)
    return read, late


def _title(document: pdfium.PdfDocument) -> str:
    try:
        title = str(document.get_metadata_value("Title")).strip()
    except (pdfium.PdfiumError, UnicodeError):
        return ""
    return "" if _JUNK_TITLE.match(title) or len(title) > 200 else title


def _without_text(pages: list[_Page], is_xfa: bool) -> Unreadable:
    count, pictures = len(pages), _with_state(pages, "picture")
    if _with_state(pages, "illegible"):
        return Unreadable(f"{_UNRELIABLE} To read it, {_INSTALL.replace('them', 'the pages')}.")
    begins = f"The PDF has {_pages(count)} and no text layer"
    if is_xfa:
        return NothingToIndex(
            f"{begins}: it is a form that only Adobe's programs show (XFA). Print it to a PDF "
            "there and add that."
        )
    if pictures:
        scans = "1 page is a scan" if len(pictures) == 1 else f"{len(pictures)} pages are scans"
        return NothingToIndex(f"{begins}: {scans}; {_INSTALL}, then add the file again.")
    searched = (
        ", and text recognition (OCR) found none in its pictures" if ocr.is_available() else ""
    )
    return NothingToIndex(f"{begins}{searched}. There is nothing to index.")


def _warnings(pages: list[_Page], count: int, late: int, attached: int) -> Iterable[str]:
    def remark(state: _State, said: str) -> Iterable[str]:
        if numbers := _with_state(pages, state):
            yield said.format(f"{len(numbers)} of {_pages(len(pages))}") + f": {_listed(numbers)}."

    if len(pages) < count:
        yield (
            f"Only the first {len(pages):,} of {count:,} pages were read: the file is too large or "
            "too slow to read. Split it and add the parts."
        )
    yield from remark("blank", "No text on {}")
    if late:
        yield f"There was no time for text recognition (OCR) on {_pages(late)}. Split the file."
    else:
        yield from remark("picture", "{} are scans; " + _INSTALL)
    yield from remark("recognised", "{} were read by text recognition (OCR) and may hold mistakes")
    yield from remark("illegible", "The text could not be read reliably and was left out on {}")
    yield from remark("doubtful", "The text could not be read reliably on {}")
    yield from remark("damaged", "Damaged and left out, of {}")
    if attached:
        files = "1 file" if attached == 1 else f"{attached:,} files"
        yield f"{files} attached to the PDF are not read. Save them and add them by themselves."


def _with_state(pages: list[_Page], state: _State) -> list[int]:
    return [number for number, page in enumerate(pages, 1) if page.state == state]


def _listed(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:10]))
    return shown + (f" and {len(numbers) - 10} more" if len(numbers) > 10 else "")


def _pages(count: int) -> str:
    return f"{count:,} page{'s' * (count != 1)}"
