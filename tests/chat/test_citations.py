from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from chat.citations import NOT_SUPPORTED, Cited, Citer, complete


@dataclass(frozen=True)
class Passage:
    text: str
    title: str = "A document"
    heading: str = ""
    char_start: int = 100


SIZE = Passage(
    "The size grows with the text. The KV cache of a 7B model for 1,024 tokens in fp16 takes "
    "0.50 GiB. At 4,096 tokens it takes 2 GiB."
)
PAGES = Passage(
    "A page holds 16 tokens. Less than 4% of the memory is wasted, while contiguous reservations "
    "waste 60 to 80%.",
    char_start=0,
)
QUERIES = Passage("Llama 2 70B has 64 query heads and 8 KV heads.", char_start=7)
CHINESE = Passage("键值缓存保存每个词元的键和值。缓存的大小随上下文长度线性增长。", char_start=3)
ALL = (SIZE, PAGES, QUERIES, CHINESE)
QUESTION = "How large is the KV cache of a 7B model for 1,024 tokens?"


def cite(answer: str, question: str, passages: Sequence[Passage]) -> Cited:
    return Citer(question, passages).cite(answer)


def supporting_words(cited: Cited, passages: tuple[Passage, ...] = ALL) -> list[str]:
    return [
        passages[s.rank].text[s.start - passages[s.rank].char_start :][: s.end - s.start]
        for s in cited.supports
    ]


def test_a_supported_sentence_gets_a_marker_and_the_exact_words() -> None:
    cited = cite("The KV cache of a 7B model takes 0.50 GiB for 1,024 tokens.", QUESTION, ALL)
    assert cited.answer == "The KV cache of a 7B model takes 0.50 GiB for 1,024 tokens. [1]"
    assert supporting_words(cited) == [
        "The KV cache of a 7B model for 1,024 tokens in fp16 takes 0.50 GiB."
    ]
    assert cited.notes == ()


def test_a_wrong_number_is_not_supported() -> None:
    cited = cite("The KV cache of a 7B model takes 1.6 GB for 1,024 tokens.", QUESTION, ALL)
    assert cited.supports == ()
    assert cited.answer == "The KV cache of a 7B model takes 1.6 GB for 1,024 tokens. [?]"
    assert [sentence.support for sentence in cited.sentences] == [None]
    assert cited.notes == (NOT_SUPPORTED,)


def test_a_measured_number_must_be_measured_in_the_same_unit() -> None:
    factors = Passage(
        "The calculation is 2 * 32 * 1,024 * 4,096 * 2 bytes. The KV cache for 1,024 tokens takes "
        "0.50 GiB. One token takes 512 KiB of KV cache."
    )
    wrong = cite("The KV cache for 1,024 tokens takes 2 GiB.", QUESTION, [factors])
    right = cite("One token takes 512 KiB of KV cache.", QUESTION, [factors])
    named = cite("The calculation is 2 * 32 * 1,024 * 4,096 * 2 B.", QUESTION, [factors])
    assert wrong.supports == ()
    assert right.supports
    assert named.supports


def test_a_number_taken_over_from_the_question_must_be_in_the_passage() -> None:
    wrong = cite("Yes, a page holds 32 tokens.", "Does a page hold 32 tokens?", ALL)
    right = cite("Yes, a page holds 16 tokens.", "Does a page hold 16 tokens?", ALL)
    assert wrong.supports == ()
    assert supporting_words(right) == ["A page holds 16 tokens."]


def test_repeating_the_question_is_no_support() -> None:
    cited = cite(
        "The KV cache of a 7B model for 1,024 tokens is stored by enormous warehouses.",
        QUESTION,
        ALL,
    )
    assert cited.supports == ()


def test_only_the_supported_sentences_get_markers_numbered_by_first_use() -> None:
    cited = cite(
        "A page holds 16 tokens. Bananas are yellow and sweet. "
        "Llama 2 70B has 8 KV heads. Less than 4% of memory is wasted.",
        "How are pages used?",
        ALL,
    )
    assert cited.answer == (
        "A page holds 16 tokens. [1] Bananas are yellow and sweet. [?] "
        "Llama 2 70B has 8 KV heads. [2] Less than 4% of memory is wasted. [1]"
    )
    assert [s.marker for s in cited.supports] == [1, 1, 2]
    assert [s.rank for s in cited.supports] == [1, 1, 2]


def test_two_neighbouring_sentences_can_support_one() -> None:
    passage = Passage("Keys are sensitive to rounding. Values tolerate four bits.")
    cited = cite(
        "Keys are sensitive to rounding while values tolerate four bits.", "Why?", (passage,)
    )
    assert supporting_words(cited, (passage,)) == [passage.text]


