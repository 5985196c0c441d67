"""Conversations: ask, stop, list, rename, delete. What the page and the command line call."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING

from sqlalchemy.exc import SQLAlchemyError

from chat.context import Context, ContextStore
from chat.engine_sessions import EngineSessions
from chat.errors import LibraryEmpty, QuestionEmpty, TurnRunning
from chat.events import Event
from chat.notes import INTERRUPTED
from chat.options import AskOptions
from chat.prompt import SYSTEM_PROMPT, fit, render
from chat.retries import Retries
from chat.services import Services
from chat.store import ConversationStore, new_id
from chat.suggestions import Topic, topics
from chat.turn import Claim, RunningTurn
from chat.unsaved import Unsaved
from chat.views import HeldView, Quotes, SessionView, TurnView
from retrieval.gates import Gates

if TYPE_CHECKING:
    from engine import Engine
    from retrieval.database import Database
    from retrieval.library import Library


class Conversations:
    """The conversations of all owners; thread-safe. One turn at a time runs in each.

    Making it computes the static prompt, of which every conversation is a fork. Whoever may see a
    conversation is decided here: another owner's id raises SessionNotFound, like an unknown one.
    """

    def __init__(
        self,
        database: Database,
        library: Library,
        engine: Engine,
        defaults: AskOptions | None = None,
    ) -> None:
        self.defaults = defaults or AskOptions()
        engine.set_system(SYSTEM_PROMPT)
        store, self._retries = ConversationStore(database), Retries()
        self._services = Services(
            database=database,
            library=library,
            engine=engine,
            store=store,
            unsaved=Unsaved(store, self._retries),
            contexts=ContextStore(database),
            sessions=EngineSessions(engine),
            gates=Gates(database),
        )
        self._lock = Lock()
        self._claims: dict[str, Claim] = {}
        self._claimed = 0  # counts up with every change of them
        library.on_removed.append(self._forget_document)

    def recover(self) -> int:
        """Finish what a kill cut off; called at start.

        Turns that were left pending are marked; returns how many there were. Documents that were
        removed, and that conversations had not forgotten yet, are forgotten.
        """
        recovered = self._services.store.recover(self._services.engine.format.end, INTERRUPTED)
        self._forget_removed()
        return recovered

    def close(self) -> None:
        """Stop what runs, and give all KV back. The stored tokens open every conversation again.

        What could not be saved so far is tried a last time.
        """
        self._retries.close()
        hooks = self._services.library.on_removed
        if self._forget_document in hooks:
            hooks.remove(self._forget_document)
        for session_id in self._services.sessions.ids:
            self._drop_kv(session_id, stop=True)

    # Asking

    def ask(
        self,
        question: str,
        *,
        session_id: str | None = None,
        owner: str = "local",
        options: AskOptions | None = None,
        instead_of: str | None = None,
    ) -> Generator[Event, None, None]:
        """Save the question, and answer it while the generator is read.

        Without ``options`` the conversation's own hold, or ``defaults`` in a new one; given ones
        become its own.

        Without a ``session_id`` a conversation begins. The turn is saved, as pending, when this
        returns; closing the generator, read or unread, stops the turn and saves what there is.
        What goes wrong later ends in a Finished whose turn says so.

        ``instead_of`` is a turn of the conversation in whose place this one is asked: the same
        question again is a retry, another one an edit. What came before is not computed again,
        and the old branch stays (see ``show``).

        Raises, with nothing saved: QuestionEmpty, QuestionTooLong, LibraryEmpty, SessionNotFound,
        TurnNotFound, TurnRunning, NotSaved.
        """
        asked_at_s = time.perf_counter()
        question = question.strip()
        if not question:
            raise QuestionEmpty
        if self._services.library.is_empty(owner):
            raise LibraryEmpty
        if options is None:
            options = self.options(session_id, owner) if session_id else self.defaults
        opening = None if session_id else self._services.opening
        session_id = session_id or new_id()
        claim = self._claim(session_id)
        try:
            self._services.unsaved.save(session_id)
            context = opening or self._context(session_id, owner, instead_of)
            self._check_length(question, context, options)
            turn_id = self._services.store.begin(
                session_id, owner, question, opening, instead_of, options
            )
        except BaseException:
            self._release(session_id)
            raise
        turn = RunningTurn(
            self._services,
            session_id,
            turn_id,
            owner,
            question,
            context,
            options,
            asked_at_s,
            claim,
            self._ended,
        )
        with self._lock:
            claim.turn = turn
        events = turn.events()
        next(events)
        return events

    def stop(self, session_id: str, owner: str = "local") -> bool:
        """Stop the conversation's running turn; False if none is running."""
        self._services.store.require(session_id, owner)
        with self._lock:
            claim = self._claims.get(session_id)
        if claim is None or claim.turn is None:
            return False
        claim.turn.stop()
        return True

    def stop_all(self) -> int:
        """Stop every turn of every owner; returns how many have not ended yet."""
        with self._lock:
            claims = list(self._claims.values())
        for claim in claims:
            if claim.turn is not None:
                claim.turn.stop()
        return len(claims)

    # Looking after them

    @property
    def version(self) -> tuple[str, int]:
        """Changes with everything that is shown of conversations but the words of a running turn.

        Whoever saw the same version before need not look again.
        """
        return self._services.store.version, self._claimed

    @property
    def is_answering(self) -> bool:
        """Whether any turn is on its way."""
        return bool(self._claims)

    @property
    def held_pages(self) -> int:
        """How many pages of the pool hold something."""
        report = self._services.engine.memory()
        return report.pages_sessions + report.pages_cached

    def is_running(self, session_id: str) -> bool:
        """Whether a turn of this conversation is on its way."""
        with self._lock:
            return session_id in self._claims

    def sessions(self, owner: str = "local") -> list[SessionView]:
        """The owner's conversations, the one used last first."""
        with self._lock:
            running = set(self._claims)
        return [
            replace(view, running=view.session in running)
            for view in self._services.store.sessions(owner)
        ]

    def session(self, session_id: str, owner: str = "local") -> SessionView:
        """One conversation. Raises SessionNotFound."""
        return self._services.store.session(session_id, owner)

    def matching(self, words: str, owner: str = "local") -> set[str]:
        """The owner's conversations whose title, questions or answers hold all of the words."""
        return self._services.store.matching(owner, words)

    def options(self, session_id: str, owner: str = "local") -> AskOptions:
        """How the conversation's next question is answered. Raises SessionNotFound.

        Chosen documents that are gone are left out; where all are, all documents are asked.
        """
        options = self._services.store.options(session_id, owner)
        if options.documents is None:
            return options
        there = {document.id for document in self._services.library.documents(owner)}
        kept = tuple(id for id in options.documents if id in there)
        return replace(options, documents=kept or None)

    def configure(self, session_id: str, options: AskOptions, owner: str = "local") -> None:
        """From the next question on. Raises SessionNotFound."""
        self._services.store.configure(session_id, owner, options)

    def topics(self, owner: str = "local", limit: int = 3) -> list[Topic]:
        """What the owner's documents are about, to suggest first questions."""
        services = self._services
        return topics(services.database, services.library.documents(owner), limit)

    def turns(self, session_id: str, owner: str = "local") -> list[TurnView]:
        """The conversation from its first turn to its newest."""
        return self._services.unsaved.shown(self._services.store.turns(session_id, owner))

    def show(self, session_id: str, turn_id: str, owner: str = "local") -> None:
        """Go on from the branch that holds a turn (one of its ``versions``), from its newest end.

        Raises SessionNotFound, TurnNotFound, TurnRunning.
        """
        self._claim(session_id)
        try:
            self._services.store.show(session_id, owner, turn_id)
        finally:
            self._release(session_id)

    def rename(self, session_id: str, title: str, owner: str = "local") -> None:
        self._services.store.rename(session_id, owner, title)

    def delete(self, session_id: str, owner: str = "local") -> None:
        """Remove a conversation from the database and its KV from the pool; stops it first."""
        self._services.store.delete(session_id, owner)
        self._services.unsaved.forget(session_id)
        self._drop_kv(session_id, stop=True)

    def delete_all(self, owner: str) -> int:
        """Delete all conversations of an owner, as ``delete`` does; returns how many there were."""
        views = self._services.store.sessions(owner)
        for view in views:
            self.delete(view.session, owner)
        return len(views)

    # What they hold

    def held(self, owner: str = "local") -> list[HeldView]:
        """What the owner's conversations hold, the largest first; those without KV left out."""
        held = self._services.sessions.held()
        views = [
            HeldView(view.session, view.title, held[view.session], view.running)
            for view in self.sessions(owner)
            if view.session in held and held[view.session].pages
        ]
        return sorted(views, key=lambda view: -view.kv_bytes)

    def free_kv(self, session_id: str, owner: str = "local") -> None:
        """Give a conversation's KV back. Its tokens stay: the next question computes it again.

        Raises SessionNotFound, TurnRunning.
        """
        self._services.store.require(session_id, owner)
        self._claim(session_id)
        try:
            self._services.sessions.free(session_id)
        finally:
            self._release(session_id)

    def quotes(self, document_id: str, owner: str = "local") -> Quotes:
        """How many conversations quote a document, and how often."""
        return self._services.store.quotes(document_id, owner)

    # Inside

    def _context(self, session_id: str, owner: str, instead_of: str | None) -> Context:
        """What the next turn builds on, rendered again if another model wrote it."""
        services = self._services
        context = services.contexts.load(session_id, owner, instead_of)
        if context.model == services.engine.model_name:
            return context
        services.contexts.rewrite(
            session_id,
            owner,
            services.opening,
            services.user_message,
            services.assistant_message,
        )
        return services.contexts.load(session_id, owner, instead_of)

    def _check_length(self, question: str, context: Context, options: AskOptions) -> None:
        """Raises QuestionTooLong if the question does not fit even without passages and history."""
        engine = self._services.engine
        fit(
            lambda _, first: engine.format.user(render((), question), first),
            passages=0,
            static_tokens=len(context.static_tokens),
            turn_tokens=(),
            context_tokens=engine.context_tokens,
            max_answer_tokens=options.max_tokens,
        )

    def _claim(self, session_id: str) -> Claim:
        with self._lock:
            if session_id in self._claims:
                raise TurnRunning(session_id)
            claim = self._claims[session_id] = Claim()
            self._claimed += 1
            return claim

    def _release(self, session_id: str) -> None:
        with self._lock:
            self._claims.pop(session_id, None)
            self._claimed += 1

    def _ended(self, turn: RunningTurn) -> None:
        self._release(turn.session_id)
        if turn.claim.drop_kv:
            self._services.sessions.close(turn.session_id)
            # A deleted conversation's last words may have been saved after it was deleted.
            self._services.database.checkpoint()

    def _drop_kv(self, session_id: str, *, stop: bool = False) -> None:
        """Give a conversation's KV back: now, or as soon as its running turn has ended."""
        with self._lock:
            claim = self._claims.get(session_id)
            if claim is not None:
                claim.drop_kv = True
        if claim is None or claim.turn is None:
            self._services.sessions.close(session_id)
        elif stop:
            claim.turn.stop()

    def _forget_document(self, document_id: str, _owner: str) -> None:
        with self._lock:
            for claim in self._claims.values():
                claim.removed_documents.add(document_id)
        self._services.unsaved.document_removed(document_id)
        try:
            self._forget_removed()
        except SQLAlchemyError:  # the document is gone: that it cannot be forgotten yet is no error
            self._retries.add("what removed documents left", self._forget_removed)

    def _forget_removed(self) -> None:
        for session_id in self._services.forget_removed():
            self._drop_kv(session_id)
