"""The model's text on its way: streamed, checked sentence by sentence, ended where it goes round in
circles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from chat.citations import Cited, Citer, complete
from chat.context import Context, ReadPassage
from chat.events import Delta, Written
from chat.notes import REPEATS_ITSELF
from chat.options import AskOptions
from chat.prompt import Fit
from chat.repetition import circle_start, whole_sentences
from chat.services import Services
from chat.views import TurnState
from engine.errors import EngineError

if TYPE_CHECKING:
    from engine import EngineStats, Generation, GenerationResult
    from retrieval.views import Found


class Answer(NamedTuple):
    """What the model wrote in the end; ``tokens`` with those that close its turn."""

    state: TurnState
    cited: Cited
    tokens: Sequence[int]
    finish_reason: str
    notes: tuple[str, ...]
    stats: EngineStats


class Writer:
    """Has the model answer one turn of a conversation; ``stop`` may come from any thread.

    ``text`` and ``tokens`` are what is written so far, ``read_before`` the passages of earlier
    turns that the answer may rest on besides those ``found``.
    """

    def __init__(
        self, services: Services, context: Context, question: str, found: Sequence[Found]
    ) -> None:
        self.text = ""
        self.tokens: Sequence[int] = ()
        self.read_before: tuple[ReadPassage, ...] = ()
        self._services = services
        self._context = context
        self._citer: Citer | None = None
        if found:
            self.read_before = context.read_besides(found)
            self._citer = Citer(question, [*found, *self.read_before])
        self._generation: Generation | None = None
        self._kept_tokens: int | None = None  # set once the text goes round in circles
        self._stopped = False

    @property
    def has_begun(self) -> bool:
        return self._generation is not None

    def stop(self) -> None:
        """Within one step of the engine."""
        self._stopped = True
        if self._generation is not None:
            self._generation.cancel()

    def write(
        self, session_id: str, owner: str, prompt: Fit, options: AskOptions
    ) -> Iterator[Delta | Written]:
        """Raises EngineError."""
        held = self._context.tokens
        session, missing = self._services.sessions.resume(session_id, owner, held)
        self._generation = self._services.engine.generate(
            session, [*missing, *prompt.tokens], options.sampling(prompt.max_answer_tokens)
        )
        if self._stopped:  # Stop came before there was a generation to cancel
            self._generation.cancel()
        start = len(held) + len(prompt.tokens)
        checked = 0
        for piece in self._generation:
            self.text += piece
            self.tokens = session.tokens[start:]
            yield Delta(piece)
            if self._citer and (end := complete(self.text)) > checked:
                checked = end
                yield Written(self._citer.cite(self.text[:end]).answer, end)
            if self._kept_tokens is None:
                self._kept_tokens = circle_start(self.tokens)
                if self._kept_tokens is not None:
                    self._generation.cancel()

    def end(self, state: TurnState) -> Answer | None:
        """The answer of a turn that ends so; None if the engine failed.

        Waits for at most the step that the engine is in. Of a turn that went wrong nothing is
        checked.
        """
        result = self._last_result()
        if result is None:
            return None
        text, tokens, reason = result.text, result.tokens, str(result.finish_reason)
        notes: tuple[str, ...] = ()
        if state == "error":
            reason = "error"
        elif state == "done" and self._kept_tokens is not None:
            tokens, reason = tokens[: self._kept_tokens], "repetition"
            text = whole_sentences(self._services.engine.format.decode(tokens))
            notes = (REPEATS_ITSELF,)
        elif state == "done" and reason == "cancelled":
            state = "stopped"
        cited = self._citer.cite(text) if self._citer and state != "error" else Cited(text)
        if state == "done":
            notes += cited.notes
        return Answer(state, cited, self.closed(tokens), reason, notes, result.stats)

    def closed(self, tokens: Sequence[int]) -> Sequence[int]:
        """An answer's tokens with those that close its turn; none stay none."""
        return [*tokens, *self._services.engine.format.end(tokens)] if tokens else ()

    def _last_result(self) -> GenerationResult | None:
        assert self._generation is not None
        self._generation.cancel()  # does nothing to a generation that has ended
        try:
            return self._generation.result()
        except EngineError:
            return None
