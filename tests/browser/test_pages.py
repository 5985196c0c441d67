"""The pages beside the chat: latency, memory and documents, as a person uses them."""

import csv
import io
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest
from playwright.sync_api import Page, Request, Route, expect

from tests.browser.conftest import ANSWER_MS

HEIGHT = "How tall is the tower of the lighthouse of Skagen?"
ARCHITECT = "Who was the architect of the lighthouse of Skagen?"
LONG = "When was the lighthouse of Skagen built, by whom, and how tall is it?"
# A directory as the browser hands it over in a drop: the system's own dragging cannot be had here.
DROP_FOLDER = """(files) => {
    const file = (name) => ({ name, isFile: true, isDirectory: false,
        file: (done) => done(new File([files[name]], name, { type: "text/markdown" })) });
    const folder = (name, inner) => ({ name, isFile: false, isDirectory: true,
        createReader: () => { const parts = [inner, []];
            return { readEntries: (done) => done(parts.shift()) }; } });
    const names = Object.keys(files);
    const tree = folder("notes", [file(names[0]), folder("inner", [file(names[1])]),
        folder(".git", [file(names[2])])]);
    const drop = new DragEvent("drop", { bubbles: true, cancelable: true });
    Object.defineProperty(drop, "dataTransfer",
        { value: { items: [{ webkitGetAsEntry: () => tree }], files: [] } });
    document.querySelector("#pt-library-upload button").dispatchEvent(drop);
}"""


def turn_to(page: Page, view: str) -> None:
    page.locator(f'a[data-view="{view}"]').click()


def last_part(address: str) -> str:
    return urlparse(address).path.rsplit("/", 1)[-1]


def rows(page: Page) -> list[str]:
    """The names in the documents table, as they stand there."""
    names = page.locator("#pt-library-table tbody tr:visible .pt-open-document")
    return names.all_inner_texts()


def row(page: Page, name: str) -> Any:
    return page.locator("#pt-library-table tbody tr").filter(has_text=name)


def add(page: Page, *paths: Path) -> None:
    page.set_input_files("#pt-library-upload input[type=file]", [str(path) for path in paths])
    expect(page.locator("#pt-library-outcomes li")).to_have_count(len(paths))


def ready(page: Page, name: str) -> Any:
    found = row(page, name)
    expect(found).to_have_attribute("data-stage", "ready", timeout=ANSWER_MS)
    return found


def open_document(page: Page, name: str) -> Any:
    row(page, name).locator(".pt-open-document").click()
    return page.locator("[data-reading]")


def test_every_page_has_an_address_and_back_goes_back(
    library: Any, visit: Callable[..., Any]
) -> None:
    page = library.page
    for view, part in (
        ("documents", "#pt-library"),
        ("latency", "#pt-latency"),
        ("memory", "#pt-memory-page"),
    ):
        turn_to(page, view)
        expect(page.locator(part)).to_be_visible()
        expect(page.locator(f'a[data-view="{view}"]')).to_have_attribute("aria-current", "page")
        expect(library.composer).not_to_be_visible()
    expect(page.locator(".pt-map i").first).to_be_visible()
    page.go_back()
    expect(page.locator("#pt-latency")).to_be_visible()
    page.goto(re.sub("view=[a-z]+", "view=memory", page.url))
    expect(page.locator(".pt-map i").first).to_be_visible()
    turn_to(page, "chat")
    expect(library.composer).to_be_visible()


def test_an_answer_is_written_on_while_another_page_is_looked_at(library: Any) -> None:
    page = library.page
    library.ramble()
    library.send(LONG)
    expect(library.answers.first).not_to_be_empty(timeout=ANSWER_MS)
    turn_to(page, "memory")
    expect(page.locator(".pt-map .pt-active").first).to_be_visible()
    expect(page.locator("[data-session]").filter(has_text="answering")).to_have_count(1)
    turn_to(page, "chat")
    written = len(library.answers.first.inner_text())
    page.wait_for_function(
        "length => document.querySelector('#pt-live .md').innerText.length > length",
        arg=written,
    )
    library.stop_button.click()
    expect(library.figures).to_have_count(1)


