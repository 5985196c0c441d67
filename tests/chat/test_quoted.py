"""What a turn quotes before the model speaks, what it refuses, and what it does not."""

from collections.abc import Callable
from pathlib import Path

import pytest

from chat.events import Delta, Event, Finished, Quoted, Retrieved, Written
from chat.export import to_markdown
from chat.options import AskOptions
from chat.views import TurnView
from engine import Engine
from tests.chat.conftest import SHORT, SIZE_QUESTION, World, finished

QUOTES_ONLY = AskOptions(answer="evidence")
TEXT_ONLY = AskOptions(answer="generate", max_tokens=16)
UNANSWERED = "Who won the football world cup in 2014?"


@pytest.fixture(scope="module")
def quoted(world: World) -> TurnView:
    return world.ask(SIZE_QUESTION, options=QUOTES_ONLY)


def ask(world: World, question: str, options: AskOptions = SHORT) -> list[Event]:
    return list(world.conversations.ask(question, options=options))


def test_the_documents_own_words_come_before_the_models(world: World) -> None:
    _, retrieved, quotes, *rest = ask(world, SIZE_QUESTION)
    assert isinstance(retrieved, Retrieved)
    assert isinstance(quotes, Quoted)
    assert isinstance(rest[0], Delta)
    assert quotes.answerable is True
    assert any("0.50 GiB" in quote.support_text for quote in quotes.evidence)
    end = rest[-1]
    assert isinstance(end, Finished)
    assert end.turn.evidence == quotes.evidence
    assert end.turn.stats is not None
    assert 0 < end.turn.stats.retrieve_s < end.turn.stats.evidence_s == quotes.evidence_s
    assert end.turn.stats.evidence_s < end.turn.stats.ttft_s


def test_each_quotation_is_where_it_says(world: World, quoted: TurnView) -> None:
    assert 1 <= len(quoted.evidence) <= 2
    for quote in quoted.evidence:
        page = world.library.page_text(quote.document, quote.page)
        assert page[quote.char_start : quote.char_end] == quote.text
        assert page[quote.support_start : quote.support_end] == quote.support_text != ""


def test_without_the_models_text_the_model_is_not_asked(world: World, quoted: TurnView) -> None:
    assert (quoted.state, quoted.finish_reason, quoted.answer) == ("done", "evidence", "")
    assert quoted.stats is not None
    assert quoted.stats.prompt_tokens == quoted.stats.generated_tokens == 0
    row = world.row(quoted.turn)
    assert row.prompt_tokens == row.answer_tokens == ()
    after = world.ask(SIZE_QUESTION, quoted.session)
    assert after.stats is not None
    assert after.stats.prompt_tokens == world.tokens() + len(world.row(after.turn).prompt_tokens)


def test_evidence_is_no_part_of_what_the_model_reads_later(world: World) -> None:
    one = world.ask(SIZE_QUESTION)
    row = world.row(one.turn)
    answer = world.engine.format.decode(row.answer_tokens)
    assert one.evidence
    assert all(quote.support_text not in answer for quote in one.evidence)


def test_the_text_alone_comes_without_quotations(world: World) -> None:
    turn = world.ask(SIZE_QUESTION, options=TEXT_ONLY)
    assert turn.evidence == ()
    assert turn.answerable is True
    assert turn.sentences


def test_quotations_are_there_after_a_restart_and_in_an_export(
    world: World, quoted: TurnView, other_engine: Engine
) -> None:
    again = world.restarted(other_engine)
    shown = again.conversations.turns(quoted.session)[0]
    assert shown.evidence == quoted.evidence
    assert shown.gate == quoted.gate
    text = to_markdown(again.conversations.session(quoted.session), [shown])
    assert quoted.evidence[0].support_text.splitlines()[0] in text
    assert "In the documents" in text
    again.conversations.close()


def test_a_refusal_says_what_was_searched_and_what_comes_closest(world: World) -> None:
    events = ask(world, UNANSWERED)
    turn = finished(iter(events))
    assert turn.answerable is False
    assert turn.finish_reason == "not_found"
    assert turn.answer.startswith("Nothing in the 2 documents searched answers this.")
    (closest,) = turn.evidence
    assert " ".join(closest.support_text.split()) in turn.answer
    assert closest.title in turn.answer


def test_of_chosen_documents_only_those_are_searched(world: World) -> None:
    chosen = (world.library.documents()[0].id,)
    turn = world.ask(UNANSWERED, options=AskOptions(documents=chosen))
    assert turn.answer.startswith("Nothing in the one document searched answers this.")


