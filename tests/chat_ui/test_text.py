"""Text of documents and models reaches the page without becoming part of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat.ui.text import escape, safe_markdown


def test_tags_are_shown_and_not_obeyed() -> None:
    assert safe_markdown("<script>alert(1)</script>") == "&lt;script>alert(1)&lt;/script>"


def test_a_picture_becomes_the_text_that_asks_for_it() -> None:
    assert safe_markdown("see ![x](http://example.com/a.png)").startswith("see !\\[x]")
    assert "![" not in safe_markdown("![x][ref] and ![y]")


def test_a_reference_cannot_be_defined_out_of_sight() -> None:
    assert safe_markdown("[ref]: http://example.com/a.png").startswith("\\[ref]:")


def test_what_looks_like_an_entity_is_read_as_it_was_written() -> None:
    assert safe_markdown("R&amp;D &lt;b>") == "R&amp;amp;D &amp;lt;b>"


@pytest.mark.parametrize("fence", ["```", "~~~", "````"])
def test_code_in_fences_is_left_alone(fence: str) -> None:
    text = f"Before <b>\n{fence}python\nif a < b:  # ![x](y) [1]\n    pass\n{fence}\nafter <b>"
    lines = safe_markdown(text, {"[1]": "#source"}).splitlines()
    assert lines[0] == "Before &lt;b>"
    assert lines[2] == "if a < b:  # ![x](y) [1]"
    assert lines[-1] == "after &lt;b>"


def test_a_fence_that_is_still_being_written_is_code_to_its_end() -> None:
    assert safe_markdown("```\na < b\n<c>").endswith("a < b\n<c>")


def test_a_longer_fence_is_not_closed_by_a_shorter_one() -> None:
    assert safe_markdown("````\n```\n<a>\n````\n<b>").splitlines() == [
        "````",
        "```",
        "<a>",
        "````",
        "&lt;b>",
    ]


def test_code_inside_a_line_is_left_alone() -> None:
    assert safe_markdown("`a < b` <i> ``x ` <y``") == "`a < b` &lt;i> ``x ` <y``"


def test_code_inside_a_line_does_not_reach_into_the_next() -> None:
    assert safe_markdown("`one\n<img src=x>`") == "`one\n&lt;img src=x>`"


def test_diagrams_are_shown_as_code_and_not_drawn() -> None:
    assert safe_markdown("```mermaid\n<img src=x>\n```") == "```\n<img src=x>\n```"


def test_markers_lead_to_their_sources_and_other_brackets_stay() -> None:
    links = {"[1]": "#source-t-1"}
    assert safe_markdown("So. [1] Or [2], a[1] `[1]`", links) == (
        "So. [1](#source-t-1) Or [2], a[1](#source-t-1) `[1]`"
    )


@given(st.text(st.characters(exclude_characters="`~"), max_size=200))
def test_prose_never_holds_a_tag_or_a_picture(text: str) -> None:
    shown = safe_markdown(text)
    assert "<" not in shown
    assert "![" not in shown


@given(st.text(max_size=80), st.text(max_size=80))
def test_more_text_only_adds_to_what_is_shown_of_whole_lines(before: str, after: str) -> None:
    """What streams in is sent as an addition, so lines that are done must not change."""
    assert safe_markdown(f"{before}\n{after}").startswith(safe_markdown(before))


def test_escaped_text_is_safe_in_attributes() -> None:
    assert escape("\"><b onclick='x'>") == "&quot;&gt;&lt;b onclick=&#x27;x&#x27;&gt;"