def test_the_latency_page_draws_every_turn_and_gives_them_as_csv(library: Any) -> None:
    page = library.page
    turn_to(page, "latency")
    expect(page.locator("#pt-latency")).to_contain_text("No conversation is open")
    turn_to(page, "chat")
    library.ask(HEIGHT)
    library.ask(ARCHITECT)
    turn_to(page, "latency")
    expect(page.locator("#pt-latency tbody tr")).to_have_count(2)
    expect(page.locator("#pt-latency .pt-plot svg")).to_have_count(4)
    expect(page.locator("#pt-latency tbody tr").nth(1)).to_contain_text(ARCHITECT)
    with page.expect_download() as download:
        page.get_by_text("Download as CSV").click()
    text = Path(download.value.path()).read_text(encoding="utf-8")
    first, second = csv.DictReader(io.StringIO(text))
    assert [first["question"], second["question"]] == [HEIGHT, ARCHITECT]
    assert int(second["cached_tokens"]) > int(first["cached_tokens"]) > 0
    assert float(first["total_s"]) > float(first["ttft_s"]) > 0
    assert int(first["prompt_tokens"]) == int(first["cached_tokens"]) + int(
        first["computed_tokens"]
    )


def test_the_memory_page_is_refreshed_each_second_and_only_while_it_is_open(
    library: Any,
) -> None:
    page = library.page
    asked: Counter[int] = Counter()

    def count(request: Request) -> None:
        if "/run/predict" in request.url:
            asked[(request.post_data_json or {}).get("fn_index")] += 1

    page.on("request", count)
    page.wait_for_timeout(3_000)
    of_the_chat = set(asked)
    turn_to(page, "memory")
    expect(page.locator(".pt-map i").first).to_be_visible()
    until = time.monotonic() + 30
    while max((asked[call] for call in set(asked) - of_the_chat), default=0) < 4:
        assert time.monotonic() < until, "the page was not refreshed"
        page.wait_for_timeout(100)
    turn_to(page, "chat")
    page.wait_for_timeout(1_000)
    asked.clear()
    page.wait_for_timeout(3_000)
    assert set(asked) <= of_the_chat


HIDE = "value => Object.defineProperty(document, 'hidden', {configurable: true, value})"


@pytest.mark.parametrize("view", ["chat", "latency", "memory", "documents"])
def test_a_hidden_page_asks_for_nothing(library: Any, view: str) -> None:
    page = library.page
    asked: Counter[str] = Counter()
    turn_to(page, view)
    page.wait_for_timeout(1_000)
    page.evaluate(HIDE, True)
    page.wait_for_timeout(1_000)  # what was asked before is answered
    page.on("request", lambda request: asked.update([last_part(request.url)]))
    page.wait_for_timeout(3_000)
    assert not asked
    page.evaluate(HIDE, False)
    call = "predict" if view == "memory" else "news"
    until = time.monotonic() + 30
    while not asked[call]:
        assert time.monotonic() < until, "nothing was asked for"
        page.wait_for_timeout(100)


def test_a_shown_page_on_which_nothing_happens_asks_for_news_alone(library: Any) -> None:
    page = library.page
    page.wait_for_timeout(2_000)  # what is shown was asked for, and is again a minute later
    asked: Counter[str] = Counter()
    page.on("request", lambda request: asked.update([last_part(request.url)]))
    until = time.monotonic() + 30
    while asked["news"] < 6:
        assert time.monotonic() < until, "nothing was asked for"
        page.wait_for_timeout(100)
    assert asked["predict"] <= 1


def test_a_conversation_gives_its_memory_back_and_goes_on(library: Any) -> None:
    page = library.page
    library.ask(HEIGHT)
    turn_to(page, "memory")
    held = page.locator("[data-session]").filter(has_text=HEIGHT).first
    expect(held).to_contain_text("idle")
    before = page.locator("[data-session]").count()
    held.get_by_role("button").click()
    expect(page.locator("[data-session]")).to_have_count(before - 1)
    turn_to(page, "chat")
    library.ask(ARCHITECT)
    expect(library.questions).to_have_count(2)


