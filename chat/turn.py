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

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chat.citations import Cited, Citer, complete
from chat.clock import NOTICEABLE_S, in_words, slept_s
from chat.context import Context, ReadPassage
from chat.events import Delta, Event, Finished, Quoted, Retrieved, Started, Written
from chat.finding import Finder, Findings
from chat.judged import Judged
from chat.kinds import Kind, kind_of
from chat.notes import (
    ANSWERED_ANYWAY,
    NOT_READY,
    ONLY_QUOTES,
    REPEATS_ITSELF,
    nothing_found,
    passages_read,
    small_talk,
)
from chat.options import AskOptions
from chat.prompt import Fit, fit, render
from chat.repetition import circle_start, whole_sentences
from chat.services import Services
from chat.stats import TurnStats
from chat.store import Outcome
from chat.views import TurnState, TurnView
from engine.errors import EngineError
from retrieval.errors import RetrievalError

if TYPE_CHECKING:
    from engine import Generation, GenerationResult

CHECKPOINT_S = 0.5
SLEPT = "The computer slept for {how_long} while this was being answered."


@dataclass
class RunningTurn:
    """A turn on its way. ``events`` runs in the asker's thread; ``stop`` may come from any.

    ``asked_at_s`` is the ``time.perf_counter()`` of the question. ``on_end`` is called once, when
    the turn is saved and before the last event, so that the next question may follow on that.
    """

    services: Services
    session_id: str
    turn_id: str
    owner: str
    question: str
    context: Context
    options: AskOptions
    asked_at_s: float
    on_end: Callable[[RunningTurn], None]

    stopping: bool = False
    # Documents removed, or the whole conversation deleted, while the turn was on its way.
    removed_documents: set[str] = field(default_factory=set)
    drop_kv: bool = False

    _generation: Generation | None = None
    _kind: Kind = "question"
    _finder: Finder | None = None
    _findings: Findings = field(default_factory=Findings)
    _judged: Judged = field(default_factory=Judged)
    _citer: Citer | None = None
    _read_before: tuple[ReadPassage, ...] = ()
    _text: str = ""
    _said: str = "not_found"  # the finish reason where the model is not asked
    _answer_tokens: Sequence[int] = ()
    _kept_tokens: int | None = None  # set once the answer goes round in circles
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
        if self._generation is not None:
            self._generation.cancel()

    def events(self) -> Generator[Event, None, None]:
        """Answer the question. Closing the generator stops the turn and saves it."""
        started = Started(self.session_id, self.turn_id)
        try:
            yield started  # taken by ask(): closing a generator that nobody reads comes by here too
            yield started
            yield from self._answer()
            view = self._end("done")
        except GeneratorExit:
            self._end("stopped")
            raise
        except (EngineError, RetrievalError) as error:
            view = self._end("error", str(error))
        except BaseException as error:
            self._end("error", f"Something went wrong inside Pageturn: {error!r}")
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
            self._judged = judged.without(self.removed_documents)
            self.services.store.save_found(self.turn_id, self._judged, self._notes)
            if self.removed_documents.isdisjoint(p.document_id for p in self._judged.found):
                return

    def _prepare(self) -> Fit:
        """Choose what the model reads, and save that before it does."""
        services, engine = self.services, self.services.engine
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
        services = self.services
        held = self.context.tokens
        session, missing = services.sessions.resume(self.session_id, self.owner, held)
        self._generation = services.engine.generate(
            session,
            [*missing, *prompt.tokens],
            self.options.sampling(prompt.max_answer_tokens),
        )
        if self.stopping:  # Stop came before there was a generation to cancel
            self._generation.cancel()
        answer_start = len(held) + len(prompt.tokens)
        if self._judged.found:
            self._read_before = self.context.read_besides(self._judged.found)
            self._citer = Citer(self.question, [*self._judged.found, *self._read_before])
        checked = 0
        saved_at_s = time.perf_counter()
        for piece in self._generation:
            now_s = time.perf_counter()
            self._ttft_s = self._ttft_s or now_s - self.asked_at_s
            self._text += piece
            self._answer_tokens = session.tokens[answer_start:]
            yield Delta(piece)
            if self._citer and (end := complete(self._text)) > checked:
                checked = end
                yield Written(self._citer.cite(self._text[:end]).answer, end)
            if self._kept_tokens is None:
                self._kept_tokens = circle_start(self._answer_tokens)
                if self._kept_tokens is not None:
                    self._generation.cancel()
            if now_s - saved_at_s >= CHECKPOINT_S:
                services.store.checkpoint(self.turn_id, self._text, self._answer_tokens)
                saved_at_s = now_s

    def _say(self, sentence: str) -> Generator[Event, None, None]:
        """Answer with a fixed sentence, without the model."""
        self._text = sentence
        yield Delta(sentence)

    # The end of a turn

    def _end(self, state: TurnState, error: str | None = None) -> TurnView | None:
        """Save the turn, once. None if that was done before, or the conversation is deleted."""
        if self._ended:
            return None
        slept = slept_s() - self._slept_before_s
        if slept >= NOTICEABLE_S:
            self._notes.append(SLEPT.format(how_long=in_words(slept)))
        outcome = self._outcome(state, error)
        self._ended = True
        try:
            view = self.services.store.finish(self.turn_id, outcome)
            if view is None:  # the conversation was deleted meanwhile: nothing of it may stay
                self.drop_kv = True
            return view
        finally:
            self.on_end(self)

    def _outcome(self, state: TurnState, error: str | None) -> Outcome:
        own_stats = TurnStats(
            ttft_s=self._ttft_s,
            retrieve_s=self._findings.retrieve_s,
            rewrite_s=self._findings.rewrite_s,
            evidence_s=self._evidence_s,
            total_s=time.perf_counter() - self.asked_at_s,
        )
        if self._generation is None:
            if state == "done" and self.stopping:
                state = "stopped"
            reason = {"done": self._said, "stopped": "cancelled"}.get(state, state)
            return self._bare(state, reason, (), own_stats, error)
        result = self._last_result()
        if result is None:
            self.drop_kv = True  # what the session holds is not what is stored
            tokens = self._closed(self._answer_tokens)
            return self._bare("error", "error", tokens, own_stats, error)
        text, tokens, reason = result.text, result.tokens, str(result.finish_reason)
        if state == "done" and self._kept_tokens is not None:
            tokens, reason = tokens[: self._kept_tokens], "repetition"
            text = whole_sentences(self.services.engine.format.decode(tokens))
            self._notes.append(REPEATS_ITSELF)
        elif state == "done" and reason == "cancelled":
            state = "stopped"
        cited = Cited(text)
        if state != "error" and self._citer:
            cited = self._citer.cite(text)
        if state == "done":
            self._notes.extend(cited.notes)
        return Outcome(
            state=state,
            answer=cited.answer,
            finish_reason="error" if state == "error" else reason,
            answer_tokens=self._closed(tokens),
            supports=cited.supports,
            read_before=self._read_before,
            removed_documents=frozenset(self.removed_documents),
            sentences=cited.sentences,
            stats=TurnStats.of(result.stats, own_stats),
            error=error,
            notes=self._notes,
        )

    def _bare(
        self,
        state: TurnState,
        reason: str,
        tokens: Sequence[int],
        stats: TurnStats,
        error: str | None,
    ) -> Outcome:
        """The end of a turn whose text nothing was checked of."""
        return Outcome(
            state, self._text, reason, tokens, stats=stats, error=error, notes=self._notes
        )

    def _last_result(self) -> GenerationResult | None:
        """What the engine made, waiting for at most the step it is in; None if it failed."""
        assert self._generation is not None
        self._generation.cancel()  # does nothing to a generation that has ended
        try:
            return self._generation.result()
        except EngineError:
            return None

    def _closed(self, tokens: Sequence[int]) -> Sequence[int]:
        """An answer's tokens with those that close its turn; none stay none."""
        return [*tokens, *self.services.engine.format.end(tokens)] if tokens else ()
