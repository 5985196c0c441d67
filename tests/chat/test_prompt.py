from dataclasses import dataclass

import pytest

from chat.errors import QuestionTooLong
from chat.prompt import fit, render


@dataclass(frozen=True)
class Passage:
    title: str
    text: str
    heading: str = ""


def message(passages: int, first: bool) -> list[int]:
    """100 tokens for each passage and 20 for the question."""
    return [0] * (100 * passages + 20)


def fit_into(context_tokens: int, turn_tokens: list[int], answer: int = 100):  # type: ignore[no-untyped-def]
    return fit(
        message,
        passages=4,
        static_tokens=50,
        turn_tokens=turn_tokens,
        context_tokens=context_tokens,
        max_answer_tokens=answer,
    )


def test_the_best_passage_stands_next_to_the_question() -> None:
    text = render([Passage("Best", "b", "Best > part"), Passage("Second", "s")], "Why?")
    assert text.index("Second") < text.index("Best > part") < text.index("Why?")


def test_everything_goes_in_while_there_is_room() -> None:
    fitting = fit_into(2000, [300, 300])
    assert (fitting.passages, fitting.leaving_turns, fitting.max_answer_tokens) == (4, 0, 100)


def test_passages_give_way_before_history() -> None:
    fitting = fit_into(1000, [300, 300])  # room for 1000 - 50 - 100 - 600 = 250
    assert (fitting.passages, fitting.leaving_turns) == (2, 0)


def test_history_leaves_in_one_large_step_and_the_passages_come_back() -> None:
    fitting = fit_into(1000, [100] * 8)
    assert fitting.passages == 4
    assert 800 - 100 * fitting.leaving_turns <= (1000 - 50) / 2


def test_a_question_that_cannot_fit_is_refused_with_the_numbers() -> None:
    with pytest.raises(QuestionTooLong) as caught:
        fit(
            lambda count, first: [0] * 5000,
            passages=0,
            static_tokens=50,
            turn_tokens=[],
            context_tokens=1000,
            max_answer_tokens=100,
        )
    assert caught.value.needed_tokens == 5000
    assert caught.value.limit_tokens == 850
    assert "5,000" in str(caught.value)
    assert "850" in str(caught.value)


def test_a_long_answer_leaves_three_quarters_of_the_context_to_the_rest() -> None:
    assert fit_into(1000, [], answer=100_000).max_answer_tokens == 250


def test_the_question_is_rendered_as_first_when_all_turns_have_left() -> None:
    seen = []

    def remember(count: int, first: bool) -> list[int]:
        seen.append(first)
        return message(count, first)

    fit(
        remember,
        passages=1,
        static_tokens=50,
        turn_tokens=[5000],
        context_tokens=1000,
        max_answer_tokens=100,
    )
    assert seen[-1] is True
    assert seen[0] is False
