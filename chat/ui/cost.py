"""The quiet line under an answer: what the turn cost and how it ended."""

from __future__ import annotations

from chat.stats import TurnStats
from chat.ui import figures
from chat.ui.text import escape
from chat.views import TurnView

_ENDINGS = {
    "stopped": ("stopped", "You stopped this answer. What was written is kept."),
    "interrupted": ("interrupted", "The program ended while it answered. What was saved is here."),
    "error": ("failed", "This answer could not be finished."),
}


def cost_line(stats: TurnStats) -> str:
    """What was reused and what was computed, from the turn's own measurements."""
    parts = [
        f"{stats.cached_tokens:,} reused",
        f"{stats.computed_tokens:,} computed",
    ]
    if stats.ttft_s > 0:
        parts.append(f"first token {figures.seconds(stats.ttft_s)}")
    if stats.decode_tokens_per_s > 0:
        parts.append(f"{figures.rate(stats.decode_tokens_per_s)} tok/s")
    parts.append(f"KV {figures.size(stats.kv_bytes)}")
    return " · ".join(parts)


def cost_row(turn: TurnView) -> str:
    """The line as HTML, with how the turn ended, its notes and its error."""
    if turn.state == "pending":
        return progress_row("Answering…")
    line: list[str] = []
    if turn.state in _ENDINGS:
        word, meaning = _ENDINGS[turn.state]
        line.append(f'<span class="pt-ending" title="{escape(meaning)}">{word}</span>')
    elif turn.finish_reason == "length":
        line.append(
            '<span class="pt-ending" title="The answer reached its length limit.">cut short</span>'
        )
    sources = len({citation.marker for citation in turn.citations})
    if sources:
        line.append(_button(turn.turn, "pt-count", figures.count(sources, "source")))
    elif turn.retrieved:
        line.append(_button(turn.turn, "pt-count", figures.count(len(turn.retrieved), "passage")))
    if turn.finish_reason == "not_found":
        line.append('<span class="pt-figures">the model was not asked</span>')
    elif turn.stats:
        line.append(_button(turn.turn, "pt-figures", cost_line(turn.stats)))
    parts = [f'<div class="pt-cost">{"".join(line)}</div>'] if line else []
    if turn.error:
        parts.append(f'<p class="pt-error" dir="auto">{escape(turn.error)}</p>')
    parts.extend(f'<p class="pt-note" dir="auto">{escape(note)}</p>' for note in turn.notes)
    return "".join(parts)


def progress_row(text: str) -> str:
    """The same row while there is nothing to add up yet: what is going on."""
    return (
        f'<div class="pt-cost"><span class="pt-progress" role="status">{escape(text)}</span></div>'
    )


def _button(turn_id: str, name: str, text: str) -> str:
    return (
        f'<button type="button" class="{name}" data-turn="{escape(turn_id)}" '
        f'title="Show the sources of this answer">{escape(text)}</button>'
    )