def test_chinese_sentences_are_supported_too() -> None:
    cited = cite("缓存的大小随上下文长度增长。香蕉是黄色水果。", "大小如何变化？", ALL)
    assert cited.answer == "缓存的大小随上下文长度增长。[1]香蕉是黄色水果。[?]"
    assert supporting_words(cited) == ["缓存的大小随上下文长度线性增长。"]


def test_markers_that_the_model_wrote_are_taken_out() -> None:
    cited = cite("A page holds 16 tokens [3]. See [2](https://example.org).", "Pages?", ALL)
    assert cited.answer.startswith("A page holds 16 tokens. [1]")
    assert "[3]" not in cited.answer
    assert "[2](https://example.org)" in cited.answer


def test_code_is_left_as_it_is() -> None:
    answer = "A page holds 16 tokens.\n\n```python\npage = pages[1]  # A page holds 16 tokens.\n```"
    cited = cite(answer, "How many tokens does a page hold?", ALL)
    assert cited.answer.endswith("```python\npage = pages[1]  # A page holds 16 tokens.\n```")
    assert cited.answer.startswith("A page holds 16 tokens. [1]")


def test_no_passages_and_no_answer_are_no_errors() -> None:
    assert cite("Something.", "What?", ()).notes == (NOT_SUPPORTED,)
    assert cite("", "What?", ALL) == Cited("")


def test_of_a_half_right_sentence_the_right_clause_is_marked() -> None:
    cited = cite(
        "The KV cache of a 7B model for 1,024 tokens takes 0.50 GiB, which is 999 KiB.",
        QUESTION,
        ALL,
    )
    assert cited.answer == (
        "The KV cache of a 7B model for 1,024 tokens takes 0.50 GiB [1], which is 999 KiB. [?]"
    )
    assert [sentence.support for sentence in cited.sentences] == [None]
    assert "0.50 GiB" in supporting_words(cited)[0]


def test_a_small_number_alone_is_no_support() -> None:
    assert cite("The answer is 8.", "What is the page size?", ALL).supports == ()
    right = cite("Llama 2 70B has 8 KV heads.", "How many KV heads does Llama 2 70B have?", ALL)
    assert supporting_words(right) == [QUERIES.text]


def test_a_question_in_the_answer_gets_no_marker() -> None:
    assert cite("Does a page hold 16 tokens?", "What holds what?", ALL).supports == ()


@pytest.mark.parametrize(
    ("wrong", "right", "source"),
    [
        (
            "The number of query heads matters for GQA.",
            "The number of query heads does not matter for GQA.",
            "The number of query heads does not matter for GQA and MQA.",
        ),
        (
            "Dropping a cache does not lose the tokens of a session.",
            "Dropping a cache loses the tokens of a session.",
            "Dropping a cache loses the tokens of a session.",
        ),
        (
            "The Orca system described scheduling in 2022 at Stanford University.",
            "The Orca system described scheduling in 2022.",
            "The Orca system described this iteration-level scheduling in 2022.",
        ),
        (
            "保存词元编号就不需要重新计算。",
            "保存词元编号也需要重新计算。",
            "保存词元编号也需要重新计算。",
        ),
    ],
)
def test_a_denial_or_a_name_of_its_own_is_not_supported(
    wrong: str, right: str, source: str
) -> None:
    passages = [Passage(source), *ALL]
    assert cite(wrong, "Why?", passages).supports == ()
    assert cite(right, "Why?", passages).sentences[0].support is not None


def test_a_name_may_stand_in_the_heading_above() -> None:
    passage = Passage("It was built in 1964 at the yard of Ames.", heading="# The ferry Calypso")
    cited = cite("The Calypso was built in 1964 at the yard of Ames.", "Where?", [passage, *ALL])
    assert cited.answer.endswith("[1]")


def test_what_asks_or_announces_gets_no_mark() -> None:
    cited = cite("What is a page?\n\nThe facts are:\n\n- A page holds 16 tokens.", "Pages?", ALL)
    assert [sentence.text for sentence in cited.sentences] == ["- A page holds 16 tokens."]


def test_a_sentence_is_complete_when_the_next_one_begins() -> None:
    assert complete("A page holds 16 tokens.") == 0
    text = "A page holds 16 tokens. It"
    assert text[: complete(text)] == "A page holds 16 tokens."


def test_numbers_of_two_sentences_are_not_put_together() -> None:
    passage = Passage(
        "A cache of 1,024 tokens takes 0.50 GiB of memory. One token takes 512 KiB of memory."
    )
    wrong = cite("A cache of 1,024 tokens takes 512 KiB of memory.", "How much?", [passage, *ALL])
    assert wrong.supports == ()


def test_a_clause_that_repeats_the_question_is_not_cited() -> None:
    cited = cite("A 7B model has 1,024 tokens, which is 999 MiB.", QUESTION, ALL)
    assert cited.answer == "A 7B model has 1,024 tokens, which is 999 MiB. [?]"
