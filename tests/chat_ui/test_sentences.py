"""What the services say is said in the page's language."""

import re
from dataclasses import replace

import pytest

from chat import notes
from chat.errors import (
    LibraryEmpty,
    QuestionEmpty,
    QuestionTooLong,
    SessionNotFound,
    TurnNotFound,
    TurnRunning,
)
from chat.ui.i18n import EN, ZH
from chat.ui.sentences import translated
from retrieval.views import Found

FOUND = Found(1, "d", "大小", "n", 1, 0, 9, "Text.", "", 1.0, 1, 1)


@pytest.mark.parametrize(
    "sentence",
    [
        notes.ONLY_QUOTES,
        notes.ANSWERED_ANYWAY.format(count=13),
        notes.small_talk(None),
        notes.small_talk("缓存"),
        notes.nothing_found(1, ()),
        notes.nothing_found(1200, ()),
        notes.passages_read([FOUND], 41),
        notes.passages_read([FOUND, replace(FOUND, title="缓存")], 41),
        notes.NOT_READY,
        notes.REPEATS_ITSELF,
        notes.NOT_SUPPORTED,
        notes.INTERRUPTED,
        *map(
            str,
            (
                SessionNotFound("s"),
                TurnNotFound("t"),
                TurnRunning("s"),
                LibraryEmpty(),
                QuestionEmpty(),
                QuestionTooLong(9000, 8000),
            ),
        ),
    ],
)
def test_every_sentence_of_a_conversation_has_its_chinese(sentence: str) -> None:
    chinese = translated(sentence, ZH)
    assert re.search("[\u4e00-\u9fff]", chinese)
    assert not re.search("[a-z]{3,} [a-z]{3,}", chinese)
    assert translated(sentence, EN) == sentence


def test_figures_stay_in_a_translated_sentence() -> None:
    assert "9,000" in translated(str(QuestionTooLong(9000, 8000)), ZH)
    note = "2 of 5 documents are ready; only they were searched."
    assert translated(note, ZH) == "5 个文档中有 2 个就绪，只搜索了这些。"


def test_a_sentence_that_is_not_known_stays_as_it_is() -> None:
    assert translated("The disk {0} is full.", ZH) == "The disk {0} is full."
