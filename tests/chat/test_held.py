"""What conversations hold of the memory, and giving it back."""

import pytest

from chat.errors import SessionNotFound, TurnRunning
from tests.chat.conftest import PAGE_QUESTION, SHORT, SIZE_QUESTION, World


def test_a_conversation_is_listed_with_the_memory_that_it_holds(world: World) -> None:
    turn = world.ask(SIZE_QUESTION)
    (held,) = [view for view in world.conversations.held() if view.session == turn.session]
    assert turn.stats is not None
    assert held.title == SIZE_QUESTION
    assert held.kv_bytes == turn.stats.kv_bytes
    assert held.pages == turn.stats.kv_pages
    assert held.tokens >= held.kv_tokens > 0
    assert not held.running


def test_freed_memory_leaves_the_pool_and_the_conversation_goes_on(world: World) -> None:
    one = world.ask(SIZE_QUESTION)
    before = world.engine.memory()
    world.conversations.free_kv(one.session)
    assert one.session not in [view.session for view in world.conversations.held()]
    assert world.engine.memory().pages_sessions < before.pages_sessions
    two = world.ask(PAGE_QUESTION, one.session)
    assert two.state == "done"
    assert world.conversations.turns(one.session) == [one, two]
    world.engine.check()


def test_only_the_owner_sees_and_frees_what_a_conversation_holds(world: World) -> None:
    turn = world.ask(SIZE_QUESTION)
    assert turn.session not in [view.session for view in world.conversations.held("bob")]
    with pytest.raises(SessionNotFound):
        world.conversations.free_kv(turn.session, "bob")


def test_a_conversation_that_answers_keeps_its_memory(world: World) -> None:
    events = world.conversations.ask(SIZE_QUESTION, options=SHORT)
    session = next(events).session_id  # type: ignore[union-attr]
    with pytest.raises(TurnRunning):
        world.conversations.free_kv(session)
    events.close()


def test_quotes_of_a_document_are_counted_for_its_owner(world: World) -> None:
    before = {
        document.id: world.conversations.quotes(document.id)
        for document in world.library.documents()
    }
    turn = world.ask(SIZE_QUESTION)
    shown = [*turn.citations, *turn.evidence]
    cited = {citation.document for citation in shown}
    assert cited
    for document, count in before.items():
        now = world.conversations.quotes(document)
        own = {citation.text for citation in shown if citation.document == document}
        assert now.passages == count.passages + len(own)
        assert now.conversations == count.conversations + (document in cited)
        assert world.conversations.quotes(document, "bob") == (0, 0)
