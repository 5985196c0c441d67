"""Turns on the real model and the real library: asking, going on, and what they cost."""

from pathlib import Path

import pytest
from sqlalchemy import func, select

from chat.errors import (
    LibraryEmpty,
    QuestionEmpty,
    QuestionTooLong,
    SessionNotFound,
    TurnRunning,
)
from chat.events import Delta, Finished, Quoted, Retrieved, Started, Written
from chat.options import AskOptions
from chat.prompt import SYSTEM_PROMPT
from chat.tables import Conversation, Turn
from engine import Engine
from tests.chat.conftest import PAGE_QUESTION, SHORT, SIZE_QUESTION, World, finished, first


def count(world: World, table: type) -> int:
    with world.database.reading() as session:
        return session.scalar(select(func.count()).select_from(table)) or 0


def test_a_question_streams_an_answer_that_is_saved_with_its_citations(world: World) -> None:
    events = list(world.conversations.ask(SIZE_QUESTION, options=AskOptions(max_tokens=64)))
    started, retrieved, quoted, *deltas, end = events
    assert isinstance(started, Started)
    assert isinstance(retrieved, Retrieved)
    assert isinstance(quoted, Quoted)
    assert isinstance(end, Finished)
    assert all(isinstance(delta, Delta | Written) for delta in deltas)
    turn = end.turn
    assert world.conversations.turns(started.session_id) == [turn]
    assert turn.turn == started.turn_id
    assert turn.state == "done"
    assert len(turn.citations) + len(turn.retrieved) >= len(retrieved.passages) > 0
    # Which sentence the small model's words cite, and whether one does, differs by machine; what is
    # quoted does not.
    assert turn.evidence
    for quote in (*turn.evidence, *turn.citations):
        page = world.library.page_text(quote.document, quote.page)
        assert page[quote.char_start : quote.char_end] == quote.text
        assert page[quote.support_start : quote.support_end] == quote.support_text
    assert all(citation.marker in turn.answer for citation in turn.citations)
    assert bool(turn.citations) == any(sentence.supported for sentence in turn.sentences)
    assert any("0.50 GiB" in quotation.support_text for quotation in turn.evidence)
    assert all(passage.marker is None for passage in turn.retrieved)


def test_the_first_turn_shares_the_static_prompt_and_a_later_one_computes_what_is_new(
    world: World, library_dir: Path
) -> None:
    # An owner of its own: what others' conversations computed does not shorten this one's.
    world.add(library_dir / "kv-cache-size.md", owner="counting")
    one = world.ask(SIZE_QUESTION, owner="counting")
    two = world.ask("Which mistakes are common in estimates?", one.session, owner="counting")
    static = len(world.engine.static_tokens)
    assert one.stats is not None
    assert two.stats is not None
    assert one.stats.static_tokens == one.stats.cached_tokens == static
    assert one.stats.computed_tokens == len(world.row(one.turn).prompt_tokens)
    for stats in (one.stats, two.stats):
        assert stats.prompt_tokens == stats.cached_tokens + stats.computed_tokens
        assert stats.ttft_s >= stats.engine_ttft_s > 0
        assert stats.retrieve_s > 0
    # The sampled token whose KV was not written, and the tokens that close the first answer.
    first_row, second_row = world.row(one.turn), world.row(two.turn)
    generated = one.stats.generated_tokens
    closing = len(first_row.answer_tokens) - generated
    assert two.stats.computed_tokens == 1 + closing + len(second_row.prompt_tokens)
    assert two.stats.cached_tokens == static + len(first_row.prompt_tokens) + generated - 1


def test_after_a_restart_a_conversation_goes_on_from_its_stored_tokens(
    world: World, other_engine: Engine
) -> None:
    one = world.ask(SIZE_QUESTION)
    again = world.restarted(other_engine)
    assert again.conversations.turns(one.session) == [one]
    two = again.ask(PAGE_QUESTION, one.session)
    assert two.stats is not None
    assert two.stats.cached_tokens == two.stats.static_tokens == len(other_engine.static_tokens)
    stored = again.tokens(one.turn, two.turn) - len(again.row(two.turn).answer_tokens)
    assert two.stats.prompt_tokens == stored
    three = again.ask(SIZE_QUESTION, one.session)
    assert three.stats is not None
    assert three.stats.computed_tokens < two.stats.computed_tokens
    again.conversations.close()


def test_every_conversation_begins_with_the_same_static_prompt(world: World) -> None:
    one, two = world.ask(SIZE_QUESTION), world.ask(PAGE_QUESTION)
    with world.database.reading() as session:
        static = {
            session.get_one(Conversation, id).static_tokens for id in (one.session, two.session)
        }
    assert static == {world.engine.static_tokens}
    assert SYSTEM_PROMPT in world.engine.format.decode(world.engine.static_tokens)


