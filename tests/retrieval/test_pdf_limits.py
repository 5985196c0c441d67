"""Files made to hang, fill the memory or lie about themselves, in the real child process."""

import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from retrieval.errors import Unreadable
from retrieval.parsers import pdf_reader
from retrieval.parsers.pdf import parse_pdf
from retrieval.parsers.process import ParsedFile, ParseLimits
from tests.retrieval.make_files import many_pages
from tests.retrieval.make_pdf import Pdf, lines

Parse = Callable[..., ParsedFile]


def outcome(parse_file: Parse, path: Path, data: bytes) -> str:
    """What a person is told, or the text."""
    path.write_bytes(data)
    start = time.monotonic()
    try:
        return "\n".join(parse_file(path, "pdf").pages)
    except Unreadable as error:
        return error.reason
    finally:
        assert (
            time.monotonic() - start < 60
        )  # seconds on an idle machine are a minute on a full one


def test_a_page_that_draws_without_end_is_read(tmp_path: Path, parse_file: Parse) -> None:
    drawn = b"BT /F1 9 Tf 50 700 Td " + b"(boom) Tj 0 -1 Td " * 1_000_000 + b" ET"
    made = Pdf()
    made.page(zlib.compress(drawn), packed="/Filter /FlateDecode")
    assert outcome(parse_file, tmp_path / "a.pdf", made.data()) == "boom"


def test_a_page_that_unpacks_without_end_is_refused(tmp_path: Path, parse_file: Parse) -> None:
    twice = zlib.compress(zlib.compress(bytes(600 * 2**20), 1))
    made = Pdf()
    made.page(twice, packed="/Filter [/FlateDecode /FlateDecode]")
    (tmp_path / "a.pdf").write_bytes(made.data())
    assert (tmp_path / "a.pdf").stat().st_size < 2**16
    with pytest.raises(Unreadable, match="memory"):
        parse_file(tmp_path / "a.pdf", "pdf", ParseLimits(memory_bytes=2**29))


def test_a_form_that_draws_itself_ends(tmp_path: Path, parse_file: Parse) -> None:
    made = Pdf()
    own = len(made.objects) + 1
    made.stream(
        b"/Me Do",
        "/Type /XObject /Subtype /Form /BBox [0 0 9 9] "
        f"/Resources << /XObject << /Me {own} 0 R >> >>",
    )
    made.page("/Me Do", images={"Me": own})
    assert "no text" in outcome(parse_file, tmp_path / "a.pdf", made.data())


def test_a_page_of_absurd_size_is_no_reason_to_draw_it(tmp_path: Path, parse_file: Parse) -> None:
    made = Pdf()
    made.page("0 0 9 9 re f", "/MediaBox [0 0 595 2147483648]")
    assert "no text" in outcome(parse_file, tmp_path / "a.pdf", made.data())


def test_more_pages_than_are_read_are_refused_with_the_number(
    tmp_path: Path, parse_file: Parse
) -> None:
    made = Pdf()
    made.page(lines(["again"]))
    made.kids *= pdf_reader.MAX_PAGES + 1
    assert "claims 20,001 pages" in outcome(parse_file, tmp_path / "a.pdf", made.data())


def test_what_was_read_in_time_is_kept_and_the_rest_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.pdf").write_bytes(many_pages(40))
    monkeypatch.setattr(pdf_reader, "_BASE_CPU_S", 0.0)
    monkeypatch.setattr(pdf_reader, "_PAGE_CPU_S", 0.0)
    parsed = parse_pdf(tmp_path / "a.pdf")
    assert 1 <= len(parsed.pages) < 40
    assert f"Only the first {len(parsed.pages)} of 40 pages were read" in parsed.warnings[0]


def test_more_text_than_a_document_may_have_is_cut_off_at_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.pdf").write_bytes(many_pages(40))
    monkeypatch.setattr(pdf_reader, "MAX_CHARACTERS", 500)
    parsed = parse_pdf(tmp_path / "a.pdf")
    assert sum(map(len, parsed.pages)) <= 500
    assert "Only the first" in parsed.warnings[0]


def test_a_repeated_page_is_found_once_and_says_where(tmp_path: Path, parse_file: Parse) -> None:
    made = Pdf()
    for words in (["The heron eats fish"], ["Other words"], ["The heron  eats fish"]):
        made.page(lines(words))
    (tmp_path / "a.pdf").write_bytes(made.data())
    parsed = parse_file(tmp_path / "a.pdf", "pdf")
    assert [cut.page for cut in parsed.passages] == [1, 2]
    assert len(parsed.pages) == 3
    assert parsed.warnings == [
        "Same text as an earlier page, under which it is found, on 1 of 3 pages: 3 (1)."
    ]


def test_output_without_end_is_refused(tmp_path: Path, parse_file: Parse) -> None:
    (tmp_path / "a.txt").write_text("heron waits " * 900_000, encoding="utf-8")
    with pytest.raises(Unreadable, match="more than 10,000,000 characters"):
        parse_file(tmp_path / "a.txt", "txt", ParseLimits())
