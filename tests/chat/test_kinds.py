"""What is talk, what is about the conversation, and what about a whole document."""

import pytest

from chat.kinds import kind_of


@pytest.mark.parametrize(
    "question",
    ["hello", "Hi there!", "thanks", "Thank you so much!", "OK great, thanks", "good morning",
     "你好", "谢谢！", "你好，谢谢", "再见", "Who are you?"],
)  # fmt: skip
def test_talk(question: str) -> None:
    assert kind_of(question, follows=False) == "talk"


@pytest.mark.parametrize(
    "question",
    ["What did I just ask?", "Say that shorter.", "Can you say that shorter, please?",
     "What was my first question?", "shorter please", "translate that to German",
     "刚才我问了什么？", "再说一遍", "简短一点", "翻译成英文"],
)  # fmt: skip
def test_a_question_about_the_conversation_needs_one(question: str) -> None:
    assert kind_of(question, follows=True) == "conversation"
    assert kind_of(question, follows=False) != "conversation"


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("Summarise the document.", "summary"),
        ("What is this document about?", "summary"),
        ("总结一下这篇文档", "summary"),
        ("How many heads does it have?", "counting"),
        ("List all formulas.", "counting"),
        ("列出所有公式", "counting"),
    ],
)
def test_a_question_about_a_whole_document(question: str, kind: str) -> None:
    assert kind_of(question, follows=True) == kind


@pytest.mark.parametrize(
    "question",
    ["How large is the cache?", "What did the author say about pages?", "Does a good morning help?",
     "Why is thanks to caching the chat faster?", "早餐吃什么", "缓存有多大？", "And for GQA?",
     "What have I learnt about KV?", "High pressure"],
)  # fmt: skip
def test_any_other_question_is_one_to_the_documents(question: str) -> None:
    assert kind_of(question, follows=True) == "question"


def test_a_long_row_of_greetings_costs_no_time() -> None:
    assert kind_of("好的好" * 3000 + "x", follows=True) == "question"
    assert kind_of("hello " * 9 + "heron", follows=False) == "question"
