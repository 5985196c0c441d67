"""Retry, edit and branch: nothing before the change is computed again, and nothing is lost."""

import pytest

from chat.errors import SessionNotFound, TurnNotFound, TurnRunning
from chat.options import AskOptions
from tests.chat.conftest import PAGE_QUESTION, SHORT, SIZE_QUESTION, World, finished

SAMPLED = AskOptions(max_tokens=24, passages=2, temperature=1.5, seed=3)


def _retry(world: World, turn: str, session: str, options: AskOptions = SHORT, question=None):  # type: ignore[no-untyped-def]
    old = next(t for t in world.conversations.turns(session) if t.turn == turn)
    events = world.conversations.ask(
        question or old.question, session_id=session, options=options, instead_of=turn
    )
    return finished(events)


def test_a_retry_computes_one_token_and_keeps_the_old_answer_in_reach(world: World) -> None:
    one = world.ask(SIZE_QUESTION)
    two = world.ask(PAGE_QUESTION, one.session)
    again = _retry(world, two.turn, one.session, SAMPLED)
    assert again.stats is not None
    assert two.stats is not None
    assert again.stats.prompt_tokens == two.stats.prompt_tokens
    assert again.stats.computed_tokens <= 16  # at most what is left of a page
    assert again.versions == (two.turn, again.turn)
    shown = world.conversations.turns(one.session)
    assert [turn.turn for turn in shown] == [one.turn, again.turn]
    assert shown[-1] == again
    world.conversations.show(one.session, two.turn)
    assert [turn.answer for turn in world.conversations.turns(one.session)] == [
        one.answer,
        two.answer,
    ]


def test_an_edit_of_the_first_question_keeps_the_static_prompt_only(world: World) -> None:
    one = world.ask(SIZE_QUESTION)
    world.ask(PAGE_QUESTION, one.session)
    edited = _retry(world, one.turn, one.session, question="What does a page hold?")
    assert edited.question == "What does a page hold?"
    assert edited.versions == (one.turn, edited.turn)
    assert [t.turn for t in world.conversations.turns(one.session)] == [edited.turn]
    tokens = world.row(edited.turn).prompt_tokens
    assert edited.stats is not None
    assert edited.stats.prompt_tokens == len(world.engine.static_tokens) + len(tokens)


def test_going_back_to_a_branch_finds_its_kv_and_goes_on_from_its_newest_end(world: World) -> None:
    one = world.ask(SIZE_QUESTION)
    two = world.ask(PAGE_QUESTION, one.session)
    _retry(world, one.turn, one.session, question="What does a page hold?")
    world.conversations.show(one.session, one.turn)
    assert [t.turn for t in world.conversations.turns(one.session)] == [one.turn, two.turn]
    three = world.ask("Why is that?", one.session)
    assert three.stats is not None
    before = world.tokens(one.turn, two.turn)
    assert three.stats.cached_tokens > before - 16 - 8  # the branch, but for its last page
    assert three.stats.prompt_tokens == world.tokens(one.turn, two.turn) + len(
        world.row(three.turn).prompt_tokens
    )


def test_what_cannot_be_branched_is_refused_and_changes_nothing(world: World) -> None:
    one = world.ask(SIZE_QUESTION)
    other = world.ask(PAGE_QUESTION)
    before = world.conversations.turns(one.session)
    with pytest.raises(TurnNotFound):
        world.conversations.ask("Why?", session_id=one.session, instead_of=other.turn)
    with pytest.raises(TurnNotFound):
        world.conversations.show(one.session, other.turn)
    with pytest.raises(SessionNotFound):
        world.conversations.show(one.session, one.turn, owner="someone else")
    running = world.conversations.ask(PAGE_QUESTION, session_id=one.session)
    with pytest.raises(TurnRunning):
        world.conversations.show(one.session, one.turn)
    running.close()
    assert world.conversations.turns(one.session)[:1] == before
