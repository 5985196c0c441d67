"""The conversations of the left column."""

from __future__ import annotations

from collections.abc import Sequence

from chat.ui import figures
from chat.ui.text import escape
from chat.views import SessionView

EMPTY = '<p class="pt-hint">Your conversations will be listed here.</p>'


def conversation_list(sessions: Sequence[SessionView], current: str) -> str:
    """Newest first, as they come; the current one is marked."""
    if not sessions:
        return EMPTY
    items = "".join(_item(session, session.session == current) for session in sessions)
    return f'<ul class="pt-list" aria-label="Conversations">{items}</ul>'


def _item(session: SessionView, is_current: bool) -> str:
    current = ' aria-current="true"' if is_current else ""
    meta = "answering…" if session.running else figures.count(session.turns, "turn")
    return (
        f'<li><button type="button" class="pt-open" data-open="{escape(session.session)}"{current}>'
        f'<span class="pt-name" dir="auto">{escape(session.title or "Untitled")}</span>'
        f'<span class="pt-meta">{meta}</span></button>'
        f'<button type="button" class="pt-remove" data-remove="{escape(session.session)}" '
        f'data-sure="Delete?" title="Delete this conversation" '
        f'aria-label="Delete the conversation {escape(session.title)}"></button></li>'
    )