def test_a_question_that_the_documents_do_not_answer_is_not_put_to_the_model(
    world: World,
) -> None:
    turn = world.ask("Who won the football world cup in 2014?")
    assert turn.finish_reason == "not_found"
    assert turn.state == "done"
    assert "Nothing in the 2 documents searched answers this." in turn.answer
    assert turn.citations == ()
    assert turn.stats is not None
    assert turn.stats.prompt_tokens == turn.stats.generated_tokens == 0
    assert turn.stats.retrieve_s > 0
    after = world.ask(SIZE_QUESTION, turn.session)
    assert after.state == "done"
    assert after.stats is not None
    assert after.stats.prompt_tokens == world.tokens() + len(world.row(after.turn).prompt_tokens)


def test_a_second_question_waits_for_the_first_to_end(world: World) -> None:
    events = world.conversations.ask(SIZE_QUESTION, options=SHORT)
    session = first(events, Started).session_id
    with pytest.raises(TurnRunning):
        world.conversations.ask(PAGE_QUESTION, session_id=session)
    assert [view.running for view in world.conversations.sessions() if view.session == session] == [
        True
    ]
    assert finished(events).state == "done"
    assert world.ask(PAGE_QUESTION, session).state == "done"


def test_the_next_question_may_follow_on_the_last_event(world: World) -> None:
    events = world.conversations.ask(SIZE_QUESTION, options=SHORT)
    turn = first(events, Finished).turn
    follow = world.conversations.ask(PAGE_QUESTION, session_id=turn.session, options=SHORT)
    assert finished(follow).state == "done"


def test_another_owners_conversation_is_not_found(world: World) -> None:
    mine = world.ask(SIZE_QUESTION).session
    chat = world.conversations
    world.write("theirs.md", "# Theirs\n\nA private note on KV caches.", owner="eve")
    for attempt in (
        lambda: chat.ask("What?", session_id=mine, owner="eve"),
        lambda: chat.turns(mine, "eve"),
        lambda: chat.rename(mine, "stolen", "eve"),
        lambda: chat.delete(mine, "eve"),
        lambda: chat.stop(mine, "eve"),
        lambda: chat.turns("no-such-conversation"),
    ):
        with pytest.raises(SessionNotFound):
            attempt()
    assert chat.sessions("eve") == []
    assert len(chat.turns(mine)) == 1


def test_what_cannot_be_asked_is_refused_and_leaves_nothing_behind(world: World) -> None:
    turns, sessions = count(world, Turn), count(world, Conversation)
    chat = world.conversations
    with pytest.raises(QuestionEmpty):
        chat.ask(" \n ")
    with pytest.raises(LibraryEmpty, match="add"):
        chat.ask(SIZE_QUESTION, owner="nobody")
    with pytest.raises(QuestionTooLong, match="tokens") as caught:
        chat.ask("cache " * 20_000)
    assert caught.value.needed_tokens > caught.value.limit_tokens
    assert (count(world, Turn), count(world, Conversation)) == (turns, sessions)


def test_conversations_are_listed_renamed_and_deleted_with_their_kv(world: World) -> None:
    chat = world.conversations
    before = world.engine.memory().pages_sessions
    turn = world.ask(SIZE_QUESTION)
    view = chat.sessions()[0]
    assert (view.session, view.title, view.turns) == (turn.session, SIZE_QUESTION, 1)
    chat.rename(turn.session, "Sizes")
    assert chat.sessions()[0].title == "Sizes"
    assert world.engine.memory().pages_sessions > before
    chat.delete(turn.session)
    assert world.engine.memory().pages_sessions == before
    assert turn.session not in {view.session for view in chat.sessions()}
    with world.database.reading() as session:
        assert session.get(Turn, turn.turn) is None


def test_the_json_of_a_turn_is_flat_and_complete(world: World) -> None:
    turn = world.ask(SIZE_QUESTION)
    json = turn.to_json()
    assert {
        "session",
        "turn",
        "question",
        "answer",
        "citations",
        "retrieved",
        "stats",
        "finish_reason",
        "state",
        "notes",
    } <= json.keys()
    assert {"ttft_s", "engine_ttft_s", "retrieve_s", "evidence_s", "passages_reused"} <= json[
        "stats"
    ].keys()
    for passage in json["citations"] + json["retrieved"]:
        assert {"document", "title", "page", "char_start", "char_end", "text", "marker"} <= set(
            passage
        )
