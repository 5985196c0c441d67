"""Turns as the messages of a Gradio chatbot."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from chat.citations import UNSUPPORTED
from chat.notes import without_closest
from chat.ui.cost import cost_row
from chat.ui.i18n import EN, Words
from chat.ui.icons import EDIT
from chat.ui.quotes import quotes
from chat.ui.sentences import translated
from chat.ui.text import escape, safe_markdown
from chat.views import TurnView

Message = dict[str, Any]


def messages(
    turns: Iterable[TurnView], words: Words = EN, *, quotes_lead: bool = True
) -> list[Message]:
    """Question, answer and cost of every turn, oldest first."""
    return [
        message for turn in turns for message in turn_messages(turn, words, quotes_lead=quotes_lead)
    ]


def turn_messages(turn: TurnView, words: Words = EN, *, quotes_lead: bool = True) -> list[Message]:
    """One turn. The question and the cost are HTML of ours, so that copying takes answers only.

    ``quotes_lead``: the quotations stand above the model's text, else below it.
    """
    links = {
        citation.marker: source_link(turn.turn, citation.marker)
        for citation in turn.citations
        if citation.marker
    }
    links[UNSUPPORTED] = f'#unsupported-{turn.turn} "{words("unsupported")}"'
    text = turn.answer if turn.stats and turn.stats.generated_tokens else ""
    text = text or translated(without_closest(turn.answer), words)
    answered = bool(text) and turn.finish_reason != "not_found"
    evidence = quotes(
        turn.turn,
        turn.evidence,
        turn.answerable,
        words,
        answered=answered,
        announced=answered and quotes_lead,
    )
    shown = [[below(evidence)] if evidence else [], answer(safe_markdown(text, links))]
    # Where it is said that there is no answer, what comes closest follows.
    if not answered or not quotes_lead:
        shown.reverse()
    return [
        question(turn.question, turn.turn if turn.state != "pending" else None, words),
        *shown[0],
        *shown[1],
        below(cost_row(turn, words)),
    ]


def waiting(text: str) -> Message:
    """A question whose answer comes in below the transcript: see ``live`` in page.py."""
    return _html(
        "user",
        f'<div class="pt-asks" data-waits><div class="pt-question" dir="auto">{escape(text)}</div>'
        "</div>",
    )


def question(text: str, turn_id: str | None = None, words: Words = EN) -> Message:
    """What the person asked, letter by letter: neither Markdown nor HTML.

    With the id of its turn it can be changed.
    """
    edit = (
        f'<button type="button" class="pt-act pt-edit" data-edit="{escape(turn_id)}" '
        f'title="{words("edit_hint")}" aria-label="{words("edit_hint")}">{EDIT}</button>'
        if turn_id
        else ""
    )
    asked = f'<div class="pt-question" dir="auto">{escape(text)}</div>'
    # The button comes when the turn has ended: after the question, which stays where it is.
    return _html("user", f'<div class="pt-asks">{asked}{edit}</div>')


def answer(markdown: str) -> list[Message]:
    """The answer so far; no message at all while nothing is written."""
    return [{"role": "assistant", "content": markdown}] if markdown.strip() else []


def below(row: str) -> Message:
    """The row under an answer."""
    return _html("assistant", row)


def earlier(count: int, words: Words = EN) -> str:
    """The way to the turns that are not shown yet; nothing where all are."""
    if count <= 0:
        return ""
    said = words("earlier", count=f"{count:,}")
    return f'<button type="button" class="pt-earlier" data-earlier>{escape(said)}</button>'


def source_link(turn_id: str, marker: str) -> str:
    """Where a marker such as "[1]" leads: an address in the page that its script understands."""
    return f"#source-{turn_id}-{marker.strip('[]')}"


def _html(role: str, value: str) -> Message:
    return {
        "role": role,
        "content": [
            {
                "type": "component",
                "component": "html",
                "value": value,
                "constructor_args": {},
                "props": {"apply_default_css": False},
            }
        ],
    }
