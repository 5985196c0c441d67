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
    "question",
    ["Summarise the document.", "What is this document about?", "总结一下这篇文档",
     "Fasse den Bericht zusammen.", "Gib mir einen Überblick."],
)  # fmt: skip
def test_a_summary_is_of_a_whole_document(question: str) -> None:
    assert kind_of(question, follows=True) == "summary"


@pytest.mark.parametrize(
    "question",
    ["How many documents are there?", "How many chapters does the book have?",
     "How many different sections are there?", "How many pages does this document have?",
     "How many functions are described?", "How often is paging mentioned?",
     "How many formulas are in the document?", "How many authors does the paper cite?",
     "Which documents mention paging?", "Which of the chapters are about memory?",
     "List all formulas.", "Please name every author.", "Can you list each step?",
     "What are all the formats?", "Wie viele Kapitel hat das Buch?", "Wie oft wird Paging erwähnt?",
     "Welche Dokumente nennen Paging?", "Nenne alle Formeln.", "Liste mir alle Autoren auf.",
     "列出所有公式", "有多少篇文章？", "这本书有几章？", "文中提到了多少次分页？",
     "哪些文档提到分页？", "文档里一共有多少个公式？", "所有的格式有哪些？"],
)  # fmt: skip
def test_what_has_to_be_counted_or_listed_is_of_a_whole_document(question: str) -> None:
    assert kind_of(question, follows=True) == "counting"


@pytest.mark.parametrize(
    "question",
    ["How many tokens does a page hold?", "How many heads does it have?",
     "How many pages does a session of 1,000 tokens need?", "How many documents can it hold?",
     "How many token slots can a session waste with a page size of 16?",
     "How many of a book's pages are lost?",
     "How many nautical miles away can its light be seen?", "How often must the oil be changed?",
     "How many keepers lived there in total?", "Which of the two is faster?",
     "Do all of the heads share their keys?", "Does every layer that is cached need memory?",
     "Does it give each head a key of its own?", "How many bits per weight are used in the model?",
     "Wie viele Tokens passen auf eine Seite?", "Wie oft muss das Öl gewechselt werden?",
     "一页有多少个词元？", "它有几个头？", "缓存有哪些好处？", "所有头都共享键吗？",
     "一共需要多少内存？", "多少人住在灯塔里？"],
)  # fmt: skip
def test_a_count_that_a_sentence_states_is_a_question_like_any_other(question: str) -> None:
    assert kind_of(question, follows=True) == "question"


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
