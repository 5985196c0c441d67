"""Asking: in three steps, from the composer, again, in another's place, or by a suggestion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import gradio as gr

from chat.errors import TurnNotFound
from chat.options import AskOptions
from chat.services import is_small
from chat.ui import settings
from chat.ui.asking import Asking
from chat.ui.begin import editing_banner
from chat.ui.cost import progress_row
from chat.ui.login import owner_of
from chat.ui.notices import said, say
from chat.ui.screen import KEEP, Screen, Streamed, composer
from chat.ui.settings import Settings
from chat.ui.streaming import streamed
from chat.ui.tabs import CLOCK_S, MORE_TURNS, SLOW_CLOCK_S
from chat.ui.view import View
from chat.views import TurnView


class TurnActions(View):
    """The handlers of the transcript, the composer and the drawer."""

    # First step: the question leaves the composer and stands in the transcript ---------------

    @said
    def take(
        self,
        request: gr.Request,
        question: str,
        session_id: str,
        editing: str,
        *chosen: Any,
    ) -> Screen:
        """What was typed is sent."""
        asking = Asking(question, self._options(chosen, request), editing)
        screen = self._ask(asking, session_id, request)
        return screen._replace(editing="", banner="") if screen.transcript is not KEEP else screen

    @said
    def suggest(
        self, event: gr.EventData, request: gr.Request, session_id: str, *chosen: Any
    ) -> Screen:
        """A suggested question was clicked."""
        asking = Asking(str(event.question), self._options(chosen, request))
        return self._ask_beside(asking, session_id, request)

    @said
    def retry(
        self, event: gr.EventData, request: gr.Request, session_id: str, *chosen: Any
    ) -> Screen:
        """The same question again, in the place of its turn."""
        turn = self._turn(session_id, str(event.turn), request)
        asking = Asking(turn.question, self._options(chosen, request), turn.turn)
        return self._ask_beside(asking, session_id, request)

    def _ask_beside(self, asking: Asking, session_id: str, request: gr.Request) -> Screen:
        """Ask what did not come from the composer: what is being typed there stays."""
        screen = self._ask(asking, session_id, request)
        asked = screen.transcript is not KEEP
        return screen._replace(composer=composer(busy=True)) if asked else screen

    def _ask(self, asking: Asking, session_id: str, request: gr.Request) -> Screen:
        tab, words = self._tab(request), self._words(request)
        if not asking.question.strip():
            gr.Info(words("type_first"))
            return Screen()
        if self._is_answering(session_id, tab, self._sessions(request)):
            gr.Info(words("still_answering"))
            return Screen()
        tab.asking, tab.streaming = asking, tab.view
        before = asking.follows(self._turns(session_id, request))
        return Screen(
            **self._transcript(before, request, asking.question),
            quotes="",
            live="",
            progress=progress_row(words("searching")),
            composer=composer(busy=True, text=""),
            suggestions="",
            clock=gr.update(value=SLOW_CLOCK_S),
        )

    # Second and third ------------------------------------------------------------------------

    def answer(self, session_id: str, request: gr.Request) -> Iterator[Streamed]:
        """Second: the answer as it is written.

        A closed tab closes this generator: the turn stops and what there is is saved. A tab that
        shows another conversation meanwhile gets nothing of it, and the turn goes on.
        """
        tab, words = self._tab(request), self._words(request)
        asking, view = tab.take(), tab.view
        if asking is None:
            return
        try:
            events = self._conversations.ask(
                asking.question,
                session_id=session_id or None,
                owner=owner_of(request),
                options=asking.options,
                instead_of=asking.instead_of or None,
            )
        except Exception as error:  # nothing was saved: the question goes back
            say(error, words)
            tab.streaming = None if tab.streaming == view else tab.streaming
            tab.refused = asking if tab.view == view else None
            return
        try:
            for screen in streamed(
                events,
                asking.question,
                words,
                self._drawn(request),
                quotes_lead=is_small(self._engine),
            ):
                if tab.view == view:
                    yield screen
        except Exception as error:
            say(error, words)
        finally:
            events.close()
            if tab.streaming == view:
                tab.streaming = None

    @said
    def finish(self, session_id: str, request: gr.Request) -> Screen:
        """Third, however the second ended: the page shows what was saved."""
        tab = self._tab(request)
        refused, tab.refused = tab.refused, None
        screen = self._screen_if_there(session_id, request)._replace(
            sources=KEEP, clock=gr.update(value=CLOCK_S)
        )
        if refused is None:
            return screen
        screen = screen._replace(
            composer=composer(busy=False, text=refused.question), editing=refused.instead_of
        )
        if refused.instead_of:
            screen = screen._replace(banner=editing_banner(self._words(request)))
        kept = settings.shown(refused.options)._asdict()
        kept["ask_documents"] = gr.update(value=kept["ask_documents"])
        return screen._replace(**kept) if not session_id else screen

    @said
    def stop(self, session_id: str, request: gr.Request) -> Screen:
        """The engine is cancelled; the stream then ends by itself and the text stays."""
        if session_id:
            self._conversations.stop(session_id, owner_of(request))
        return Screen()

    # Turns that are there --------------------------------------------------------------------

    @said
    def pick(self, session_id: str, picked: str, request: gr.Request) -> Screen:
        """A marker or the count of sources was clicked: the sources of that turn."""
        turns = self._turns(session_id, request)
        wanted = next((turn for turn in turns if turn.turn == picked), None)
        return Screen(sources=self._sources(wanted, request))

    @said
    def edit(self, session_id: str, event: gr.EventData, request: gr.Request) -> Screen:
        """An earlier question goes into the composer, to be asked in its own place."""
        turn = self._turn(session_id, str(event.turn), request)
        return Screen(
            composer=gr.update(value=turn.question),
            editing=turn.turn,
            banner=editing_banner(self._words(request)),
        )

    def cancel_edit(self) -> Screen:
        """The question stays as it was."""
        return Screen(composer=gr.update(value=""), editing="", banner="")

    @said
    def show(self, session_id: str, event: gr.EventData, request: gr.Request) -> Screen:
        """Another version of a turn, with what followed it."""
        turn_id = str(event.turn)
        self._conversations.show(session_id, turn_id, owner_of(request))
        ids = [turn.turn for turn in self._turns(session_id, request)]
        if turn_id in ids:  # it may have more turns after it than are shown
            tab = self._tab(request)
            tab.reach = max(tab.reach, len(ids) - ids.index(turn_id))
        return self._screen(session_id, request)._replace(composer=composer(busy=False))

    @said
    def earlier(self, session_id: str, request: gr.Request) -> Screen:
        """More of the turns before those that are shown."""
        self._tab(request).reach += MORE_TURNS
        return Screen(**self._transcript(self._turns(session_id, request), request))

    def _turn(self, session_id: str, turn_id: str, request: gr.Request) -> TurnView:
        for turn in self._turns(session_id, request):
            if turn.turn == turn_id:
                return turn
        raise TurnNotFound(turn_id)

    # The drawer ------------------------------------------------------------------------------

    @said
    def configure(self, request: gr.Request, session_id: str, *chosen: Any) -> Screen:
        """A control was changed: it holds from the next question on, and is kept."""
        options = self._options(chosen, request)
        if session_id:
            self._conversations.configure(session_id, options, owner_of(request))
        return Screen(scope=settings.scope(options, self._words(request)))

    def _options(self, chosen: Sequence[Any], request: gr.Request) -> AskOptions:
        """What the controls of the drawer say, in their order."""
        documents = self._library.documents(owner_of(request))
        return settings.options_of(Settings(*chosen), documents)
