"""Ask, read along, look at the sources, stop, come back."""

import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

from tests.browser.conftest import ANSWER_MS, HEIGHT

LONG = "When was the lighthouse of Skagen built, by whom, and how tall is it?"


def test_an_answer_streams_in_with_its_sources_marked_and_its_cost_below(library: Any) -> None:
    library.send(HEIGHT)
    expect(library.questions).to_have_text([HEIGHT])
    expect(library.composer).to_have_value("")
    expect(library.cards.first).to_be_visible()  # what search found, before the answer is there
    expect(library.answers.first).not_to_be_empty(timeout=ANSWER_MS)
    expect(library.figures).to_have_count(1, timeout=ANSWER_MS)
    expect(library.answers.first).to_contain_text("46")
    expect(library.figures.first).to_contain_text("reused")
    expect(library.figures.first).to_contain_text("computed")
    expect(library.figures.first).to_contain_text("first token")
    expect(library.figures.first).to_contain_text("KV")
    cited = library.page.locator("#pt-sources .pt-card", has=library.page.locator("mark")).first
    expect(cited).to_contain_text("The lighthouse of Skagen")
    expect(cited.locator("mark").first).to_contain_text("46 metres tall")


def test_a_marker_leads_to_its_passage_and_a_count_to_the_sources_of_its_turn(
    library: Any,
) -> None:
    library.ask(HEIGHT)
    library.ask("What colour is the bridge of Aarhus?")
    shown = library.page.locator("[data-shown-turn] .pt-asked")
    expect(shown).to_have_text("What colour is the bridge of Aarhus?")
    library.markers.first.click()
    expect(shown).to_have_text(HEIGHT)
    current = library.page.locator(".pt-card[data-current]")
    expect(current).to_have_count(1)
    expect(current).to_be_in_viewport()
    expect(current.locator("mark").first).to_contain_text("46 metres")
    library.go("documents")
    library.page.locator("#pt-transcript .pt-count").nth(1).click()
    expect(shown).to_be_visible()
    expect(shown).to_have_text("What colour is the bridge of Aarhus?")


def test_a_second_turn_computes_its_own_tokens_only(library: Any) -> None:
    library.ask(HEIGHT)
    library.ask("Who was the architect of the lighthouse of Skagen?")
    first, second = (
        int(text.split(" reused")[0].replace(",", "")) for text in library.figures.all_inner_texts()
    )
    assert second > first > 0  # the static prompt at first, then the whole first turn as well


def test_stop_keeps_the_text_and_the_conversation_goes_on(library: Any) -> None:
    library.ramble()
    library.send(LONG)
    expect(library.answers.first).to_contain_text(re.compile(r"\w{3}"), timeout=ANSWER_MS)
    library.stop_button.click()
    expect(library.page.locator(".pt-ending")).to_have_text("stopped")
    expect(library.answers.first).not_to_be_empty()
    expect(library.send_button).to_be_visible()
    library.limit(24)
    library.ask(HEIGHT)
    expect(library.questions).to_have_count(2)


def test_a_reload_shows_the_conversation_again(library: Any) -> None:
    library.ask(HEIGHT)
    answer = library.answers.first.inner_text()
    library.page.reload()
    expect(library.questions).to_have_text([HEIGHT])
    expect(library.answers.first).to_have_text(answer, use_inner_text=True)
    expect(library.figures).to_have_count(1)
    expect(library.cards.first).to_be_visible()


def test_a_reload_in_mid_answer_keeps_what_was_written_and_marks_it(library: Any) -> None:
    library.ramble()
    library.send(LONG)
    expect(library.answers.first).to_contain_text(" ", timeout=ANSWER_MS)
    library.page.wait_for_timeout(600)
    library.page.reload()
    expect(library.questions).to_have_text([LONG])
    expect(library.page.locator(".pt-ending")).to_be_visible()
    expect(library.answers.first).not_to_be_empty()
    expect(library.send_button).to_be_visible()


def test_another_tab_shows_the_conversation_and_follows_it(
    library: Any, visit: Callable[..., Any]
) -> None:
    library.ask(HEIGHT)
    other = visit(library.page.url)
    expect(other.questions).to_have_text([HEIGHT])
    library.ask("Who was the architect of the lighthouse of Skagen?")
    expect(other.questions).to_have_count(2)
    expect(other.figures).to_have_count(2)


def test_an_answer_goes_on_while_another_conversation_is_looked_at(library: Any) -> None:
    question = "How many keepers lived in the lighthouse of Skagen until 1923?"
    library.ramble(128)
    library.send(question)
    expect(library.answers.first).not_to_be_empty(timeout=ANSWER_MS)
    library.page.locator("#pt-new").click()
    expect(library.questions).to_have_count(0)
    library.page.wait_for_timeout(500)
    expect(library.questions).to_have_count(0)  # nothing of the other one comes in here
    library.page.locator(".pt-open", has_text="How many keepers").click()
    expect(library.questions).to_have_text([question])
    expect(library.figures).to_have_count(1, timeout=ANSWER_MS)
    expect(library.page.locator(".pt-ending", has_text="stopped")).to_have_count(0)


def test_conversations_are_listed_and_deleted_after_a_second_click(library: Any) -> None:
    library.ask("When was the bridge of Aarhus opened?")
    title = library.page.locator(".pt-list li", has_text="When was the bridge")
    expect(title.first).to_be_visible()
    count = title.count()
    library.menu("When was the bridge", "Delete").click()
    expect(title).to_have_count(count)
    library.page.get_by_role("menuitem", name="Delete for good?").click()
    expect(title).to_have_count(count - 1)
    expect(library.questions).to_have_count(0)
    assert "c=" not in library.page.url


def test_enter_sends_and_shift_enter_breaks_the_line(library: Any) -> None:
    library.composer.fill("first")
    library.composer.press("Shift+Enter")
    library.composer.type("second")
    expect(library.composer).to_have_value("first\nsecond")
    expect(library.questions).to_have_count(0)


def test_a_blank_question_is_not_sent(library: Any) -> None:
    library.send("   ")
    expect(library.toasts).to_contain_text("Type a question first")
    expect(library.questions).to_have_count(0)


def test_a_question_that_is_too_long_comes_back_with_the_numbers(library: Any) -> None:
    question = "lighthouse " * 9000
    library.send(question)
    expect(library.toasts).to_contain_text("tokens")
    expect(library.composer).to_have_value(question.strip() + " ")
    expect(library.questions).to_have_count(0)
    expect(library.send_button).to_be_visible()


def test_an_unknown_conversation_is_an_empty_one(visit: Callable[..., Any], server: Any) -> None:
    reader = visit(f"{server.url}/?c=nosuchconversation")
    expect(reader.questions).to_have_count(0)
    expect(reader.send_button).to_be_visible()


def test_after_a_restart_the_conversation_is_there_and_goes_on(library: Any, server: Any) -> None:
    """In the tab that stayed open, and in one that is opened afterwards."""
    library.ask(HEIGHT)
    address = library.page.url
    with library.page.expect_event("load", timeout=60_000):  # it comes back by itself
        server.stop()
        server.start()
    expect(library.questions).to_have_text([HEIGHT])
    library.ask("Who was the architect of the lighthouse of Skagen?")
    expect(library.questions).to_have_count(2)
    library.open(address)
    expect(library.questions).to_have_count(2)
    library.ask("How many keepers lived in the lighthouse of Skagen?")
    expect(library.questions).to_have_count(3)
