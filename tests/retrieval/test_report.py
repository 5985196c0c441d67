"""What reading a document showed is kept with it, and a passage knows its page's own label."""

from pathlib import Path

from retrieval.library import Library
from tests.retrieval.make_pdf import Pdf, lines


def test_a_document_keeps_the_report_of_its_reading(tmp_path: Path, library: Library) -> None:
    made = Pdf("/PageLabels << /Nums [0 << /S /r /St 3 >> 2 << /S /D /St 3 >>] >>")
    made.page(lines(["The heron waits at the pond"]))
    made.page("")
    made.page(lines(["The kestrel hovers over the field"]))
    (tmp_path / "a.pdf").write_bytes(made.data())
    view = library.wait(library.add(tmp_path / "a.pdf").id, timeout_s=120)
    assert (view.pages, view.pages_without_text, view.characters) == (3, 1, 60)
    assert view.warnings == ("No text on 1 of 3 pages: 2.",)
    assert view.seconds > 0
    assert view.to_json()["warnings"] == list(view.warnings)
    labels = {
        passage.page: passage.page_label
        for question in ("Where does the heron wait?", "What hovers over the field?")
        for passage in library.search(question).passages
    }
    assert labels == {1: "iii", 3: ""}  # page 3 is called 3: nothing more to say
