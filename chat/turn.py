"""One turn, from the question that is saved to the answer that is saved.

    saved as pending -> search -> evidence -> what the model reads is saved -> generation -> saved
                                     |                                                        ^
                                     +-- no answer there, or no text wanted: without the model -+

The evidence, the documents' own words, is shown and saved before the model begins. It is no part
of what the model reads later.

Whatever ends the turn early (Stop, a closed generator, an error) saves what there is, marked so.
A kill leaves the newest checkpoint, which ``Conversations.recover`` marks at the next start.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Thread

from sqlalchemy.exc import SQLAlchemyError

from chat.clock import NOTICEABLE_S, in_words, slept_s
from chat.collection import is_collecting
from chat.context import Context
from chat.errors import SessionNotFound
from chat.events import Delta, Event, Finished, Quoted, Retrieved, Started
from chat.finding import Finder, Findings
from chat.judged import Judged
from chat.kinds import Kind, kind_of
from chat.notes import (
    ANSWERED_ANYWAY,
    NOT_READY,
    NOT_WRITTEN,
    ONLY_QUOTES,
    nothing_found,
    passages_read,
    small_talk,
)
from chat.options import AskOptions
from chat.prompt import Fit, fit, render
from chat.services import Services
from chat.stats import TurnStats
from chat.store import Outcome
from chat.views import TurnState, TurnView
from chat.writer import Writer
from engine.errors import EngineError
from retrieval.errors import RetrievalError

CHECKPOINT_S = 0.5
UNFORESEEN = "Something went wrong inside Pageturn: {!r}"
SLEPT = "The computer slept for {how_long} while this was being answered."


log = logging.getLogger(__name__)


@dataclass
class Claim:
    """A conversation that is worked on, and what becomes of it meanwhile.

    ``turn`` is the running one, once there is one to stop. ``removed_documents`` fills from the
    moment of the claim on. With ``drop_kv`` its stored tokens have changed or gone: what the
    engine holds for it is given back at the end.
    """

    turn: RunningTurn | None = None
    removed_documents: set[str] = field(default_factory=set)
    drop_kv: bool = False


@dataclass
class RunningTurn:
    """A turn on its way. ``events`` runs in the asker's thread; ``stop`` may come from any.

    ``asked_at_s`` is the ``time.perf_counter()`` of the question. ``on_end`` is called once, when
    the turn is saved (or kept for that) and before the last event, so that the next question may
    follow on that.
    """

    services: Services
    session_id: str
    turn_id: str
    owner: str
    question: str
    context: Context
    options: AskOptions
    asked_at_s: float
    claim: Claim
    on_end: Callable[[RunningTurn], None]

    stopping: bool = False

    _kind: Kind = "question"
    _finder: Finder | None = None
    _findings: Findings = field(default_factory=Findings)
    _writer: Writer | None = None
    _judged: Judged = field(default_factory=Judged)
    # What is said where the model is not asked, and the finish reason then.
    _text: str = ""
    _said: str = "not_found"
    _evidence_s: float = 0.0
    _ttft_s: float = 0.0
    _notes: list[str] = field(default_factory=list)
    _slept_before_s: float = field(default_factory=slept_s)
    _ended: bool = False

    def stop(self) -> None:
        """End the turn within one step of the engine, from any thread."""
        self.stopping = True
        if self._finder is not None:
            self._finder.stop()
        if self._writer is not None:
            self._writer.stop()

    def events(self) -> Generator[Event, None, None]:
        """Answer the question. Closing the generator stops the turn and saves it."""
        started = Started(self.session_id, self.turn_id)
        try:
            yield started  # taken by ask(): closing a generator that nobody reads comes by here too
            yield started
            yield from self._answer()
            view = self._end("done")
        except GeneratorExit:
            if is_collecting() or self.services.engine.is_own_thread:
                # Whoever waits here may hold what the end of the turn waits for: the engine's lock,
                # ours, or on the engine's thread the engine itself.
                Thread(target=self._end, args=("stopped",), name="end-of-turn").start()
            else:
                self._end("stopped")
            raise
        except (EngineError, RetrievalError) as error:
            view = self._end("error", str(error))
        except SessionNotFound:  # the conversation was deleted meanwhile
            view = self._end("stopped")
        except SQLAlchemyError:
            log.exception("the turn %s could not be written on its way", self.turn_id)
            view = self._end("error", NOT_WRITTEN)
        except BaseException as error:
            self._end("error", UNFORESEEN.format(error))
            raise
        if view is not None:
            yield Finished(view)

    # The way of a turn

    def _answer(self) -> Generator[Event, None, None]:
        self._kind = kind_of(self.question, follows=bool(self.context.earlier))
        documents = self.services.documents_ready(self.owner, self.options.documents)
        if documents.ready < documents.total:
            self._notes.append(
                f"{documents.ready} of {documents.total} documents are ready; only they were "
                "searched."
            )
        if self._kind in ("talk", "conversation"):
            yield Retrieved((), 0.0)
            yield from self._converse()
            return
        self._finder = Finder(
            self.services,
            self.turn_id,
            self.owner,
            self.question,
            self._kind,
            self.context,
            self.options,
        )
        if self.stopping:  # Stop came before there was anything to stop
            self._finder.stop()
        self._findings = self._finder.find()
        self._save_found(self._findings.judged)
        self._evidence_s = time.perf_counter() - self.asked_at_s
        yield Retrieved(self._judged.found, self._findings.retrieve_s)
        if self.stopping:
            return
        if self._judged.quotes:
            views = tuple(quote.view() for quote in self._judged.quotes)
            yield Quoted(views, self._is_answerable, self._evidence_s)
        if not documents.ready and documents.total:
            yield from self._say(NOT_READY)
        elif not self._judged.found or (
            self._is_answerable is False and self.services.model_is_small
        ):
            yield from self._say(nothing_found(documents.ready, self._judged.quotes))
        elif self.options.answer == "evidence":
            self._said = "evidence"
        else:
            if self._is_answerable is False:
                self._notes.append(ANSWERED_ANYWAY.format(count=documents.ready))
            yield from self._generate(self._prepare())

    @property
    def _is_answerable(self) -> bool | None:
        gate = self._judged.gate
        return None if gate is None else gate >= 0

    def _converse(self) -> Generator[Event, None, None]:
        """What is no question to the documents; the model answers from the conversation.

        A small one has nothing to say to a greeting but nonsense.
        """
        if self.stopping:
            return
        if self._kind == "talk" and self.services.model_is_small:
            self._said = "talk"
            title = self.services.newest_title(self.owner, self.options.documents)
            yield from self._say(small_talk(title))
        elif self.options.answer == "evidence":
            self._said = "evidence"
            yield from self._say(ONLY_QUOTES)
        else:
            yield from self._generate(self._prepare())

    def _save_found(self, judged: Judged) -> None:
        """Save it without documents that are removed, up to this very moment."""
        while True:
            self._judged = judged.without(self.claim.removed_documents)
            self.services.store.save_found(self.turn_id, self._judged, self._notes)
            found = (passage.document_id for passage in self._judged.found)
            if self.claim.removed_documents.isdisjoint(found):
                return

    def _prepare(self) -> Fit:
        """Choose what the model reads, and save that before it does."""
        services, engine = self.services, self.services.engine
        if self.claim.drop_kv:  # a document was removed since the context was read
            self.context = services.contexts.load(self.session_id, self.owner)
        found = self._judged.found
        wanted = len(found) if self._findings.reads_whole else min(self.options.read, len(found))
        prompt = fit(
            lambda count, first: engine.format.user(render(found[:count], self.question), first),
            passages=wanted,
            static_tokens=len(self.context.static_tokens),
            turn_tokens=[len(turn.tokens) for turn in self.context.turns],
            context_tokens=engine.context_tokens,
            max_answer_tokens=self.options.max_tokens,
        )
        if prompt.leaving_turns:
            services.contexts.trim(
                self.session_id, self.owner, prompt.leaving_turns, services.user_message
            )
            self.context = services.contexts.load(self.session_id, self.owner)
            self._notes.append(
                f"The model's context was full: the {prompt.leaving_turns} oldest of the turns "
                "that it still read have left it. They stay readable here."
            )
        notes = [*self._notes]
        if prompt.passages < wanted:
            notes.append(
                f"The model's context had room for {prompt.passages} of the {wanted} passages "
                "that it should have read."
            )
        if self._kind in ("summary", "counting") and prompt.passages:
            read = found[: prompt.passages]
            notes.append(passages_read(read, services.passage_counts(read)))
        if not services.store.save_prompt(self.turn_id, prompt.passages, prompt.tokens, notes):
            # A document was removed since the search: find out again what is left to read.
            self._save_found(self._judged)
            return self._prepare()
        self._notes = notes
        return prompt

    def _generate(self, prompt: Fit) -> Generator[Event, None, None]:
        writer = Writer(self.services, self.context, self.question, self._judged.found)
        self._writer = writer
        if self.stopping:  # Stop came before there was anything to stop
            writer.stop()
        saved_at_s = time.perf_counter()
        for event in writer.write(self.session_id, self.owner, prompt, self.options):
            now_s = time.perf_counter()
            self._ttft_s = self._ttft_s or now_s - self.asked_at_s
            yield event
            if now_s - saved_at_s >= CHECKPOINT_S:
                # One that fails costs nothing yet: the next one or the end saves all of it.
                with suppress(SQLAlchemyError):
                    self.services.store.checkpoint(self.turn_id, writer.text, writer.tokens)
                saved_at_s = now_s

    def _say(self, sentence: str) -> Generator[Event, None, None]:
        """Answer with a fixed sentence, without the model."""
        self._text = sentence
        yield Delta(sentence)

    # The end of a turn

    def _end(self, state: TurnState, error: str | None = None) -> TurnView | None:
        """Save the turn, once. None if that was done before, or the conversation is deleted.

        What cannot be saved now is kept in memory (``unsaved``): the turn has ended all the same.
        """
        if self._ended:
            return None
        slept = slept_s() - self._slept_before_s
        if slept >= NOTICEABLE_S:
            self._notes.append(SLEPT.format(how_long=in_words(slept)))
        try:
            outcome = self._outcome(state, error)
        except Exception as fault:
            if state == "done":  # ``events`` comes by here again, with the error
                raise
            log.exception("the end of the turn %s could not be made", self.turn_id)
            text = self._text
            if self._writer is not None:
                self._writer.stop()
                text = self._writer.text
            outcome = Outcome("error", text, "error", error=error or UNFORESEEN.format(fault))
        self._ended = True
        try:
            view = self._save(outcome)
            if view is None:  # the conversation was deleted meanwhile: nothing of it may stay
                self.claim.drop_kv = True
            return view
        finally:
            self.on_end(self)

    def _save(self, outcome: Outcome) -> TurnView | None:
        try:
            return self.services.store.finish(self.turn_id, outcome)
        except Exception:
            log.exception("the end of the turn %s could not be saved", self.turn_id)
        view = TurnView(
            session=self.session_id,
            turn=self.turn_id,
            question=self.question,
            answer=outcome.answer,
            state=outcome.state,
            created_at=datetime.now(UTC),
            evidence=tuple(quote.view() for quote in self._judged.quotes),
            gate=self._judged.gate,
            versions=(self.turn_id,),
        )
        return self.services.unsaved.keep(view, outcome, self.claim.removed_documents)

    def _outcome(self, state: TurnState, error: str | None) -> Outcome:
        own_stats = TurnStats(
            ttft_s=self._ttft_s,
            retrieve_s=self._findings.retrieve_s,
            rewrite_s=self._findings.rewrite_s,
            evidence_s=self._evidence_s,
            total_s=time.perf_counter() - self.asked_at_s,
        )
        writer = self._writer
        if writer is None or not writer.has_begun:
            if state == "done" and self.stopping:
                state = "stopped"
            reason = {"done": self._said, "stopped": "cancelled"}.get(state, state)
            return Outcome(
                state, self._text, reason, stats=own_stats, error=error, notes=self._notes
            )
        answer = writer.end(state)
        if answer is None:
            self.claim.drop_kv = True  # what the session holds is not what is stored
            tokens = writer.closed(writer.tokens)
            return Outcome(
                "error",
                writer.text,
                "error",
                tokens,
                stats=own_stats,
                error=error,
                notes=self._notes,
            )
        return Outcome(
            state=answer.state,
            answer=answer.cited.answer,
            finish_reason=answer.finish_reason,
            answer_tokens=answer.tokens,
            supports=answer.cited.supports,
            read_before=writer.read_before,
            removed_documents=self.claim.removed_documents,
            sentences=answer.cited.sentences,
            stats=TurnStats.of(answer.stats, own_stats),
            error=error,
            notes=[*self._notes, *answer.notes],
        )
