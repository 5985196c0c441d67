"""Pages of PDFs as pictures, with words boxed where they stand."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from retrieval.errors import DocumentNotFound
from retrieval.library import Library
from retrieval.page_image import PageNotDrawn

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
