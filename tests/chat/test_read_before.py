"""A follow-up is checked against what the model read in earlier turns, and searched alone too."""

from chat.citations import Citer
from chat.context import ContextStore
from chat.options import AskOptions
from chat.store import ConversationStore, Outcome
from chat.views import TurnView
from tests.chat.conftest import PAGE_QUESTION, SIZE_QUESTION, World

QUOTES_ONLY = AskOptions(answer="evidence")


def follow_up(world: World, turn: TurnView, removed: str = "") -> TurnView:
    """A turn after this one that finds nothing new, and whose answer is what this one quoted."""
    read = ContextStore(world.database).load(turn.session, "local").read_besides(())
    store = ConversationStore(world.database)
    turn_id = store.begin(turn.session, "local", "And how much is that?")
    cited = Citer("And how much is that?", read).cite(turn.evidence[0].support_text)
    outcome = Outcome(
        "done",
        cited.answer,
        "stop",
        supports=cited.supports,
        sentences=cited.sentences,
        read_before=read,
        removed_documents={removed},
    )
    ended = store.finish(turn_id, outcome)
    assert ended is not None
    return ended


def test_an_answer_from_an_earlier_turns_passages_is_supported_by_them(world: World) -> None:
    turn = world.ask(SIZE_QUESTION)
    ended = follow_up(world, turn)
    (citation,) = ended.citations
    assert citation.marker == "[1]"
    assert citation.document == turn.evidence[0].document
    assert citation.support_text in citation.text
    assert not citation.removed
    assert all(checked.supported for checked in ended.sentences)


def test_a_document_that_is_removed_while_it_answers_is_cited_as_removed(world: World) -> None:
    turn = world.ask(SIZE_QUESTION)
    ended = follow_up(world, turn, removed=turn.evidence[0].document)
    assert [citation.removed for citation in ended.citations] == [True]


def test_what_was_found_again_and_what_left_the_context_is_not_read_before(world: World) -> None:
    turn = world.ask(SIZE_QUESTION)
    contexts = ContextStore(world.database)
    context = contexts.load(turn.session, "local")
    assert context.read_besides(context.passages) == ()
    contexts.trim(turn.session, "local", 1, lambda *_: ())
    assert contexts.load(turn.session, "local").passages == ()


def test_a_question_on_another_topic_is_not_refused_for_those_before_it(world: World) -> None:
    alone = world.ask(PAGE_QUESTION, options=QUOTES_ONLY)
    assert alone.answerable
    session = None
    for topic in ("Who won the football world cup?", "And who came second?", "In which stadium?"):
        session = world.ask(topic, session, options=QUOTES_ONLY).session
    later = world.ask(PAGE_QUESTION, session, options=QUOTES_ONLY)
    assert later.answerable