def test_the_calculator_begins_with_the_loaded_model_and_follows_its_inputs(library: Any) -> None:
    page = library.page
    page.set_viewport_size({"width": 390, "height": 844})
    turn_to(page, "memory")
    answer = page.locator("#pt-kv-size")
    field = page.locator(".pt-kv-form input")
    expect(answer).to_contain_text("GQA, 3 KV heads (as given above)")
    token = answer.locator('[data-attention="GQA"] [data-kv-dtype="bfloat16"] td').first
    expect(token).to_have_text("23,040 B")
    seven_b = {"tokens": 1024, "sessions": 1, "layers": 32, "heads": 32, "kv_heads": 32}
    for name, number in (seven_b | {"head_dim": 128, "memory": 16}).items():
        field.and_(page.locator(f'[name="{name}"]')).fill(str(number))
    article = answer.locator('[data-attention="MHA"] [data-kv-dtype="bfloat16"] td')
    expect(article).to_have_text(["524,288 B", "0.50 GiB", "0.50 GiB", "32,768", "32"])
    heads = field.and_(page.locator('[name="kv_heads"]'))
    heads.fill("5")
    expect(answer).to_contain_text("cannot share these KV heads evenly")
    heads.fill("8")
    turn_to(page, "chat")
    turn_to(page, "memory")
    expect(answer).to_contain_text("GQA, 8 KV heads (as given above)")
    expect(heads).to_have_value("8")
    wider = "page => page.scrollWidth > page.clientWidth + 1"
    assert not page.locator("#pt-memory-page").evaluate(wider)


def held_first(page: Page, address: str, text: str) -> list[Route]:
    """Keeps back the first call that holds the text: in the list, from when it is made."""
    held: list[Route] = []

    def hold(route: Route) -> None:
        if not held and text in (route.request.post_data or "").replace("\\", ""):
            held.append(route)
        else:
            route.continue_()

    page.route(address, hold)
    return held


def let_go(page: Page, held: list[Route]) -> None:
    page.wait_for_timeout(1_000)  # so that whatever does not wait for it comes before it
    held[0].continue_()


def test_the_calculator_answers_the_last_of_its_inputs_whichever_takes_longest(
    library: Any,
) -> None:
    page = library.page
    turn_to(page, "memory")
    answer = page.locator("#pt-kv-size")
    heads = page.locator('.pt-kv-form input[name="kv_heads"]')
    expect(answer).to_contain_text("GQA, 3 KV heads (as given above)")
    held = held_first(page, "**/run/predict**", '"kv_heads":"5"')
    with page.expect_request(lambda asked: "kv_heads" in (asked.post_data or "")):
        heads.fill("5")
    heads.fill("1")
    let_go(page, held)
    expect(answer).to_contain_text("MQA, 1 KV head (as given above)")
    page.wait_for_timeout(1_000)
    expect(answer).to_contain_text("MQA, 1 KV head (as given above)")


def test_of_two_documents_that_are_opened_at_once_the_last_is_read(library: Any) -> None:
    page = library.page
    turn_to(page, "documents")
    last = row(page, "bridge.html")
    held = held_first(page, "**/queue/join**", '"document"')
    with page.expect_request(lambda asked: "document" in (asked.post_data or "")):
        row(page, "lighthouse.md").locator(".pt-open-document").click()
    last.locator(".pt-open-document").click()
    let_go(page, held)
    shown = page.locator("[data-reading]")
    expect(shown).to_have_attribute("data-reading", last.get_attribute("data-document") or "")


def test_of_two_turns_whose_sources_are_opened_at_once_the_last_ones_are_shown(
    library: Any,
) -> None:
    page = library.page
    for question in (HEIGHT, ARCHITECT, LONG):
        library.ask(question)
    first, second, _ = counts = page.locator("#pt-transcript button[data-turn]").all()
    assert len(counts) == 3
    turn = first.get_attribute("data-turn") or ""
    held = held_first(page, "**/run/predict**", turn)
    with page.expect_request(lambda asked: turn in (asked.post_data or "")):
        first.click()
    second.click()
    let_go(page, held)
    last = second.get_attribute("data-turn")
    expect(page.locator(f'#pt-sources [data-shown-turn="{last}"]').first).to_be_visible()


