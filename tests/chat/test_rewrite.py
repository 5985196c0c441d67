"""A follow-up is made to stand alone by the model, searched beside the question, and shown."""

import threading
import time
from collections.abc import Iterator

import pytest

import chat.rewrite
from chat.context import Context
from chat.events import Event, Started
from chat.options import AskOptions
from chat.rewrite import usable
from chat.views import RewriteMode, TurnView
from engine import Engine
from tests.chat.conftest import SIZE_QUESTION, World, finished, first

FOLLOW_UP = "And for 2,048 tokens?"
ALONE = "How large is the KV cache of a 7B model for 2,048 tokens?"
CONTEXT = Context("a model", (), (), (SIZE_QUESTION,), (), "It is 0.50 GiB.")


def options(rewrite: RewriteMode) -> AskOptions:
    return AskOptions(max_tokens=12, passages=2, rewrite=rewrite)


@pytest.fixture(scope="module")
def asked(world: World) -> tuple[TurnView, TurnView]:
    one = world.ask(SIZE_QUESTION, options=options("on"))
    return one, world.ask(FOLLOW_UP, one.session, options("on"))


def test_a_follow_up_is_rewritten_and_a_first_question_is_not(
    asked: tuple[TurnView, TurnView],
) -> None:
    one, two = asked
    assert one.stats is not None
    assert two.stats is not None
    assert (one.stats.rewrite_s, one.rewritten) == (0, None)
    assert 0 < two.stats.rewrite_s < two.stats.evidence_s


def test_a_rewrite_touches_no_token_of_the_conversation_and_leaves_no_page(
    world: World, asked: tuple[TurnView, TurnView]
) -> None:
    one, two = asked
    assert two.stats is not None
    read = len(world.row(two.turn).prompt_tokens)
    assert two.stats.prompt_tokens == world.tokens(one.turn) + read
    # The end of the last answer is all of the conversation that is computed with the question.
    assert two.stats.computed_tokens <= read + 4
    assert not any(info.owner.startswith("rewrite") for info in world.engine.session_list())
    pages = world.engine.memory()
    world.ask("And why is that?", one.session, AskOptions(answer="evidence", rewrite="on"))
    assert world.engine.memory().pages_cached <= pages.pages_cached
    world.engine.check()


def test_a_small_model_is_asked_for_a_rewrite_only_where_it_is_wanted(
    world: World, asked: tuple[TurnView, TurnView], monkeypatch: pytest.MonkeyPatch
) -> None:
    def rewrite_s(mode: RewriteMode) -> float:
        turn = world.ask(FOLLOW_UP, asked[0].session, options(mode), instead_of=asked[1].turn)
        assert turn.stats is not None
        return turn.stats.rewrite_s

    assert rewrite_s("auto") == 0
    monkeypatch.setattr(Engine, "parameters", property(lambda _: 1_000_000_000))
    assert rewrite_s("auto") > 0
    assert rewrite_s("off") == 0


def test_what_was_searched_for_is_stored_with_the_turn(
    world: World, asked: tuple[TurnView, TurnView], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat.rewrite, "usable", lambda *_: ALONE)
    turn = world.ask(FOLLOW_UP, asked[0].session, options("on"), instead_of=asked[1].turn)
    assert turn.rewritten == turn.to_json()["rewritten"] == ALONE
    assert world.row(turn.turn).rewritten == ALONE
    assert any("0.50 GiB" in quote.text for quote in turn.evidence)


def test_a_wrong_rewrite_does_not_lead_search_away_from_the_question(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat.rewrite, "usable", lambda *_: "Who won the world cup in 2014?")
    one = world.ask("What does paging give?", options=options("off"))
    turn = world.ask(SIZE_QUESTION, one.session, options("on"))
    assert turn.answerable is True
    assert any("0.50 GiB" in quote.support_text for quote in turn.evidence)


def test_stop_ends_a_rewrite_too(
    world: World, asked: tuple[TurnView, TurnView], monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = "Write this a thousand times, separated by commas: page, page, page, page, page, page,"
    monkeypatch.setattr(chat.rewrite, "_message", lambda *_: pages)
    monkeypatch.setattr(chat.rewrite, "MOST_TOKENS", 4000)
    events = world.conversations.ask(
        FOLLOW_UP, session_id=asked[0].session, options=options("on"), instead_of=asked[1].turn
    )
    first(events, Started)
    ended: list[TurnView] = []
    thread = threading.Thread(target=lambda: ended.append(finished(events)))
    thread.start()
    until = time.monotonic() + 30
    while not any(info.busy for info in world.engine.session_list()) and time.monotonic() < until:
        time.sleep(0.005)
    world.conversations.stop(asked[0].session)
    thread.join(30)
    (turn,) = ended
    assert (turn.state, turn.answer, turn.rewritten) == ("stopped", "", None)
    assert not any(info.owner.startswith("rewrite") for info in world.engine.session_list())
    world.conversations.show(asked[0].session, asked[1].turn)


def test_stop_before_a_rewrite_begins_spares_it(world: World) -> None:
    one = world.ask(SIZE_QUESTION, options=options("off"))
    events: Iterator[Event] = world.conversations.ask(
        FOLLOW_UP, session_id=one.session, options=options("on")
    )
    first(events, Started)
    world.conversations.stop(one.session)
    turn = finished(events)
    assert (turn.state, turn.answer, turn.rewritten) == ("stopped", "", None)


@pytest.mark.parametrize("written", [ALONE, f" Understood alone: {ALONE}", f'"{ALONE}"'])
def test_a_question_made_of_the_conversations_words_is_used(written: str) -> None:
    assert usable(written, FOLLOW_UP, CONTEXT) == ALONE


@pytest.mark.parametrize(
    "written",
    ["", "  ", "Question:", FOLLOW_UP, SIZE_QUESTION.lower(), "It is 0.50 GiB.",
     "It is 1.00 GiB for 2,048 tokens.", "Which colours do the sails of old ships have?"],
)  # fmt: skip
def test_anything_else_is_not(written: str) -> None:
    assert usable(written, FOLLOW_UP, CONTEXT) is None
