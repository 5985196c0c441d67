"""What the model reads, and how it changes: removed documents, a full context, another model."""

from collections.abc import Callable, Iterator

import pytest

from chat.conversation import Conversations
from chat.events import Delta, Retrieved, Started
from chat.options import AskOptions
from chat.tables import Conversation
from engine import Engine, EngineConfig
from tests.chat.conftest import World, finished, first

BRIEF = AskOptions(max_tokens=16, passages=3, read=3)
ZEBRAS = "# Zebra stables\n\nThe zebra stable in Windhoek houses exactly 731 zebras."
GIRAFFES = "# Giraffe stables\n\nThe giraffe stable in Windhoek houses exactly 88 giraffes."
QUESTION = "How many zebras does the zebra stable in Windhoek house?"


@pytest.fixture
def stables(make_world: Callable[..., World]) -> World:
    world = make_world()
    world.write("giraffes.md", GIRAFFES)
    return world


def prompt_text(world: World, turn_id: str) -> str:
    return world.engine.format.decode(world.row(turn_id).prompt_tokens)


def test_a_removed_document_leaves_prompts_and_kv_and_stays_where_it_was_cited(
    stables: World,
) -> None:
    zebras = stables.write("zebras.md", ZEBRAS)
    turn = stables.ask(QUESTION, options=BRIEF)
    assert "731 zebras" in prompt_text(stables, turn.turn)
    assert zebras in {quote.document for quote in turn.evidence}
    before = stables.engine.memory()

    stables.library.remove(zebras)

    (after,) = stables.conversations.turns(turn.session)
    assert after.answer == turn.answer
    # What the model's own words cite differs by machine; what is quoted does not.
    quotes = [q for q in (*after.evidence, *after.citations) if q.document == zebras]
    assert quotes
    assert all(quote.removed and "731 zebras" in quote.text for quote in quotes)
    assert zebras not in {passage.document for passage in after.retrieved}
    assert "731 zebras" not in prompt_text(stables, turn.turn)
    assert "88 giraffes" in prompt_text(stables, turn.turn)
    assert stables.engine.memory().pages_sessions < before.pages_sessions
    follow = stables.ask("How many giraffes does the giraffe stable house?", turn.session)
    assert follow.state == "done"
    assert follow.stats is not None
    read = stables.tokens(turn.turn) + len(stables.row(follow.turn).prompt_tokens)
    assert follow.stats.prompt_tokens == read


def test_a_removed_document_that_was_only_found_is_forgotten(stables: World) -> None:
    # What the model writes differs in its last bits by machine, so the other document is one that
    # it does not read and that no sentence about giraffes could be taken from.
    openings = stables.write("openings.md", "# Openings\n\nBishops and rooks wait behind pawns.")
    question = "How many giraffes does the giraffe stable in Windhoek house?"
    turn = stables.ask(question, None, AskOptions(max_tokens=16, passages=3, read=1))
    assert openings in {passage.document for passage in turn.retrieved}
    stables.library.remove(openings)
    (after,) = stables.conversations.turns(turn.session)
    assert openings not in {passage.document for passage in after.retrieved + after.citations}


@pytest.mark.parametrize("moment", [Started, Retrieved, Delta])
def test_a_document_removed_in_mid_answer_is_gone_when_the_turn_ends(
    stables: World, moment: type
) -> None:
    zebras = stables.write("zebras.md", ZEBRAS)
    events = stables.conversations.ask(QUESTION, options=BRIEF)
    session = stables.conversations.sessions()[0].session
    first(events, moment)
    stables.library.remove(zebras)
    turn = finished(events)
    assert zebras not in {passage.document for passage in turn.retrieved}
    assert all(citation.removed for citation in turn.citations if citation.document == zebras)
    assert "731 zebras" not in prompt_text(stables, turn.turn)
    assert stables.conversations.turns(session) == [turn]
    assert stables.ask("How many giraffes are there?", session).state == "done"


def test_another_owners_conversations_are_not_touched_by_a_removal(stables: World) -> None:
    mine = stables.write("zebras.md", ZEBRAS)
    stables.write("zebras.md", ZEBRAS, owner="eve")
    theirs = stables.ask(QUESTION, None, BRIEF, owner="eve")
    stables.library.remove(mine)
    assert stables.conversations.turns(theirs.session, "eve") == [theirs]
    assert "731 zebras" in prompt_text(stables, theirs.turn)


