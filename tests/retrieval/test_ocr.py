"""Text recognition with the real tesseract, where it is installed."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from retrieval.library import Library
from retrieval.page_image import draw_page
from retrieval.parsers import ocr
from retrieval.parsers.ocr import OcrWord, as_text
from retrieval.parsers.process import ParsedFile
from tests.retrieval.make_pdf import Pdf, lines
from tests.retrieval.test_page_image import marked_rows, opened

pytestmark = pytest.mark.skipif(
    "eng" not in ocr.languages(), reason="tesseract is optional and not installed"
)


def scanned() -> bytes:
    made = Pdf()
    made.page(lines(["A page with a text layer of its own"]))
    made.scan("The heron waits at the edge", "of the pond for a long time", "and eats fish")
    return made.data()


def test_only_pages_without_text_are_recognised_and_they_are_named(
    tmp_path: Path, parse_file: Callable[..., ParsedFile]
) -> None:
    (tmp_path / "a.pdf").write_bytes(scanned())
    parsed = parse_file(tmp_path / "a.pdf", "pdf")
    assert parsed.pages == [
        "A page with a text layer of its own",
        "The heron waits at the edge\nof the pond for a long time\nand eats fish",
    ]
    assert parsed.ocr_pages == {2}
    assert parsed.warnings == [
        "Read by text recognition (OCR), which makes mistakes, on 1 of 2 pages: 2."
    ]


def test_a_passage_says_that_it_was_recognised(tmp_path: Path, library: Library) -> None:
    (tmp_path / "a.pdf").write_bytes(scanned())
    view = library.wait(library.add(tmp_path / "a.pdf").id, timeout_s=120)
    found = library.search("Where does the heron wait?").passages
    assert [(passage.page, passage.ocr) for passage in found if "heron" in passage.text] == [
        (2, True)
    ]
    assert not any(passage.ocr for passage in found if passage.page == 1)
    assert view.pages_without_text == 0


def test_words_are_boxed_on_the_picture_of_a_scan(tmp_path: Path) -> None:
    path, text = tmp_path / "a.pdf", "The heron waits at the edge\nof the pond for a long time"
    path.write_bytes(scanned())
    start = text.index("pond")
    plain = opened(draw_page(path, 2, text, []))
    boxed = opened(draw_page(path, 2, text, [(start, start + 4)]))
    rows = marked_rows(plain, boxed)
    dark = np.flatnonzero((np.asarray(plain.convert("L")) < 100).any(axis=1))
    lines_at = np.split(dark, np.flatnonzero(np.diff(dark) > 20) + 1)
    assert min(rows) <= lines_at[1][0] + 2
    assert max(rows) < lines_at[2][0]
    assert min(rows) > lines_at[0][-1]


def test_words_of_a_line_are_joined_as_their_script_is_written() -> None:
    def words(line: int, *texts: str) -> list[OcrWord]:
        return [OcrWord(text, line, (0, 0, 1, 1), 90.0) for text in texts]

    assert as_text([*words(0, "键", "值", "KV", "缓存", "，"), *words(1, "two", "words")]) == (
        "键值 KV 缓存，\ntwo words"
    )
