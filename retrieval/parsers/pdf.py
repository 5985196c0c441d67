"""A PDF as pages of text, and in sentences what a person should know of how they were read."""

from collections.abc import Iterable
from pathlib import Path

from retrieval.errors import NothingToIndex, Unreadable
from retrieval.parsers.formats import Parsed, looks_like
from retrieval.parsers.pdf_file import HEAD_BYTES
from retrieval.parsers.pdf_reader import DAMAGED, Page, Reading, State, read, recognised
from retrieval.parsers.pdf_text import join_words

_INSTALL = "install tesseract (text recognition, OCR) to read them"
_REMARKS: dict[State, str] = {
    "blank": "No text on {}",
    "picture": f"Only pictures, probably scans, on {{}}; {_INSTALL}",
    "late": "No time was left for text recognition (OCR) on {}; split the file",
    "recognised": "Read by text recognition (OCR), which makes mistakes, on {}",
    "illegible": "The text could not be read reliably and was left out on {}",
    "doubtful": "The text could not be read reliably on {}",
    "damaged": "The file is damaged on {}, which were left out",
}
_MOST_LISTED = 10


def parse_pdf(path: Path) -> Parsed:
    _check_header(path)
    reading = read(path)
    if all(page.state == "damaged" for page in reading.pages):
        raise Unreadable(DAMAGED)
    pages = recognised(path, reading.pages)
    texts = join_words([page.text for page in pages])
    if not any(texts):
        raise _without_text(reading, pages)
    return Parsed(
        title=reading.title,
        pages=tuple(texts),
        markdown=False,
        warnings=tuple(_warnings(reading, pages)),
        labels=tuple(reading.labels) if any(reading.labels) else (),
        ocr_pages=tuple(_with_state(pages, "recognised")),
    )


def _check_header(path: Path) -> None:
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    if b"%PDF-" not in head:
        kind = looks_like(head)
        found = f"It is {kind}; give it the extension that fits" if kind else "Get a fresh copy"
        raise Unreadable(f"The file is not a PDF, although its name says so. {found}.")


def _without_text(reading: Reading, pages: list[Page]) -> Unreadable:
    """Why there is nothing to index, of a file as it is and after text recognition."""
    if _with_state(pages, "illegible"):
        return Unreadable(
            "The text could not be read reliably: the PDF's fonts do not say which letters they "
            "show. Install tesseract (text recognition, OCR), then add the file again."
        )
    begins = f"The PDF has {_counted(len(pages))} and no text layer"
    if reading.is_xfa:
        return NothingToIndex(
            f"{begins}: it is a form that only Adobe's programs show (XFA). Print it to a PDF "
            "there and add that."
        )
    if pictures := len(_with_state(pages, "picture")):
        scans = "1 page is a scan" if pictures == 1 else f"{pictures:,} pages are scans"
        reads = _INSTALL if pictures > 1 else _INSTALL.replace("them", "it")
        return NothingToIndex(f"{begins}: {scans}; {reads}, then add the file again.")
    searched = ", and text recognition (OCR) found none either" if pages != reading.pages else ""
    return NothingToIndex(f"{begins}{searched}. There is nothing to index.")


def _warnings(reading: Reading, pages: list[Page]) -> Iterable[str]:
    if reading.is_mended:
        yield "The PDF is damaged. Its text was saved as far as possible; no page can be shown."
    if len(pages) < reading.claimed:
        yield (
            f"Only the first {len(pages):,} of {reading.claimed:,} pages were read: the file is "
            "too large or too slow to read. Split it and add the parts."
        )
    for state, said in _REMARKS.items():
        if numbers := _with_state(pages, state):
            of = f"{len(numbers):,} of {_counted(len(pages))}"
            yield f"{said.format(of)}: {_listed(numbers)}."
    if reading.attached:
        files = "1 file is" if reading.attached == 1 else f"{reading.attached:,} files are"
        yield f"{files} attached to the PDF and not read. Save and add what is needed of them."


def _with_state(pages: list[Page], state: State) -> list[int]:
    return [number for number, page in enumerate(pages, 1) if page.state == state]


def _listed(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:_MOST_LISTED]))
    more = len(numbers) - _MOST_LISTED
    return f"{shown} and {more:,} more" if more > 0 else shown


def _counted(pages: int) -> str:
    return f"{pages:,} page{'s' * (pages != 1)}"
