"""Turns as messages, and the line under each answer."""

from collections.abc import Callable
from dataclasses import replace

from gradio import Chatbot
from gradio.utils import diff

from chat.stats import TurnStats
from chat.ui import transcript
from chat.ui.cost import cost_line, cost_row
from chat.views import CitationView, TurnView

Make = Callable[..., TurnView]


def html_of(message: transcript.Message) -> str:
    return message["content"][0]["value"]


def test_the_line_says_what_was_reused_and_what_was_computed(stats: TurnStats) -> None:
    assert cost_line(stats) == (
        "1,204 reused · 312 computed · first token 0.31 s · 92 tok/s · KV 27 MB"
    )


def test_the_line_leaves_out_what_did_not_happen() -> None:
    """A turn stopped before its first token has neither a time to it nor a speed."""
    assert cost_line(TurnStats(cached_tokens=5, computed_tokens=7)) == (
        "5 reused · 7 computed · KV 0 B"
    )


def test_a_rewrite_has_its_time_and_says_what_was_searched_for(
    turn: Make, stats: TurnStats
) -> None:
    rewritten = replace(stats, rewrite_s=0.8)
    assert "rewritten in 0.80 s" in cost_line(rewritten)
    shown = cost_row(turn(stats=rewritten, rewritten="How large is <it>?"))
    assert "Also searched for" in shown
    assert "How large is &lt;it&gt;?" in shown
    assert '<li><i class="pt-part_rewrite"></i>Rewrite <b>0.80 s</b></li>' in shown
    assert "Rewrite" not in cost_row(turn(stats=stats))
    refused = turn(finish_reason="not_found", rewritten="How large is <it>?")
    assert "Also searched for: How large is &lt;it&gt;?" in cost_row(refused)


def test_quotations_stand_above_a_small_models_text_and_below_a_large_ones(
    turn: Make, citation: Callable[..., CitationView]
) -> None:
    view = turn(evidence=(citation(marker=None),), gate=1.0)
    _, quoted, answer, _ = transcript.turn_messages(view)
    assert "Quoted from the documents" in html_of(quoted)
    assert "In the model's words" in html_of(quoted)
    assert answer["content"].startswith("It needs")
    _, answer, quoted, _ = transcript.turn_messages(view, quotes_lead=False)
    assert answer["content"].startswith("It needs")
    assert "Quoted from the documents" in html_of(quoted)
    assert "In the model" not in html_of(quoted)


def test_a_refusal_comes_before_what_is_closest_with_every_model(
    turn: Make, citation: Callable[..., CitationView]
) -> None:
    refused = turn(
        answer="Nothing in the 2 documents searched answers this.",
        finish_reason="not_found",
        evidence=(citation(marker=None),),
        gate=-1.0,
    )
    for leads in (True, False):
        _, said, closest, _ = transcript.turn_messages(refused, quotes_lead=leads)
        assert said["content"].startswith("Nothing")
        assert "pt-alone" in html_of(closest)


def test_a_turn_is_question_answer_and_cost(turn: Make, stats: TurnStats) -> None:
    question, answer, below = transcript.turn_messages(turn(stats=stats))
    assert (question["role"], answer["role"], below["role"]) == ("user", "assistant", "assistant")
    assert "How large?" in html_of(question)
    assert "1,204 reused" in html_of(below)


def test_a_question_is_shown_letter_by_letter(turn: Make) -> None:
    shown = html_of(transcript.turn_messages(turn(question="<b>*x*</b>\n![a](b)"))[0])
    assert "&lt;b&gt;*x*&lt;/b&gt;\n![a](b)" in shown


def test_markers_of_cited_passages_are_links(
    turn: Make, citation: Callable[..., CitationView]
) -> None:
    view = turn(answer="So. [1] Thus. [2]", citations=(citation(),))
    answer = transcript.turn_messages(view)[1]
    assert answer["content"] == "So. [1](#source-t1-1) Thus. [2]"


def test_an_answer_without_text_is_no_empty_bubble(turn: Make) -> None:
    assert len(transcript.turn_messages(turn(answer="", state="pending"))) == 2


def test_a_stopped_an_interrupted_and_a_failed_turn_say_so(turn: Make) -> None:
    assert "stopped" in cost_row(turn(state="stopped"))
    assert "interrupted" in cost_row(turn(state="interrupted"))
    failed = cost_row(turn(state="error", error="The disk <full>."))
    assert "failed" in failed
    assert "The disk &lt;full&gt;." in failed


def test_an_answer_that_met_its_limit_says_so(turn: Make) -> None:
    assert "cut short" in cost_row(turn(finish_reason="length"))
    assert "cut short" not in cost_row(turn())


def test_notes_are_shown(turn: Make) -> None:
    assert "2 of 5 documents are ready" in cost_row(turn(notes=("2 of 5 documents are ready.",)))


def test_two_supports_of_one_passage_are_one_source(
    turn: Make, citation: Callable[..., CitationView]
) -> None:
    twice = (citation(), citation(support_start=100, support_end=110))
    assert ">1 source<" in cost_row(turn(citations=twice))


def test_a_turn_that_runs_elsewhere_is_shown_as_running(turn: Make) -> None:
    assert "Answering" in cost_row(turn(state="pending"))


def test_what_is_sent_while_an_answer_grows_is_what_was_added(turn: Make) -> None:
    """However long the conversation is: Gradio sends the difference to the update before."""
    before = transcript.messages(turn(turn=f"t{number}") for number in range(50))
    chatbot = Chatbot()

    def update(written: str) -> list[dict[str, object]]:
        shown = [*before, *transcript.answer(written), transcript.below("Answering")]
        return chatbot.postprocess(shown).model_dump()

    ((change, _, added),) = diff(update("The answer"), update("The answer grows"))
    assert (change, added) == ("append", " grows")
