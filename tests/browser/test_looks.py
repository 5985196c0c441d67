"""Narrow and wide, light and dark, from right to left."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import HEIGHT


@pytest.mark.parametrize("width", [360, 390])
def test_on_a_phone_nothing_is_wider_than_the_screen(
    width: int, library: Any, visit: Callable[..., Any]
) -> None:
    library.ask(HEIGHT)
    phone = visit(library.page.url, width=width)
    expect(phone.questions).to_have_text([HEIGHT])
    right = "element => element.getBoundingClientRect().right"
    for part in ("history", "sources", "documents", "chat"):
        phone.go(part)
        assert phone.page.evaluate("document.documentElement.scrollWidth") <= width, part
        assert phone.page.evaluate("document.body.scrollWidth") <= width, part
        assert phone.page.locator(".pt-nav").evaluate(right) <= width - 4, part
    expect(phone.composer).to_be_in_viewport()


def test_on_a_phone_a_marker_brings_its_passage_to_the_front(
    library: Any, visit: Callable[..., Any]
) -> None:
    library.ask(HEIGHT)
    phone = visit(library.page.url, width=390)
    expect(phone.cards.first).not_to_be_visible()
    phone.markers.first.click()
    expect(phone.cards.first).to_be_in_viewport()
    phone.go("chat")
    expect(phone.answers.first).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_in_light_and_in_dark(
    scheme: str, library: Any, visit: Callable[..., Any]
) -> None:
    library.ask(HEIGHT)
    reader = visit(library.page.url, color_scheme=scheme)
    expect(reader.answers.first).to_be_visible()
    contrast = """([element, background]) => {
        const rgb = (color) => color.match(/[\\d.]+/g).slice(0, 3).map(Number);
        const light = (color) => rgb(color).map((v) => v / 255)
            .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
            .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
        const ink = light(getComputedStyle(document.querySelector(element)).color);
        const paper = light(getComputedStyle(document.querySelector(background)).backgroundColor);
        return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    }"""
    expect(reader.page.locator(".pt-card mark").first).to_be_attached()
    expect(reader.page.locator(".pt-legend li").first).to_be_attached()
    for element, background in (
        ("#pt-transcript .bot-row .md p", "body"),
        ("#pt-transcript .pt-figures", "body"),
        (".pt-question", ".pt-question"),
        (".pt-sources-of > .pt-card blockquote", ".pt-sources-of > .pt-card"),
        (".pt-card mark", ".pt-card mark"),
        (".pt-legend li", "body"),
    ):
        assert reader.page.evaluate(contrast, [element, background]) >= 4.5, element


def test_text_from_right_to_left_begins_on_the_right(library: Any) -> None:
    question = "كم يبلغ ارتفاع برج منارة سكاغن؟"
    library.ask(question)
    assert (
        library.questions.first.evaluate("element => getComputedStyle(element).direction") == "rtl"
    )
    assert library.page.locator(".pt-asked").evaluate(
        "element => getComputedStyle(element).direction"
    ) == ("rtl")


def test_the_page_does_not_jump_while_an_answer_comes_in(library: Any) -> None:
    """The composer stays where it is, and so do the question and the first line of its answer."""
    library.page.evaluate(
        """() => {
            const parts = {
                composer: "#pt-composer",
                question: "#pt-transcript .pt-question",
                answer: "#pt-transcript .bot-row .md p, #pt-live .md p",
            };
            window.tops = { composer: [], question: [], answer: [] };
            const look = () => {
                for (const [part, selector] of Object.entries(parts)) {
                    const seen = window.tops[part];
                    const shown = [...document.querySelectorAll(selector)].find(
                        (element) => element.innerText && element.offsetParent);
                    const top = shown ? Math.round(shown.getBoundingClientRect().top) : "gone";
                    if (seen.at(-1) !== top && (shown || seen.length)) seen.push(top);
                }
                requestAnimationFrame(look); // what every frame shows
            };
            look();
        }"""
    )
    library.ask(HEIGHT)
    places = library.page.evaluate("window.tops")
    assert {part: len(tops) for part, tops in places.items()} == dict.fromkeys(places, 1), places


def test_the_memory_bar_names_its_parts_and_says_ram_on_a_cpu(library: Any) -> None:
    memory = library.page.locator("#pt-memory")
    for part in ("RAM", "Weights", "Static prompt", "Sessions", "Cached", "Free pages"):
        expect(memory).to_contain_text(part)
    expect(memory).not_to_contain_text("VRAM")


def test_a_page_at_which_nothing_happens_is_not_drawn(browser: Browser, server: Any) -> None:
    """Drawing takes the cores that the engine computes on: a status line must not count frames."""
    page = browser.new_page()
    page.add_init_script(
        """(() => {
            window.frames_asked = 0;
            const frame = window.requestAnimationFrame.bind(window);
            window.requestAnimationFrame = (callback) => (window.frames_asked++, frame(callback));
        })()"""
    )
    page.goto(server.url)
    expect(page.locator("#pt-memory .pt-bar")).to_be_attached()
    asked = []
    for _ in range(8):  # the last of what a loaded machine brings late
        before = page.evaluate("window.frames_asked")
        page.wait_for_timeout(2_500)
        asked.append(page.evaluate("window.frames_asked") - before)
        if asked[-1] < 20:
            break
    page.close()
    assert asked[-1] < 20, "every frame of a screen would be 150"
