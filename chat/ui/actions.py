"""What happens when somebody does something on the page: calls of the services, and a Screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from chat.errors import SessionNotFound
from chat.ui import transcript
from chat.ui.conversation_list import conversation_list
from chat.ui.cost import progress_row
from chat.ui.documents_panel import documents_panel
from chat.ui.login import owner_of
from chat.ui.memory_bar import memory_bar
from chat.ui.notices import EXPECTED, said, say
from chat.ui.screen import KEEP, Screen, Streamed, composer
from chat.ui.seen import Seen
from chat.ui.sources import sources
from chat.ui.streaming import streamed
from chat.ui.tabs import Tab, Tabs
from chat.ui.text import escape
from chat.views import SessionView, TurnView

if TYPE_CHECKING:
    from chat.conversation import Conversations
    from engine import Engine
    from retrieval.library import Library
    from retrieval.views import DocumentView


class Actions:
    """The handlers of one page. Who asks is known from the request, never from an input."""

    def __init__(
        self,
        conversations: Conversations,
        library: Library,
        engine: Engine,
        sample_library: Path,
    ) -> None:
        self._conversations = conversations
        self._library = library
        self._engine = engine
        self._sample_library = sample_library
        self._tabs = Tabs()

    # Conversations -------------------------------------------------------------------------

    @said
    def load(self, session_id: str, request: gr.Request) -> Screen:
        """The page was opened or reloaded: what is stored is what is shown."""
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
            return Screen(history=conversation_list(self._sessions(request), session_id))
        tab.turn_to_another()
        return self._screen("", request)

    @said
    def pick(self, session_id: str, event: gr.EventData, request: gr.Request) -> Screen:
        """A marker or a cost line was clicked: the sources of that turn."""
        turns = self._turns(session_id, request)
        wanted = str(event.turn)
        return Screen(sources=sources(next((turn for turn in turns if turn.turn == wanted), None)))

    # Asking, in three steps ----------------------------------------------------------------

    @said
    def take(self, question: str, session_id: str, request: gr.Request) -> Screen:
        """First: the question leaves the composer and stands in the transcript."""
        tab = self._tab(request)
        if not question.strip():
            gr.Info("Type a question first.")
            return Screen()
        if self._is_answering(session_id, tab, self._sessions(request)):
            gr.Info("This conversation is still answering. Wait for it, or press Stop.")
            return Screen()
        tab.question, tab.streaming = question, tab.view
        return Screen(
            transcript=[
                *transcript.messages(self._turns(session_id, request)),
                transcript.question(question),
                transcript.below(progress_row("Searching the documents…")),
            ],
            composer=composer(busy=True, text=""),
        )

    def answer(self, session_id: str, request: gr.Request) -> Iterator[Streamed]:
        """Second: the answer as it is written, about ten times a second.

        A closed tab closes this generator: the turn stops and what there is is saved. A tab that
        shows another conversation meanwhile gets nothing of it, and the turn goes on.
        """
        tab = self._tab(request)
        question, view = tab.take_question(), tab.view
        if not question:
            return
        try:
            before = transcript.messages(self._turns(session_id, request))
            events = self._conversations.ask(
                question, session_id=session_id or None, owner=owner_of(request)
            )
        except Exception as error:  # nothing was saved: the question goes back
            say(error)
            tab.streaming = None if tab.streaming == view else tab.streaming
            tab.refused = question if tab.view == view else ""
            return
        try:
            for screen in streamed(events, question, before):
                if tab.view == view:
                    yield screen
        except Exception as error:
            say(error)
        finally:
            events.close()
            if tab.streaming == view:
                tab.streaming = None

    @said
    def finish(self, session_id: str, request: gr.Request) -> Screen:
        """Third, however the second ended: the page shows what was saved."""
        tab = self._tab(request)
        text, tab.refused = tab.refused, ""
        screen = self._screen_if_there(session_id, request)._replace(sources=KEEP)
        return screen._replace(composer=composer(busy=False, text=text)) if text else screen

    @said
    def stop(self, session_id: str, request: gr.Request) -> Screen:
        """The engine is cancelled; the stream then ends by itself and the text stays."""
        if session_id:
            self._conversations.stop(session_id, owner_of(request))
        return Screen()

    # Documents -----------------------------------------------------------------------------

    @said
    def upload(self, paths: Sequence[str] | None, request: gr.Request) -> Screen:
        """Files were dropped. Each stands alone, and none stays where it has an address."""
        for path in map(Path, paths or ()):
            try:
                self._tell(self._library.add(path, owner=owner_of(request), name=path.name))
            except Exception as error:
                say(error)
            finally:
                _discard(path)
        return self._library_screen(request, Seen())._replace(upload=None)

    @said
    def add_sample(self, request: gr.Request) -> Screen:
        """The sample library, by one click."""
        if not self._sample_library.is_dir():
            gr.Warning("The sample library is not installed here. Add files of your own instead.")
            return Screen()
        for path in self._library.expand([self._sample_library]):
            try:
                self._library.add(path, owner=owner_of(request))
            except EXPECTED as error:
                say(error)
        return self._library_screen(request, Seen())

    @said
    def remove(self, session_id: str, event: gr.EventData, request: gr.Request) -> Screen:
        """A document is removed; conversations keep what they quoted, marked as removed."""
        self._library.remove(str(event.document), owner_of(request))
        screen = self._library_screen(request, Seen())
        if self._tab(request).is_streaming:
            return screen
        turns = self._turns(session_id, request)
        shown = sources(turns[-1] if turns else None)
        return screen._replace(transcript=transcript.messages(turns), sources=shown)

    def _tell(self, document: DocumentView) -> None:
        name = escape(document.name)
        if document.duplicate:
            gr.Info(f"{name} is in the library already.")
        elif document.state == "refused":
            gr.Warning(f"{name} was refused. {escape(document.reason or '')}")

    # The clock -----------------------------------------------------------------------------

    @said
    def tick(self, session_id: str, shown: str, request: gr.Request) -> Screen:
        """Every two seconds: only what differs from what the browser shows is sent."""
        tab, seen = self._tab(request), Seen.parse(shown)
        sessions = self._sessions(request)
        screen = self._library_screen(request, seen)._replace(
            history=self._history(session_id, sessions, seen)
        )
        if not tab.is_streaming:
            busy = self._is_answering(session_id, tab, sessions)
            # Another tab, or this one before it was reloaded, asked here: follow what is saved.
            if seen.is_news("version", _version(session_id, sessions)) or busy:
                turns = self._turns(session_id, request)
                screen = screen._replace(transcript=transcript.messages(turns))
            if seen.is_news("busy", busy):
                screen = screen._replace(composer=composer(busy=busy))
        now = seen.dump()
        return screen._replace(seen=now) if now != shown else screen

    def unload(self, request: gr.Request) -> None:
        """The tab is gone."""
        self._tabs.forget(request.session_hash, owner_of(request))

    # Parts ---------------------------------------------------------------------------------

    def _screen_if_there(self, session_id: str, request: gr.Request) -> Screen:
        """The conversation, or an empty one where it was deleted meanwhile."""
        try:
            return self._screen(session_id, request)
        except SessionNotFound:
            return self._screen("", request)

    def _screen(self, session_id: str, request: gr.Request) -> Screen:
        """The whole page for a conversation ("": an empty one). Raises SessionNotFound."""
        seen = Seen()
        turns = self._turns(session_id, request)
        sessions = self._sessions(request)
        busy = self._is_answering(session_id, self._tab(request), sessions)
        seen.is_news("version", _version(session_id, sessions))
        seen.is_news("busy", busy)
        return self._library_screen(request, seen)._replace(
            session=session_id,
            transcript=transcript.messages(turns),
            sources=sources(turns[-1] if turns else None),
            history=self._history(session_id, sessions, seen),
            composer=composer(busy=busy),
            seen=seen.dump(),
        )

    def _library_screen(self, request: gr.Request, seen: Seen) -> Screen:
        """Documents and memory, where they differ from what is seen."""
        documents = self._library.documents(owner_of(request))
        panel = documents_panel(documents)
        memory = memory_bar(self._engine.memory(), self._engine.device_kind)
        is_empty = not documents
        return Screen(
            documents=panel if seen.is_news("documents", panel) else KEEP,
            memory=memory if seen.is_news("memory", memory) else KEEP,
            welcome=gr.update(visible=is_empty) if seen.is_news("empty", is_empty) else KEEP,
        )

    def _history(self, session_id: str, sessions: Sequence[SessionView], seen: Seen) -> Any:
        listed = conversation_list(sessions, session_id)
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


def _version(session_id: str, sessions: Sequence[SessionView]) -> Any:
    """Changes whenever the stored conversation does."""
    for session in sessions:
        if session.session == session_id:
            return session_id, session.turns, session.updated_at, session.running
    return session_id


def _discard(path: Path) -> None:
    """Remove an upload from Gradio's folder, whose files have addresses, with what Gradio left."""
    path.unlink(missing_ok=True)
    try:
        path.parent.rmdir()
        for left in path.parent.parent.glob("tmp*"):
            if left.is_file() and left.stat().st_size == 0:
                left.unlink()
    except OSError:
        pass  # another upload of the same content is on its way through the same folder