def test_deleting_a_conversation_in_mid_answer_ends_it(stables: World) -> None:
    events = stables.conversations.ask(QUESTION, options=AskOptions(max_tokens=200))
    session = stables.conversations.sessions()[0].session
    first(events, Retrieved)
    stables.conversations.delete(session)
    assert [event for event in events if not isinstance(event, Delta)] == []
    assert stables.conversations.sessions() == []
    assert session not in stables.conversations._services.sessions.ids


@pytest.fixture(scope="module")
def small_engine(chat_model: str) -> Iterator[Engine]:
    """A KV pool that holds a context of about 800 tokens only."""
    engine = Engine(EngineConfig(chat_model, device="cpu", kv_memory="20MB"))
    yield engine
    engine.check()
    engine.shutdown()


def test_a_full_context_lets_the_oldest_turns_go_in_one_step_and_says_so(
    make_world: Callable[..., World], small_engine: Engine
) -> None:
    world = make_world(small_engine)
    world.write("zebras.md", ZEBRAS + " They eat hay and oats." * 20)
    options = AskOptions(max_tokens=16, passages=1)
    turns = [world.ask(QUESTION, options=options)]
    while not turns[-1].notes or "have left it" not in " ".join(turns[-1].notes):
        assert len(turns) < 20
        turns.append(world.ask(QUESTION, turns[0].session, options))
        assert turns[-1].state == "done", turns[-1].error
    trimmed = turns[-1].stats
    before = turns[-2].stats
    assert trimmed is not None
    assert before is not None
    assert trimmed.prompt_tokens < 0.8 * before.prompt_tokens
    assert trimmed.prompt_tokens + 16 <= small_engine.context_tokens
    assert [turn.turn for turn in world.conversations.turns(turns[0].session)] == [
        turn.turn for turn in turns
    ]
    after = world.ask(QUESTION, turns[0].session, options)
    assert after.stats is not None
    assert after.stats.cached_tokens >= trimmed.prompt_tokens  # the trim is paid for once
    assert "have left it" not in " ".join(after.notes)


def test_passages_beyond_the_context_are_found_and_not_read(
    make_world: Callable[..., World], small_engine: Engine
) -> None:
    world = make_world(small_engine)
    for number in range(6):
        world.write(f"{number}.md", f"# Stable {number}\n\n" + f"Zebra stable {number}. " * 55)
    turn = world.ask(
        "Which zebra stable is there?", None, AskOptions(max_tokens=8, passages=6, read=6)
    )
    assert turn.state == "done", turn.error
    assert any("had room for" in note for note in turn.notes)
    assert len({p.document for p in turn.retrieved + turn.citations}) == 6


def test_another_model_goes_on_from_the_texts(stables: World) -> None:
    stables.write("zebras.md", ZEBRAS)
    turn = stables.ask(QUESTION, options=BRIEF)
    row = stables.row(turn.turn)
    with stables.database.session() as session:
        conversation = session.get_one(Conversation, turn.session)
        conversation.model = "another-model"
        conversation.static_tokens = (1, 2, 3)
    again = Conversations(stables.database, stables.library, stables.engine)
    follow = finished(again.ask(QUESTION, session_id=turn.session, options=BRIEF))
    assert follow.state == "done"
    assert again.sessions()[0].model == stables.engine.model_name
    rewritten = stables.row(turn.turn)
    assert rewritten.prompt_tokens == row.prompt_tokens
    decode, end = stables.engine.format.decode, stables.engine.format.end(())
    assert decode(rewritten.answer_tokens).strip() == decode(row.answer_tokens).strip()
    assert list(rewritten.answer_tokens[-len(end) :]) == end
    again.close()


def test_a_conversation_about_chosen_documents_searches_only_those(stables: World) -> None:
    zebras = stables.write("zebras.md", ZEBRAS)
    turn = stables.ask(
        "How many are in the stable in Windhoek?",
        None,
        AskOptions(max_tokens=4, documents=(zebras,)),
    )
    assert {p.document for p in turn.retrieved + turn.citations} == {zebras}