@pytest.mark.parametrize("greeting", ["Hello!", "thanks", "谢谢"])
def test_small_talk_is_not_refused(world: World, greeting: str) -> None:
    turn = world.ask(greeting)
    assert turn.answerable is None
    assert turn.finish_reason == "talk"
    assert turn.answer.startswith("I am here for questions about your documents, about “")
    assert (turn.evidence, turn.citations, turn.sentences) == ((), (), ())


def test_small_talk_in_between_costs_no_token_and_is_not_searched_with_what_follows(
    world: World,
) -> None:
    one = world.ask("What is a KV cache?")
    world.ask("Thanks!", one.session)
    after = world.ask(SIZE_QUESTION, one.session)
    assert after.stats is not None
    read = len(world.row(after.turn).prompt_tokens)
    assert after.stats.prompt_tokens == world.tokens(one.turn) + read
    straight = world.ask(SIZE_QUESTION, world.ask("What is a KV cache?").session)
    assert after.gate == pytest.approx(straight.gate)


def test_a_larger_model_answers_small_talk_itself(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "parameters", property(lambda _: 1_000_000_000))
    turn = world.ask("Hello!")
    assert turn.finish_reason in ("stop", "length", "repetition")
    assert turn.stats is not None
    assert turn.stats.generated_tokens > 0


def test_a_question_about_the_conversation_is_answered_from_it(world: World) -> None:
    one = world.ask(SIZE_QUESTION)
    two = world.ask("What did I just ask?", one.session)
    assert two.answerable is None
    assert two.stats is not None
    assert two.stats.generated_tokens > 0
    assert two.retrieved == ()
    alone = world.ask("Say that shorter.", one.session, QUOTES_ONLY)
    assert alone.finish_reason == "evidence"
    assert "own sentences" in alone.answer


def test_a_larger_model_may_answer_where_nothing_was_found_and_it_is_said(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "parameters", property(lambda _: 3_000_000_000))
    turn = world.ask(UNANSWERED)
    assert turn.answerable is False
    assert turn.stats is not None
    assert turn.stats.generated_tokens > 0
    assert any(note.startswith("Nothing in the documents searched (2)") for note in turn.notes)


def test_the_default_model_is_a_small_one(world: World) -> None:
    assert 130_000_000 < world.engine.parameters < 140_000_000


def test_every_sentence_of_the_model_is_supported_or_marked(world: World) -> None:
    events = ask(world, SIZE_QUESTION, AskOptions(max_tokens=80))
    turn = finished(iter(events))
    assert turn.sentences
    for sentence in turn.sentences:
        if sentence.citation is not None:
            assert sentence.citation in turn.citations
            assert f"{sentence.text} {sentence.citation.marker}" in turn.answer
        else:
            assert f"{sentence.text.split()[-1]} [?]" in turn.answer
    json = turn.to_json()
    assert [one["supported"] for one in json["sentences"]] == [
        one.supported for one in turn.sentences
    ]
    written = [event for event in events if isinstance(event, Written)]
    assert len(written) >= len(turn.sentences) - 1
    assert all(turn.answer.startswith(event.text) for event in written)


def test_a_question_on_a_whole_document_says_how_much_was_read(world: World) -> None:
    turn = world.ask("Summarise the document on the size of a KV cache.")
    assert turn.answerable is None
    (note,) = (note for note in turn.notes if "passages of" in note)
    read, total = note.split()[0], note.split()[2]
    assert 0 < int(read) <= int(total)
    assert int(read) == SHORT.read


def test_a_document_that_fits_can_be_read_whole(world: World) -> None:
    turn = world.ask(
        "Summarise how large a KV cache is.", options=AskOptions(whole=True, max_tokens=8)
    )
    (note,) = (note for note in turn.notes if "passages of" in note)
    read, _, total, *_ = note.split()
    assert read == total
    assert int(read) > AskOptions().read
    usual = world.ask(SIZE_QUESTION, options=AskOptions(whole=True, max_tokens=8))
    assert len(usual.retrieved) + len(usual.citations) < int(read)


def test_what_was_quoted_stays_when_its_document_is_removed(
    make_world: Callable[..., World], library_dir: Path
) -> None:
    world = make_world()
    id = world.add(library_dir / "kv-cache-size.md")
    world.add(library_dir / "paged-attention.md")
    turn = world.ask(SIZE_QUESTION, options=QUOTES_ONLY)
    assert {quote.document for quote in turn.evidence} == {id}
    assert world.conversations.quotes(id).passages == len(turn.evidence)
    world.library.remove(id)
    (after,) = world.conversations.turns(turn.session)
    assert [quote.text for quote in after.evidence] == [quote.text for quote in turn.evidence]
    assert all(quote.removed for quote in after.evidence)
    assert all(not passage.removed for passage in after.retrieved)
