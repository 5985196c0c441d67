"""The conversations of the left column."""

from __future__ import annotations

from collections.abc import Sequence

from chat.ui.i18n import EN, Words
from chat.ui.text import escape
from chat.views import SessionView

# What the menu of an entry offers; chat.js opens it.
_MENU = ("rename", "rename_label", "export_markdown", "export_json", "delete", "delete_sure")


def conversation_list(
    sessions: Sequence[SessionView], current: str, words: Words = EN, *, searched: bool = False
) -> str:
    """Newest first, as they come; the current one is marked."""
    if not sessions:
        return f'<p class="pt-hint">{words("no_match" if searched else "no_conversations")}</p>'
    items = "".join(_item(session, session.session == current, words) for session in sessions)
    menu = " ".join(f'data-{key.replace("_", "-")}="{escape(words(key))}"' for key in _MENU)
    return f'<ul class="pt-list" aria-label="{words("conversations")}" {menu}>{items}</ul>'


def _item(session: SessionView, is_current: bool, words: Words) -> str:
    current = ' aria-current="true"' if is_current else ""
    meta = words("answering") if session.running else words.count(session.turns, "turns")
    title = escape(session.title or words("untitled"))
    menu = escape(words("conversation_menu", title=session.title or words("untitled")))
    return (
        f'<li><button type="button" class="pt-open" data-open="{escape(session.session)}"{current}>'
        f'<span class="pt-name" dir="auto">{title}</span>'
        f'<span class="pt-meta">{meta}</span></button>'
        f'<button type="button" class="pt-more" data-menu="{escape(session.session)}" '
        f'data-title="{escape(session.title)}" aria-haspopup="menu" aria-label="{menu}">⋯</button>'
        "</li>"
    )
