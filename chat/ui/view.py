"""What every handler of the page builds on: the services, who asks, and the parts of a screen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import gradio as gr

from chat.errors import SessionNotFound
from chat.services import is_small
from chat.ui import settings, transcript
from chat.ui.begin import suggestions
from chat.ui.conversation_list import conversation_list
from chat.ui.documents_panel import documents_panel
from chat.ui.i18n import Words, words_for
from chat.ui.login import owner_of
from chat.ui.memory_bar import memory_bar
from chat.ui.screen import KEEP, Screen, composer
from chat.ui.seen import Seen
from chat.ui.services import Services
from chat.ui.sources import sources
from chat.ui.tabs import Tab, Tabs
from chat.views import SessionView, TurnView


@dataclass(eq=False)
class View(Services):
    """The parts of one page."""

    _tabs: Tabs = field(default_factory=Tabs, init=False)

    def _screen_if_there(self, session_id: str, request: gr.Request) -> Screen:
        """The conversation, or an empty one where it was deleted meanwhile."""
        try:
            return self._screen(session_id, request)
        except SessionNotFound:
            return self._screen("", request)

    def _screen(self, session_id: str, request: gr.Request) -> Screen:
        """The whole page for a conversation ("": an empty one). Raises SessionNotFound."""
        seen, words, owner = Seen(), words_for(request), owner_of(request)
        turns = self._turns(session_id, request)
        sessions = self._sessions(request)
        defaults = self._conversations.defaults
        options = self._conversations.options(session_id, owner) if session_id else defaults
        busy = self._is_answering(session_id, self._tab(request), sessions)
        seen.is_news("version", version(session_id, sessions))
        seen.is_news("busy", busy)
        screen = self._library_screen(request, seen, is_new=not turns)
        shown = settings.shown(options)
        return screen._replace(
            session=session_id,
            **self._transcript(turns, request),
            sources=self._sources(turns[-1] if turns else None, request),
            history=self._history(session_id, sessions, request, seen),
            composer=composer(busy=busy),
            seen=seen.dump(),
            editing="",
            banner="",
            scope=settings.scope(options, words),
            **shown._asdict()
            | {
                "ask_documents": screen.ask_documents | {"value": shown.ask_documents},
                "answer": gr.update(choices=settings.answers(words), value=shown.answer),
                "rewrite": gr.update(choices=settings.rewrites(words), value=shown.rewrite),
            },
        )

    def _transcript(
        self, turns: Sequence[TurnView], request: gr.Request, asked: str | None = None
    ) -> dict[str, Any]:
        """The newest turns, as many as this tab shows, and the way to the others.

        ``asked`` is a question whose answer comes in below; so does that of a pending turn where
        it is this tab that asked.
        """
        tab, words = self._tab(request), self._words(request)
        if asked is None and tab.is_streaming and turns and turns[-1].state == "pending":
            turns, asked = turns[:-1], turns[-1].question
        shown = transcript.messages(turns[-tab.reach :], words, quotes_lead=is_small(self._engine))
        return {
            "earlier": transcript.earlier(len(turns) - tab.reach, words),
            "transcript": shown if asked is None else [*shown, transcript.waiting(asked)],
        }

    def _library_screen(
        self, request: gr.Request, seen: Seen, *, is_new: bool | None = None
    ) -> Screen:
        """Documents and memory, where they are news.

        ``is_new`` says whether the conversation is empty, and gets first questions; None: as is.
        """
        words, owner = words_for(request), owner_of(request)
        documents = self._library.documents(owner)
        panel = documents_panel(documents, words)
        choices = settings.choices(documents)
        first = suggestions(self._conversations.topics(owner), words) if is_new else ""
        return Screen(
            documents=panel if seen.is_news("documents", panel) else KEEP,
            memory=self._memory_bar(request, seen),
            suggestions=(
                first if is_new is not None and seen.is_news("suggestions", first) else KEEP
            ),
            ask_documents=(
                gr.update(choices=choices) if seen.is_news("choices", choices) else KEEP
            ),
        )

    def _memory_bar(self, request: gr.Request, seen: Seen) -> Any:
        bar = memory_bar(self._engine.memory(), self._engine.device_kind, words_for(request))
        return bar if seen.is_news("memory", bar) else KEEP

    def _news(self, session_id: str, tab: Tab, request: gr.Request) -> Any:
        """Changes whenever anything on the page may but the bar of memory and a running turn.

        Asking for it costs the same whatever there is: nothing is read or counted.
        """
        versions = self._conversations.version, self._library.version
        return versions, session_id, tab.search, tab.is_streaming, words_for(request).language

    def _history(
        self, session_id: str, sessions: Sequence[SessionView], request: gr.Request, seen: Seen
    ) -> Any:
        """The conversations that hold what was searched for; all of them where nothing was."""
        searched = self._tab(request).search
        if searched.strip():
            found = self._conversations.matching(searched, owner_of(request))
            sessions = [session for session in sessions if session.session in found]
        words = words_for(request)
        listed = conversation_list(sessions, session_id, words, searched=bool(searched.strip()))
        return listed if seen.is_news("history", listed) else KEEP

    def _sessions(self, request: gr.Request) -> list[SessionView]:
        return self._conversations.sessions(owner_of(request))

    def _turns(self, session_id: str, request: gr.Request) -> list[TurnView]:
        return self._conversations.turns(session_id, owner_of(request)) if session_id else []

    def _is_answering(self, session_id: str, tab: Tab, sessions: Sequence[SessionView]) -> bool:
        return tab.is_streaming or any(
            session.running for session in sessions if session.session == session_id
        )

    def _tab(self, request: gr.Request) -> Tab:
        return self._tabs.of(request.session_hash, owner_of(request))

    def _sources(self, turn: TurnView | None, request: gr.Request) -> str:
        return sources(turn, self._words(request), self._drawn(request))

    def _drawn(self, request: gr.Request) -> set[str]:
        """The documents whose pages can be shown as pictures."""
        documents = self._library.documents(owner_of(request))
        return {document.id for document in documents if document.format == "pdf"}

    def _words(self, request: gr.Request) -> Words:
        return words_for(request)


def version(session_id: str, sessions: Sequence[SessionView]) -> Any:
    """Changes whenever the stored conversation does."""
    for session in sessions:
        if session.session == session_id:
            return session_id, session.turns, session.updated_at, session.running
    return session_id