def test_a_folder_is_added_and_its_documents_are_found_sorted_and_read(
    library: Any, tmp_path: Path
) -> None:
    page = library.page
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    (folder / "alpha.md").write_text("# Alpha mill\n\nIt grinds rye.", encoding="utf-8")
    long = "# Zeta mill\n\n" + "It grinds wheat, and it does so every day. " * 60
    (folder / "inner" / "zeta.md").write_text(long, encoding="utf-8")
    turn_to(page, "documents")
    with page.expect_file_chooser() as chooser:
        page.locator("#pt-library-folder").click()
    chooser.value.set_files(folder)
    expect(page.locator("#pt-library-outcomes li")).to_have_count(2)
    ready(page, "alpha.md")
    ready(page, "zeta.md")
    search = page.locator("#pt-library-find").locator("textarea, input").last
    search.fill("mill")
    expect(page.locator("#pt-library-table tbody tr:visible")).to_have_count(2)
    page.locator('[data-sort="name"]').click()
    assert rows(page) == ["Alpha mill", "Zeta mill"]
    page.locator('[data-sort="size"]').click()
    page.locator('[data-sort="size"]').click()
    assert rows(page) == ["Zeta mill", "Alpha mill"]
    expect(page.locator('th[data-column="size"]')).to_have_attribute("aria-sort", "descending")
    search.fill("no such thing")
    expect(page.get_by_text("No document matches.")).to_be_visible()
    search.fill("alpha")
    reading = open_document(page, "Alpha mill")
    expect(reading.locator(".pt-text")).to_have_text("# Alpha mill\n\nIt grinds rye.")


def test_a_dropped_folder_brings_its_files_and_leaves_hidden_ones(library: Any) -> None:
    page = library.page
    turn_to(page, "documents")
    expect(page.locator("#pt-library-upload button")).to_be_visible()
    page.evaluate(
        DROP_FOLDER,
        {
            "quay.md": "# The quay\n\nThe quay is long.",
            "crane.md": "# The crane\n\nThe crane is tall.",
            "config.md": "# Hidden\n\nNot meant.",
        },
    )
    expect(page.locator("#pt-library-outcomes li")).to_have_count(2)
    ready(page, "quay.md")
    ready(page, "crane.md")
    expect(row(page, "config.md")).to_have_count(0)


def test_a_file_that_is_there_under_another_name_is_called_a_duplicate(
    library: Any, tmp_path: Path
) -> None:
    page = library.page
    for name in ("windmill.md", "copy.md"):
        (tmp_path / name).write_text("# Windmill\n\nOne of a kind.", encoding="utf-8")
    (tmp_path / "empty.md").touch()
    turn_to(page, "documents")
    add(page, tmp_path / "windmill.md")
    ready(page, "windmill.md")
    add(page, tmp_path / "copy.md", tmp_path / "empty.md")
    outcomes = page.locator("#pt-library-outcomes")
    expect(outcomes).to_contain_text("copy.md: already in the library, as windmill.md")
    expect(outcomes).to_contain_text("empty.md: refused. The file is empty")


def test_a_document_is_indexed_again_and_removed_after_saying_what_that_means(
    library: Any, tmp_path: Path
) -> None:
    page = library.page
    (tmp_path / "ferry.md").write_text(
        "# The ferry\n\nThe ferry of Mols takes 75 minutes to Aarhus.", encoding="utf-8"
    )
    turn_to(page, "documents")
    add(page, tmp_path / "ferry.md")
    ready(page, "ferry.md")
    turn_to(page, "chat")
    library.ask("How many minutes does the ferry of Mols take to Aarhus?")
    turn_to(page, "documents")
    reading = open_document(page, "The ferry")
    reading.get_by_text("Index again").click()
    ready(page, "ferry.md")
    reading = open_document(page, "The ferry")
    expect(reading.locator(".pt-text")).to_contain_text("75 minutes")
    reading.get_by_text("Remove", exact=True).click()
    expect(reading.locator(".pt-sure")).to_contain_text("deletes the copy of ferry.md")
    expect(reading.locator(".pt-sure")).to_contain_text("conversation quotes it")
    reading.get_by_text("Keep it").click()
    expect(reading.locator(".pt-sure")).not_to_be_visible()
    reading.get_by_text("Remove", exact=True).click()
    reading.get_by_text("Remove for good").click()
    expect(row(page, "ferry.md")).to_have_count(0)
    expect(reading).to_have_count(0)


