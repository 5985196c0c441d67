"""The passages beside the answer."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from chat.ui.sources import Span, empty, marked, reading, sources
from chat.ui.text import escape
from chat.views import CitationView, TurnView, where

Make = Callable[..., CitationView]


def test_the_supporting_words_are_marked_in_the_passage(
    turn: Callable[..., TurnView], citation: Make
) -> None:
    shown = sources(turn(citations=(citation(),)))
    assert "<mark>A 7B model needs 512 KiB a token.</mark>" in shown
    assert "Sizes" in shown
    assert "page 3" in shown


def test_a_passage_that_supports_twice_is_shown_once(
    turn: Callable[..., TurnView], citation: Make
) -> None:
    shown = sources(turn(citations=(citation(), citation(support_start=100, support_end=105))))
    assert shown.count("<article") == 1
    assert shown.count("<mark>") == 2


def test_cited_passages_come_in_the_order_of_their_markers(
    turn: Callable[..., TurnView], citation: Make
) -> None:
    cited = tuple(citation(marker=f"[{n}]", title=f"Title {n}") for n in (10, 2, 1))
    shown = sources(turn(citations=cited))
    assert [shown.index(f"Title {n}<") for n in (1, 2, 10)] == sorted(
        shown.index(f"Title {n}<") for n in (1, 2, 10)
    )


def test_what_was_found_and_not_cited_is_apart_and_folded(
    turn: Callable[..., TurnView], citation: Make, found: Make
) -> None:
    shown = sources(turn(citations=(citation(),), retrieved=(found(title="Other"),)))
    cited, also = shown.split("<details")
    assert "Other" not in cited
    assert "Other" in also
    assert not also.startswith(' class="pt-also" open')
    assert "<mark>" not in also


def test_without_a_citation_the_found_passages_are_unfolded_and_the_reason_said(
    turn: Callable[..., TurnView], found: Make
) -> None:
    shown = sources(turn(retrieved=(found(),)))
    assert '<details class="pt-also" open' in shown
    assert "No passage supports" in shown
    assert "hold nothing" in sources(turn(finish_reason="not_found"))


def test_a_removed_document_is_marked_and_its_words_stay(
    turn: Callable[..., TurnView], citation: Make
) -> None:
    shown = sources(turn(citations=(citation(removed=True),)))
    assert ">removed<" in shown
    assert "512 KiB" in shown


def test_nothing_in_a_document_becomes_html(turn: Callable[..., TurnView], citation: Make) -> None:
    evil = citation(
        text="<script>x</script>",
        title='"><img src=x>',
        char_start=0,
        support_start=0,
        support_end=8,
    )
    shown = sources(turn(citations=(evil,), question="<i>?"))
    assert "<script" not in shown
    assert "<img" not in shown
    assert "<i>" not in shown
    assert "<mark>&lt;script&gt;</mark>" in shown


def test_the_found_passages_are_there_before_the_answer_is(found: Make) -> None:
    shown = reading("t1", "How large?", [found(), found()])
    assert shown.count("<article") == 2
    assert "2 passages found" in shown
    assert "found no passage" in reading("t1", "How large?", [])


def test_without_a_turn_the_panel_says_what_it_is_for() -> None:
    assert sources(None) == empty()


@given(
    st.text(max_size=40),
    st.lists(st.tuples(st.integers(-5, 50), st.integers(-5, 50)).map(lambda pair: Span(*pair))),
)
def test_marking_adds_marks_and_changes_no_letter(text: str, spans: list[Span]) -> None:
    shown = marked(text, spans)
    assert shown.replace("<mark>", "").replace("</mark>", "") == escape(text)
    inside = [
        index for index in range(len(text)) if any(span.start <= index < span.end for span in spans)
    ]
    words = sum(
        len(piece.split("</mark>")[0])
        for piece in marked("x" * len(text), spans).split("<mark>")[1:]
    )
    assert words == len(inside)


def test_a_page_is_named_as_it_is_printed_and_text_from_a_picture_is_said_to_be(
    turn: Callable[..., TurnView], citation: Make
) -> None:
    shown = sources(turn(citations=(citation(page_label="iii", ocr=True),)))
    assert "page iii (3 in the file)" in shown
    assert "read by OCR" in shown
    assert "read by OCR" not in sources(turn(citations=(citation(),)))


def test_a_chapter_or_a_sheet_is_called_by_its_name_instead_of_a_page(
    turn: Callable[..., TurnView], citation: Make
) -> None:
    shown = sources(turn(citations=(citation(page_label="“The ponds”"),)))
    assert '<span class="pt-where">“The ponds”</span>' in shown
    assert where(3, "“The ponds”", ocr=True) == "“The ponds”, read by OCR"


def test_a_name_is_text_and_no_part_of_an_address(
    turn: Callable[..., TurnView], citation: Make
) -> None:
    name = "\u202e../#a%2Fb\"'><b>.pdf"
    shown = sources(turn(citations=(citation(title=name, document="d1"),)), drawn={"d1"})
    assert escape(name) in shown
    assert "<b>" not in shown
    assert 'href="pages/d1/3.png?words=' in shown
