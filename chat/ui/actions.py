"""What happens when somebody does something on the page: calls of the services, and a Screen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import gradio as gr

from chat.ui.i18n import Words
from chat.ui.login import owner_of
from chat.ui.notices import EXPECTED, said, say
from chat.ui.screen import Screen, composer
from chat.ui.seen import Seen
from chat.ui.sentences import told
from chat.ui.tabs import NEWEST_TURNS
from chat.ui.text import escape
from chat.ui.turn_actions import TurnActions
from chat.ui.uploads import Outcome, take_in
from chat.ui.view import version


class Actions(TurnActions):
    """The handlers of one page: conversations, turns (see the base), documents, the clock."""

    # Conversations -------------------------------------------------------------------------

    @said
    def load(self, session_id: str, request: gr.Request) -> Screen:
        """The page was opened or reloaded: what is stored is what is shown."""
        tab = self._tab(request)
        tab.search = ""
        tab.reach = NEWEST_TURNS
        return self._screen_if_there(session_id or "", request)

    @said
    def open(self, event: gr.EventData, request: gr.Request) -> Screen:
        """A conversation was picked from the list."""
        tab = self._tab(request)
        tab.turn_to_another()
        return self._screen(str(event.session), request)

    @said
    def new(self, request: gr.Request) -> Screen:
        """An empty conversation; it is stored with its first question."""
        tab = self._tab(request)
        tab.turn_to_another()
        return self._screen("", request)

    @said
    def delete(self, session_id: str, event: gr.EventData, request: gr.Request) -> Screen:
        """A conversation is deleted; the page leaves it if it was shown."""
        tab, owner = self._tab(request), owner_of(request)
        gone = str(event.session)
        self._conversations.delete(gone, owner)
        if gone != session_id:
            return self._listed(session_id, request)
        tab.turn_to_another()
        return self._screen("", request)

    @said
    def rename(self, session_id: str, event: gr.EventData, request: gr.Request) -> Screen:
        """A conversation gets another name."""
        self._conversations.rename(str(event.session), str(event.title), owner_of(request))
        return self._listed(session_id, request)

    @said
    def search(self, text: str, session_id: str, request: gr.Request) -> Screen:
        """The list holds the conversations that hold these words."""
        self._tab(request).search = text
        return self._listed(session_id, request)

    def _listed(self, session_id: str, request: gr.Request) -> Screen:
        sessions = self._sessions(request)
        return Screen(history=self._history(session_id, sessions, request, Seen()))

    # Documents -----------------------------------------------------------------------------

    @said
    def upload(self, paths: Sequence[str] | None, request: gr.Request) -> Screen:
        """Files were dropped. Each stands alone, and none stays where it has an address."""
        for outcome in take_in(self._library, map(Path, paths or ()), owner_of(request)):
            _tell(outcome, self._words(request))
        return self._library_screen(request, Seen())._replace(upload=None)

    @said
    def add_sample(self, request: gr.Request) -> Screen:
        """The sample library, by one click."""
        if not self._sample_library.is_dir():
            gr.Warning(self._words(request)("no_samples"))
            return Screen()
        for path in self._library.expand([self._sample_library]):
            try:
                self._library.add(path, owner=owner_of(request))
            except EXPECTED as error:
                say(error, self._words(request))
        return self._library_screen(request, Seen())

    @said
    def remove(self, session_id: str, event: gr.EventData, request: gr.Request) -> Screen:
        """A document is removed; conversations keep what they quoted, marked as removed."""
        self._library.remove(str(event.document), owner_of(request))
        screen = self._library_screen(request, Seen())
        if self._tab(request).is_streaming:
            return screen
        turns = self._turns(session_id, request)
        shown = self._sources(turns[-1] if turns else None, request)
        return screen._replace(**self._transcript(turns, request), sources=shown)

    # The clock -----------------------------------------------------------------------------

    @said
    def tick(self, session_id: str, shown: str, request: gr.Request) -> Screen:
        """Every few seconds: only what differs from what the browser shows is sent."""
        tab, seen = self._tab(request), Seen.parse(shown)
        busy = not tab.is_streaming and self._conversations.is_running(session_id)
        if not seen.is_news("all", self._news(session_id, tab, request)) and not busy:
            screen = Screen(memory=self._memory_bar(request, seen))
            now = seen.dump()
            return screen._replace(seen=now) if now != shown else screen
        sessions = self._sessions(request)
        is_new = not session_id and not tab.is_streaming
        screen = self._library_screen(request, seen, is_new=is_new)._replace(
            history=self._history(session_id, sessions, request, seen)
        )
        if not tab.is_streaming:
            busy = self._is_answering(session_id, tab, sessions)
            # Another tab, or this one before it was reloaded, asked here: follow what is saved.
            if seen.is_news("version", version(session_id, sessions)) or busy:
                turns = self._turns(session_id, request)
                screen = screen._replace(**self._transcript(turns, request))
            if seen.is_news("busy", busy):
                screen = screen._replace(composer=composer(busy=busy))
        now = seen.dump()
        return screen._replace(seen=now) if now != shown else screen

    def unload(self, request: gr.Request) -> None:
        """The tab is gone."""
        self._tabs.forget(request.session_hash, owner_of(request))


def _tell(outcome: Outcome, words: Words) -> None:
    """What became of a file, where there is something to say. Notices are HTML."""
    document = outcome.document
    name = escape(outcome.name)
    if document is None:
        gr.Warning(escape(told(outcome.problem or words("something_wrong"), words)))
    elif document.duplicate:
        gr.Info(words("already_there", name=name))
    elif document.state == "refused":
        reason = escape(told(document.reason or "", words))
        gr.Warning(words("was_refused", name=name, reason=reason))
