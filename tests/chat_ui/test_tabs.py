"""What the server remembers of each tab, and what a tab says that it shows."""

from chat.options import AskOptions
from chat.ui.asking import Asking
from chat.ui.seen import Seen
from chat.ui.tabs import Tab, Tabs

HOW = Asking("How?", AskOptions())


def test_only_news_is_news() -> None:
    seen = Seen()
    assert seen.is_news("memory", "a")
    assert not seen.is_news("memory", "a")
    assert seen.is_news("memory", "b")
    assert seen.is_news("version", None), "nothing is not the same as never shown"


def test_what_a_browser_shows_comes_back_from_it() -> None:
    seen = Seen()
    seen.is_news("memory", "a")
    again = Seen.parse(seen.dump())
    assert not again.is_news("memory", "a")


def test_nonsense_from_a_browser_means_that_it_shows_nothing() -> None:
    for text in (None, "", "nonsense", "[1]"):
        assert Seen.parse(text).is_news("memory", "a")


def test_an_answer_streams_into_the_view_that_asked_and_into_no_other() -> None:
    tab = Tab()
    tab.streaming = tab.view
    assert tab.is_streaming
    tab.turn_to_another()
    assert not tab.is_streaming


def test_a_question_is_taken_once() -> None:
    tab = Tab(asking=HOW)
    assert tab.take() == HOW
    assert tab.take() is None


def test_tabs_are_apart_and_forgotten_when_closed() -> None:
    tabs = Tabs()
    tabs.of("a").search = "x"
    assert tabs.of("b").search == ""
    assert tabs.of("a").search == "x"
    tabs.forget("a")
    assert tabs.of("a").search == ""


def test_tabs_that_never_said_goodbye_do_not_pile_up() -> None:
    tabs = Tabs()
    tabs.of("first").search = "x"
    for number in range(1500):
        tabs.of(str(number))
    assert len(tabs) == 1000
    assert tabs.of("first").search == ""
