"""The documents' own sentences before the model's, and what each of its own is worth."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import HEIGHT

ELSEWHERE = "Who won the football world cup in 1998?"


@pytest.fixture
def quotes(library: Any) -> Any:
    return library.page.locator("#pt-transcript .pt-quote")


def answer_with(reader: Any, choice: str) -> None:
    """What an answer is made of, set in the drawer."""
    reader.page.locator("#pt-scope [data-drawer]").click()
    option = reader.page.locator("#pt-answer-with").get_by_label(choice)
    option.check()
    expect(option).to_be_checked()
    reader.page.keyboard.press("Escape")
    expect(reader.page.locator("#pt-drawer")).to_be_hidden()


def test_a_quotation_stands_above_the_answer_and_leads_to_its_marked_words(
    library: Any, quotes: Any
) -> None:
    library.limit(8)
    library.ask(HEIGHT)
    quote = quotes.filter(has_text="46 metres tall").first
    expect(quote).to_contain_text("The lighthouse of Skagen")
    expect(quote).to_contain_text("page 1")
    expect(library.figures.first).to_contain_text("quoted after")
    tops = [part.bounding_box()["y"] for part in (quote, library.answers.first)]
    assert tops == sorted(tops)

    library.go("documents")
    quote.click()
    current = library.page.locator("#pt-sources .pt-card[data-current]")
    expect(current).to_be_in_viewport()
    expect(current.locator("mark", has_text="46 metres tall")).to_be_visible()


def test_a_quotation_is_there_after_a_reload_and_on_a_phone(
    library: Any, quotes: Any, visit: Callable[..., Any]
) -> None:
    library.limit(8)
    library.ask(HEIGHT)
    shown = quotes.all_inner_texts()
    assert shown
    library.page.reload()
    expect(quotes).to_have_text(shown, use_inner_text=True)
    phone = visit(library.page.url, width=390)
    phone.page.locator("#pt-transcript .pt-quote", has_text="46 metres").click()
    current = phone.page.locator("#pt-sources .pt-card[data-current] mark", has_text="46 metres")
    expect(current).to_be_in_viewport()


def test_what_the_documents_do_not_hold_is_said_with_what_comes_closest(
    library: Any, quotes: Any
) -> None:
    library.ask(ELSEWHERE)
    expect(library.answers).to_have_text(["Nothing in the 2 documents searched answers this."])
    expect(quotes).to_have_count(1)
    closest = library.page.locator("#pt-transcript .pt-closest")
    expect(closest).to_contain_text("The closest sentence in the documents")
    expect(closest).to_contain_text("page 1")
    expect(library.figures).to_contain_text("the model was not asked")


def test_a_sentence_that_nothing_supports_is_marked_and_the_mark_explained(library: Any) -> None:
    library.ramble(48)
    library.ask(HEIGHT)
    mark = library.page.locator('#pt-transcript a[href*="#unsupported-"]').first
    expect(mark).to_have_text("?")
    expect(library.page.locator('.pt-note[id^="unsupported-"]')).to_contain_text("supports this")
    mark.click()
    expect(library.page.locator('.pt-note[id^="unsupported-"]')).to_be_in_viewport()


def test_quotations_only_leaves_the_model_alone(library: Any, quotes: Any) -> None:
    answer_with(library, "Quotations only")
    library.ask(HEIGHT)
    expect(quotes.filter(has_text="46 metres tall")).to_be_visible()
    expect(library.answers).to_have_count(0)
    expect(library.figures).to_contain_text("the model was not asked")
    quoted = quotes.count()

    answer_with(library, "The model's text only")
    library.limit(8)
    library.ask(HEIGHT)
    expect(library.answers).to_have_count(1)
    expect(quotes).to_have_count(quoted)
