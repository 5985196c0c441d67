"""What the documents page draws: the table, a document's text, and what became of files."""

from collections.abc import Callable

from chat.ui.i18n import EN, ZH
from chat.ui.library_table import document_text, library_table, outcomes
from chat.ui.uploads import Outcome
from chat.views import Quotes
from retrieval.views import DocumentView

MakeDocument = Callable[..., DocumentView]
NONE = Quotes(0, 0)


def test_a_row_holds_what_it_is_sorted_and_found_by(document: MakeDocument) -> None:
    shown = library_table([document()], EN)
    for data in ('data-pages="12"', 'data-passages="34"', 'data-size="1234567"'):
        assert data in shown
    assert 'data-find="sizes sizes.pdf pdf"' in shown
    assert "1.2 MB" in shown
    assert "2026-01-02" in shown


def test_a_document_in_work_says_its_stage_and_how_far_it_is(document: MakeDocument) -> None:
    shown = library_table([document(state="embedding", passages_done=12)], EN)
    assert "indexing · 12 of 34 passages" in shown
    assert "left" not in shown
    assert '<progress max="34" value="12"' in shown
    working = document(state="embedding", passages_done=12, seconds_left=21.4)
    assert "indexing · 12 of 34 passages · about 20 s left" in library_table([working], EN)
    assert "大约还需 20 s" in library_table([working], ZH)
    assert "reading…" in library_table([document(state="parsing", passages=0)], EN)


def test_a_refused_document_says_why_and_remarks_are_shown(document: MakeDocument) -> None:
    assert "The file is &lt;empty&gt;." in library_table(
        [document(state="refused", reason="The file is <empty>.")], EN
    )
    assert "Page 3 has no text." in library_table([document(warnings=("Page 3 has no text.",))], EN)


def test_names_and_text_cannot_reach_out_of_their_place(document: MakeDocument) -> None:
    evil = document(name='"><script>', title="<b>")
    assert "<script" not in library_table([evil], EN)
    shown = document_text(evil, 1, "</pre><script>", NONE, EN)
    assert "<script" not in shown
    assert "&lt;/pre&gt;&lt;script&gt;" in shown


def test_the_text_is_turned_page_by_page(document: MakeDocument) -> None:
    first = document_text(document(), 1, "One", NONE, EN)
    last = document_text(document(), 12, "Twelve", NONE, EN)
    assert "Page 1 of 12" in first
    assert 'data-page="2" aria-label="Next page">' in first
    assert 'data-page="0" aria-label="Page before" disabled>' in first
    assert 'data-page="13" aria-label="Next page" disabled>' in last


def test_a_page_without_text_says_so(document: MakeDocument) -> None:
    assert "This page has no text." in document_text(document(), 3, " \n", NONE, EN)
    waiting = document(state="queued", pages=0, passages=0)
    assert "once the file was read" in document_text(waiting, 1, None, NONE, EN)


def test_removing_says_what_goes_and_what_conversations_keep(document: MakeDocument) -> None:
    shown = document_text(document(), 1, "", Quotes(2, 5), EN)
    assert "This deletes the copy of sizes.pdf (1.2 MB), 34 passages" in shown
    assert "2 conversations quote it: what was quoted stays there" in shown
    assert "No conversation quotes it." in document_text(document(), 1, "", NONE, EN)


def test_a_shared_document_is_shown_as_one_and_offers_no_change(document: MakeDocument) -> None:
    shared = document(owner="shared")
    assert "shared" in library_table([shared], EN)
    shown = document_text(shared, 1, "", NONE, EN)
    assert "data-again" not in shown
    assert "data-remove-document" not in shown


def test_a_refused_document_offers_to_try_again_where_its_copy_was_kept(
    document: MakeDocument,
) -> None:
    assert "Index again" in document_text(document(), 1, "", NONE, EN)
    refused = document_text(document(state="refused"), 1, None, NONE, EN)
    assert "data-again" in refused
    assert "Try again" in refused
    gone = document(state="refused", kept=False)
    assert "data-again" not in document_text(gone, 1, None, NONE, EN)


def test_a_document_that_is_indexed_again_stays_ready_and_says_so(document: MakeDocument) -> None:
    shown = document_text(document(again="parsing"), 1, "Text.", NONE, EN)
    assert "pt-badge pt-ready" in shown
    assert "is being indexed again" in shown
    assert "data-unsettled" in shown
    assert "data-again" not in shown


def test_every_added_file_is_named_with_what_became_of_it(document: MakeDocument) -> None:
    shown = outcomes(
        [
            Outcome("new.md", document(name="new.md", state="queued")),
            Outcome("copy.pdf", document(duplicate=True)),
            Outcome("empty.md", document(state="refused", reason="It is empty.")),
            Outcome("gone.md", problem="There is no file gone.md."),
        ],
        EN,
    )
    assert "new.md: added" in shown
    assert "copy.pdf: already in the library, as sizes.pdf" in shown
    assert "empty.md: refused. It is empty." in shown
    assert "gone.md: refused. There is no file gone.md." in shown


def test_the_table_is_there_in_chinese(document: MakeDocument) -> None:
    shown = library_table([document()], ZH)
    for words in ("名称", "段落", "就绪"):
        assert words in shown
