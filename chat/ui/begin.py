"""What the middle of the page shows beside the transcript: first questions, and an edit."""

from __future__ import annotations

import re
from collections.abc import Sequence

from chat.suggestions import Topic
from chat.ui.i18n import EN, ZH, Words
from chat.ui.text import escape

_CHINESE = re.compile("[\u4e00-\u9fff]")


def suggested(topic: Topic) -> str:
    """A question about the topic, in the language of its document."""
    if topic.is_question:
        return topic.heading
    words = ZH if _CHINESE.search(topic.title + topic.heading) else EN
    if topic.heading:
        return words("suggest_heading", title=topic.title, heading=topic.heading)
    return words("suggest_title", title=topic.title)


def suggestions(topics: Sequence[Topic], words: Words = EN) -> str:
    """Buttons that ask; nothing without a topic."""
    if not topics:
        return ""
    questions = dict.fromkeys(suggested(topic) for topic in topics)
    buttons = "".join(
        f'<button type="button" dir="auto" data-suggest="{escape(question)}">'
        f"{escape(question)}</button>"
        for question in questions
    )
    return f'<p class="pt-hint">{words("suggestions")}</p><div class="pt-suggest">{buttons}</div>'


def editing_banner(words: Words = EN) -> str:
    """Above the composer while it holds an earlier question."""
    return (
        f'<div class="pt-editing" role="status"><span>{words("editing")}</span>'
        f'<button type="button" data-cancel-edit>{words("cancel")}</button></div>'
    )
