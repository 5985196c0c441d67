"""A conversation as a file, and finding it again."""

import json
from dataclasses import replace

import pytest

from chat import export
from chat.errors import SessionNotFound
from chat.options import AskOptions
from tests.chat.conftest import SHORT, SIZE_QUESTION, World


def test_the_markdown_holds_questions_answers_citations_and_costs(world: World) -> None:
    turn = world.ask(SIZE_QUESTION)
    # What a small model cites differs by machine; the documents' own words do not.
    quote = replace(turn.evidence[0], marker="[1]")
    turn = replace(turn, answer=f"{turn.answer} [1]", citations=(quote,), evidence=())
    session = world.conversations.session(turn.session)
    text = export.to_markdown(session, [turn])
    assert text.startswith(f"# {session.title}\n")
    assert f"> {SIZE_QUESTION}" in text
    assert turn.answer in text
    cited = turn.citations[0]
    assert f"{cited.marker} *{cited.title}*, page {cited.page}:" in text
    for line in cited.support_text.splitlines():
        assert f"> {line}".rstrip() in text
    assert turn.stats is not None
    assert f"{turn.stats.computed_tokens:,} computed" in text


def test_the_json_is_what_ask_gives_turn_by_turn(world: World) -> None:
    one = world.ask(SIZE_QUESTION)
    two = world.ask("And why?", one.session)
    session = world.conversations.session(one.session)
    stored = json.loads(export.to_json(session, world.conversations.turns(one.session)))
    assert stored["conversation"]["title"] == session.title
    assert stored["turns"] == [one.to_json(), two.to_json()]


def test_a_file_is_named_after_the_title_without_signs_that_systems_refuse(world: World) -> None:
    turn = world.ask(SIZE_QUESTION)
    world.conversations.rename(turn.session, 'What/is: "KV"? 缓存')
    session = world.conversations.session(turn.session)
    assert export.file_name(session, "md") == "What is KV 缓存.md"


def test_another_owner_finds_neither_conversation_nor_options(world: World) -> None:
    turn = world.ask(SIZE_QUESTION)
    for look in (world.conversations.session, world.conversations.options):
        with pytest.raises(SessionNotFound):
            look(turn.session, "someone else")
    with pytest.raises(SessionNotFound):
        world.conversations.configure(turn.session, SHORT, "someone else")
    assert world.conversations.matching("KV", "someone else") == set()


def test_a_conversation_is_found_by_words_of_its_title_questions_and_answers(world: World) -> None:
    one = world.ask(SIZE_QUESTION)
    world.conversations.rename(one.session, "Zebra 100% stripes")
    assert world.conversations.matching("zebra") == {one.session}
    assert one.session in world.conversations.matching("7B zebra")
    assert world.conversations.matching("100% zebra") == {one.session}
    assert world.conversations.matching("zebra quagga") == set()
    assert one.session in world.conversations.matching("  ")


def test_a_conversation_keeps_the_options_of_its_newest_question(world: World) -> None:
    chosen = world.library.documents()[0].id
    options = AskOptions(max_tokens=8, passages=1, temperature=0.5, seed=1, documents=(chosen,))
    turn = world.ask(SIZE_QUESTION, options=options)
    assert world.conversations.options(turn.session) == options
    again = list(world.conversations.ask("And why?", session_id=turn.session))[-1].turn
    assert {found.document for found in again.citations + again.retrieved} <= {chosen}
    assert again.stats is None or again.stats.generated_tokens <= 8
    world.conversations.configure(turn.session, replace(options, documents=("gone", chosen)))
    assert world.conversations.options(turn.session).documents == (chosen,)
    world.conversations.configure(turn.session, replace(options, documents=("gone",)))
    assert world.conversations.options(turn.session).documents is None
    world.conversations.configure(turn.session, SHORT)
    assert world.conversations.options(turn.session) == SHORT


def test_first_questions_come_from_the_headings_of_the_newest_documents(world: World) -> None:
    world.write("plain.txt", "Only a line of text without any heading.", "suggesting")
    world.write("a.md", "# Tea\n\nGreen.\n\n## Harvest\n\nMay.\n\n## Why is it green?\n\nLeaves.",
                "suggesting")  # fmt: skip
    first, second = world.conversations.topics("suggesting")
    assert (first.title, first.heading) == ("Tea", "Why is it green?")
    assert first.is_question
    assert (second.title, second.heading) == ("plain", "")
    assert world.conversations.topics("nobody") == []
