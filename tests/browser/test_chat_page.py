"""The chat page: conversations, branches and settings."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.browser.conftest import ANSWER_MS, ARCHITECT, HEIGHT

COLOUR = "What colour is the bridge of Aarhus?"
LONG = "When was the lighthouse of Skagen built, by whom, and how tall is it?"


def test_a_conversation_is_found_by_what_was_said_in_it_and_renamed(short: Any) -> None:
    short.ask(COLOUR)
    search = short.page.locator("#pt-search input, #pt-search textarea")
    listed = short.page.locator("#pt-history .pt-open")
    search.fill("aarhus green")
    expect(listed.filter(has_text="What colour")).not_to_have_count(0)
    expect(listed.filter(has_text="How tall")).to_have_count(0)
    search.fill("no such words anywhere")
    expect(short.page.locator("#pt-history")).to_contain_text("No conversation holds")
    search.fill("")
    short.menu("What colour", "Rename").click()
    name = short.page.get_by_label("New name of the conversation")
    name.fill("Bridges & <b>towers</b>")
    name.press("Enter")
    expect(listed.first).to_contain_text("Bridges & <b>towers</b>")
    short.page.reload()
    expect(listed.first).to_contain_text("Bridges & <b>towers</b>")


def test_a_conversation_is_exported_as_markdown_and_as_json(short: Any) -> None:
    short.ask(HEIGHT)
    with short.page.expect_download() as markdown:
        short.menu("How tall", "Export as Markdown").click()
    text = Path(markdown.value.path()).read_text(encoding="utf-8")
    assert markdown.value.suggested_filename.startswith("How tall is the tower")
    assert HEIGHT in text
    assert "46 metres tall" in text
    assert "tokens reused" in text
    with short.page.expect_download() as exported:
        short.menu("How tall", "Export as JSON").click()
    turns = json.loads(Path(exported.value.path()).read_text(encoding="utf-8"))["turns"]
    assert turns[0]["question"] == HEIGHT
    assert turns[0]["stats"]["computed_tokens"] > 0


def test_a_retry_reuses_the_prompt_and_the_old_answer_stays_in_reach(short: Any) -> None:
    short.ask(HEIGHT)
    first = short.answers.first.inner_text()
    short.page.locator("[data-retry]").click()
    versions = short.page.locator(".pt-versions")
    expect(versions).to_contain_text("2/2", timeout=ANSWER_MS)
    expect(short.questions).to_have_text([HEIGHT])
    computed = int(re.search(r"([\d,]+) computed", short.figures.inner_text())[1])  # type: ignore[index]
    assert computed <= 32
    versions.get_by_label("Show the version before").click()
    expect(versions).to_contain_text("1/2")
    expect(short.answers.first).to_have_text(first, use_inner_text=True)
    expect(versions.get_by_label("Show the version before")).to_be_disabled()


def test_an_edited_question_goes_on_from_there_and_the_old_branch_is_kept(short: Any) -> None:
    short.ask(HEIGHT)
    short.ask(COLOUR)
    short.questions.first.hover()
    short.page.locator("[data-edit]").first.click()
    expect(short.composer).to_have_value(HEIGHT)
    expect(short.page.locator("#pt-banner")).to_contain_text("changing an earlier question")
    short.page.keyboard.press("Escape")
    expect(short.composer).to_have_value("")
    expect(short.page.locator("#pt-banner")).to_be_hidden()

    short.questions.first.hover()
    short.page.locator("[data-edit]").first.click()
    expect(short.composer).to_have_value(HEIGHT)
    short.send(ARCHITECT)
    expect(short.questions).to_have_text([ARCHITECT])
    versions = short.page.locator(".pt-versions")
    expect(versions).to_contain_text("2/2", timeout=ANSWER_MS)
    expect(short.page.locator("#pt-banner")).to_be_hidden()
    versions.get_by_label("Show the version before").click()
    expect(short.questions).to_have_text([HEIGHT, COLOUR])
    short.page.reload()
    expect(short.questions).to_have_text([HEIGHT, COLOUR])


def test_another_tab_follows_to_another_branch(short: Any, visit: Callable[..., Any]) -> None:
    short.ask(HEIGHT)
    other = visit(short.page.url)
    expect(other.questions).to_have_text([HEIGHT])
    short.page.locator("[data-retry]").click()
    expect(short.page.locator(".pt-versions")).to_contain_text("2/2", timeout=ANSWER_MS)
    expect(other.page.locator(".pt-versions")).to_contain_text("2/2")
    short.page.get_by_label("Show the version before").click()
    expect(other.page.locator(".pt-versions")).to_contain_text("1/2")


def test_escape_stops_the_answer_within_a_second(library: Any) -> None:
    """One of three times: the others may be when the machine does something else."""
    library.ramble()
    took = []
    for number in range(1, 4):
        library.send(LONG)
        expect(library.answers).to_have_count(number, timeout=ANSWER_MS)
        pressed = time.monotonic()
        library.page.keyboard.press("Escape")
        expect(library.page.locator(".pt-ending")).to_have_count(number)
        took.append(time.monotonic() - pressed)
        expect(library.page.locator(".pt-ending").last).to_have_text("stopped")
        expect(library.answers.last).not_to_be_empty()
        expect(library.send_button).to_be_visible()
        if took[-1] < 1:
            return
    raise AssertionError(f"Stopping took {took} seconds.")


def test_settings_hold_for_the_next_answer_and_stay_with_the_conversation(library: Any) -> None:
    library.limit(8)
    library.ask(LONG)
    expect(library.page.locator(".pt-ending")).to_have_text("cut short")
    library.page.reload()
    expect(library.questions).to_have_count(1)
    limit = library.page.locator("#pt-max-tokens input[type=number]")
    expect(limit).to_have_value("8")
    library.page.locator("#pt-new").click()
    expect(limit).to_have_value("256")


def test_a_follow_up_is_rewritten_where_that_is_chosen(library: Any) -> None:
    library.limit(8)
    library.ask(HEIGHT)
    always = library.page.locator("#pt-rewrite").get_by_label("Always")

    def open_drawer() -> None:
        library.page.locator("#pt-scope [data-drawer]").click()
        library.page.locator("#pt-drawer").get_by_text("More", exact=True).click()

    open_drawer()
    always.check()
    expect(always).to_be_checked()
    library.page.keyboard.press("Escape")
    expect(library.page.locator("#pt-drawer")).to_be_hidden()
    library.ask("And who was its architect?")
    expect(library.figures.nth(1)).to_contain_text("rewritten in")
    expect(library.figures.first).not_to_contain_text("rewritten in")
    library.figures.nth(1).click()
    expect(library.page.locator(".pt-spent").nth(1)).to_contain_text("Rewrite")
    library.page.reload()
    expect(library.questions).to_have_count(2)
    open_drawer()
    expect(always).to_be_checked()


def test_a_conversation_asks_the_documents_that_were_chosen(short: Any) -> None:
    scope = short.page.locator(".pt-scope")
    expect(scope).to_have_text("asks all documents")
    scope.click()
    short.page.locator("#pt-ask-documents input").click()
    short.page.get_by_role("option", name="The bridge of Aarhus").click()
    expect(scope).to_have_text("asks 1 document")
    short.page.keyboard.press("Escape")
    short.page.keyboard.press("Escape")
    expect(short.page.locator("#pt-drawer")).to_be_hidden()
    short.ask(COLOUR)
    also = short.page.locator(".pt-also summary")
    if also.count():
        also.click()
    assert {card.split("\n")[0] for card in short.cards.locator(".pt-title").all_inner_texts()} == {
        "The bridge of Aarhus"
    }
    short.page.reload()
    expect(scope).to_have_text("asks 1 document")


def test_a_suggested_question_is_asked_with_one_click(short: Any) -> None:
    suggested = short.page.locator("[data-suggest]", has_text=re.compile("lighthouse|keepers"))
    question = suggested.first.inner_text()
    short.page.get_by_role("button", name=question, exact=True).click()
    expect(short.questions).to_have_text([question])
    expect(short.figures).to_have_count(1, timeout=ANSWER_MS)
    expect(short.page.locator("[data-suggest]")).to_have_count(0)


def test_a_file_comes_in_while_an_answer_is_written(library: Any, tmp_path: Path) -> None:
    (tmp_path / "ferry.md").write_text("# The ferry\n\nIt sails at noon.", encoding="utf-8")
    library.ramble()
    library.send(LONG)
    expect(library.answers.first).not_to_be_empty(timeout=ANSWER_MS)
    library.add(tmp_path / "ferry.md")
    library.wait_for_document("ferry.md", "ready")
    written = len(library.answers.first.inner_text())
    library.page.wait_for_function(
        "length => document.querySelector('#pt-live .md').innerText.length > length",
        arg=written,
    )
    library.page.keyboard.press("Escape")  # does nothing if the model ended by itself just now
    expect(library.figures).to_have_count(1, timeout=ANSWER_MS)


def test_axe_finds_no_serious_fault_in_what_is_opened(short: Any) -> None:
    short.ask(HEIGHT)
    page = short.page

    def faults() -> list[str]:
        found = Axe().run(page).response["violations"]
        return [
            f"{fault['id']}: {[node['html'][:160] for node in fault['nodes'][:3]]}"
            for fault in found
            if fault["impact"] in ("serious", "critical")
        ]

    short.figures.first.click()
    short.questions.first.hover()
    page.locator("[data-edit]").click()
    expect(page.locator("#pt-banner")).to_be_visible()
    assert faults() == [], "the cost and an edit"
    page.locator("#pt-scope [data-drawer]").click()
    expect(page.locator("#pt-drawer")).to_be_visible()
    assert faults() == [], "the drawer"
    page.keyboard.press("Escape")
    entry = short.menu("How tall", "Rename")
    assert faults() == [], "the menu"
    entry.click()
    expect(page.get_by_label("New name of the conversation")).to_be_focused()
    assert faults() == [], "the dialog"
