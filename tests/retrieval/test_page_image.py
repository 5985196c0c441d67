"""Pages of PDFs as pictures, with words boxed where they stand."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from retrieval.errors import DocumentNotFound
from retrieval.library import Library
from retrieval.page_image import PageNotDrawn, draw_page
from retrieval.parsers.pdf import parse_pdf
from tests.retrieval.make_pdf import Pdf, shown

PDF = "quantising-the-kv-cache.pdf"


def opened(picture: bytes) -> Image.Image:
    return Image.open(io.BytesIO(picture)).convert("RGB")


def marked_rows(plain: Image.Image, boxed: Image.Image) -> list[int]:
    """The rows in which a marker pen changed something."""
    assert plain.size == boxed.size
    differs = (np.asarray(plain) != np.asarray(boxed)).any(axis=(1, 2))
    return [int(row) for row in np.flatnonzero(differs)]


@pytest.fixture
def pdf(library: Library, library_dir: Path) -> tuple[Library, str]:
    view = library.wait(library.add(library_dir / PDF).id, timeout_s=60)
    assert view.state == "ready"
    return library, view.id


def test_words_are_boxed_where_they_stand(pdf: tuple[Library, str]) -> None:
    library, document = pdf
    text = library.page_text(document, 1)
    middle, end = text.index(". ", len(text) // 2), len(text.rstrip())
    early = text[: text.index("\n") or 20]
    plain = opened(library.page_image(document, 1, []))
    top = marked_rows(plain, opened(library.page_image(document, 1, [(0, len(early))])))
    bottom = marked_rows(plain, opened(library.page_image(document, 1, [(middle, end)])))
    assert top
    assert bottom
    assert max(top) < min(bottom)
    assert len(top) < len(bottom)


def test_several_ranges_give_several_boxes(pdf: tuple[Library, str]) -> None:
    library, document = pdf
    text = library.page_text(document, 1)
    plain = opened(library.page_image(document, 1, []))
    spans = [(0, 20), (len(text) - 30, len(text))]
    both = marked_rows(plain, opened(library.page_image(document, 1, spans)))
    alone = [marked_rows(plain, opened(library.page_image(document, 1, [span]))) for span in spans]
    assert both == sorted(alone[0] + alone[1])


def test_a_page_that_is_not_there_and_a_file_without_pages_are_refused(
    pdf: tuple[Library, str], tmp_path: Path
) -> None:
    library, document = pdf
    with pytest.raises(PageNotDrawn):
        library.page_image(document, 99, [])
    (tmp_path / "a.md").write_text("# A\n\nText.", encoding="utf-8")
    note = library.wait(library.add(tmp_path / "a.md").id, timeout_s=60)
    with pytest.raises(PageNotDrawn, match="no page of a PDF"):
        library.page_image(note.id, 1, [])


def test_another_owners_page_is_not_found(pdf: tuple[Library, str]) -> None:
    library, document = pdf
    with pytest.raises(DocumentNotFound):
        library.page_image(document, 1, [], owner="someone else")


def boxed_at(path: Path, words: str) -> tuple[float, float]:
    """The middle of what is boxed for these words of page 1, in parts of its width and height."""
    text = parse_pdf(path).pages[0]
    start = text.index(words)
    plain = opened(draw_page(path, 1, text, []))
    drawn = opened(draw_page(path, 1, text, [(start, start + len(words))]))
    ys, xs = np.nonzero((np.asarray(plain) != np.asarray(drawn)).any(axis=2))
    assert len(xs), f"nothing is boxed for {words!r}"
    return float(xs.mean()) / plain.width, float(ys.mean()) / plain.height


def test_words_of_columns_that_were_put_in_order_are_boxed_where_they_stand(tmp_path: Path) -> None:
    made = Pdf()
    left = [f"Left line {n} of a column with words enough" for n in range(6)]
    right = [f"Right line {n} tells of other things than it" for n in range(6)]
    made.page(
        shown(
            *(
                (x, 780 - 20 * n, text)
                for n, row in enumerate(zip(left, right, strict=True))
                for x, text in zip((50, 310), row, strict=True)
            )
        )
    )
    (tmp_path / "a.pdf").write_bytes(made.data())
    x, y = boxed_at(tmp_path / "a.pdf", left[1])
    assert x < 0.5
    x, lower = boxed_at(tmp_path / "a.pdf", right[4])
    assert x > 0.5
    assert abs((lower - y) - 60 / 842) < 0.01


def test_a_word_cut_at_the_end_of_a_line_is_boxed_on_both(tmp_path: Path) -> None:
    made = Pdf()
    made.page(shown((300, 780, "The size is deter-"), (50, 766, "mined by the page")))
    (tmp_path / "a.pdf").write_bytes(made.data())
    x, _ = boxed_at(tmp_path / "a.pdf", "determined")
    assert 0.15 < x < 0.65


def test_the_value_of_a_field_is_boxed_in_its_form(tmp_path: Path) -> None:
    made = Pdf()
    field = made.add(
        "<< /Type /Annot /Subtype /Widget /Rect [300 400 400 420] /FT /Tx /T (name) /V (Alice) >>"
    )
    made.catalog = f"/AcroForm << /Fields [{field} 0 R] >>"
    made.page(shown((50, 780, "An application")), f"/Annots [{field} 0 R]")
    (tmp_path / "a.pdf").write_bytes(made.data())
    x, y = boxed_at(tmp_path / "a.pdf", "Alice")
    assert abs(x - 350 / 595) < 0.02
    assert abs(y - (842 - 410) / 842) < 0.02