def test_what_is_asked_about_a_document_stays_asked_while_it_changes(
    library: Any, tmp_path: Path
) -> None:
    page = library.page
    text = "# The quarry\n\n" + "The quarry of Bornholm gives granite to the harbours. " * 400
    (tmp_path / "quarry.md").write_text(text, encoding="utf-8")
    turn_to(page, "documents")
    add(page, tmp_path / "quarry.md")
    reading = open_document(page, "The quarry")
    reading.get_by_text("Remove", exact=True).click()
    sure = reading.locator(".pt-sure")
    expect(sure).to_be_visible()
    ready(page, "quarry.md")
    expect(reading.locator(".pt-text")).to_contain_text("granite")  # drawn anew, and more than once
    expect(sure).to_be_visible()
    reading.get_by_text("Index again").click()
    expect(sure).to_be_hidden()
    reading.get_by_text("Close").click()
    ready(page, "quarry.md")
    expect(reading).to_have_count(0)
    remove = library.documents.filter(has_text="The quarry").locator("[data-remove]")
    turn_to(page, "chat")
    library.go("documents")
    remove.click()
    expect(remove).to_have_text("Remove?")
    (tmp_path / "pier.md").write_text("# The pier\n\nIt is long.", encoding="utf-8")
    page.set_input_files("#pt-upload input[type=file]", str(tmp_path / "pier.md"))
    library.wait_for_document("pier.md", "ready")
    expect(remove).to_have_text("Remove?")
    library.page.locator("#pt-memory").click()
    expect(remove).to_have_text("")
    library.remove_document("quarry.md")


@pytest.mark.parametrize("width", [360, 390, 1920])
def test_no_page_is_wider_than_the_screen(
    width: int, library: Any, visit: Callable[..., Any]
) -> None:
    reader = visit(library.page.url, width=width)
    for view in ("documents", "latency", "memory", "chat"):
        turn_to(reader.page, view)
        reader.page.wait_for_timeout(300)
        assert reader.page.evaluate("document.documentElement.scrollWidth") <= width, view
        wider = reader.page.evaluate(
            "() => [...document.querySelectorAll('.pt-page')].some("
            "page => page.scrollWidth > page.clientWidth + 1)"
        )
        assert not wider, view


def test_the_pages_are_chinese_for_a_chinese_browser(
    library: Any, visit: Callable[..., Any]
) -> None:
    reader = visit(library.page.url, locale="zh-CN")
    page = reader.page
    for view, words in (
        ("documents", "您的文档"),
        ("latency", "每一轮的开销"),
        ("memory", "内存去向"),
    ):
        turn_to(page, view)
        expect(page.locator(".pt-page:visible")).to_contain_text(words)
        shown = page.locator(".pt-page:visible").inner_text()
        for english in ("Your documents", "Where the memory is", "Pages of", "Add a folder"):
            assert english not in shown


def test_the_chat_is_where_it_was_left(library: Any) -> None:
    """A short window, so that two answers are more than it holds."""
    page = library.page
    library.ask(HEIGHT)
    library.ask(ARCHITECT)
    page.set_viewport_size({"width": 1280, "height": 330})
    where = "document.querySelector('#pt-scroll').scrollTop"
    page.evaluate(f"{where} = 100000")
    end = page.evaluate(where)
    assert end > 10
    turn_to(page, "memory")
    turn_to(page, "chat")
    page.wait_for_function(f"end => Math.abs({where} - end) < 40", arg=end)
