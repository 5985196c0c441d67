"""A follow-up that the model writes anew as a question that stands alone, before it is searched.

Search takes what was written as one more question before the follow-up, which lends it terms and
direction at less weight. On MTRAG's follow-ups the right rewrite gains as much that way as any
(nDCG@10 .623 to .627), and another conversation's question instead of one costs .003 to .045;
ranked beside the question's own result, it costs .07 to .66.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from chat.repetition import circle_start
from chat.support import words_of
from engine.errors import EngineError

if TYPE_CHECKING:
    from chat.context import Context
    from engine import Engine, Generation, GenerationResult

MOST_TOKENS = 64
# What the model is told of the conversation.
_QUESTIONS = 3
_MOST_CHARACTERS = 400
_TASK = """Write the last question again so that it can be understood alone: say what its "it", \
"that" or missing words stand for. Keep its language. Do not answer it.

Question: Who built the tower?
Answer: Ann Lee built it.
Question: And when?
Understood alone: When did Ann Lee build the tower?

{conversation}
Question: {question}
Understood alone:"""
_LABELS = ("Understood alone:", "Question:")
_ASKS = ("?", "？", "؟")
_QUOTES = "\"'“”‘’*_` "


class Rewriter:
    """Rewrites the question of one turn, in a session of its own that leaves nothing behind."""

    def __init__(self, engine: Engine, turn_id: str) -> None:
        self.seconds = 0.0
        self._engine = engine
        # Nobody else's pages are forgotten with those of an owner who is only this.
        self._owner = f"rewrite of {turn_id}"
        self._stopped = False
        self._generation: Generation | None = None

    def stop(self) -> None:
        """Within one step of the engine, from any thread."""
        self._stopped = True
        if self._generation is not None:
            self._generation.cancel()

    def rewritten(self, question: str, context: Context) -> str | None:
        """The question that stands alone; None where the model wrote none that can be used."""
        start_s = time.perf_counter()
        try:
            written = self._written(_message(question, context))
        except EngineError:
            return None  # what is wrong with the engine is said when it is to answer
        finally:
            self.seconds = time.perf_counter() - start_s
        if written.finish_reason != "stop" or circle_start(written.tokens) is not None:
            return None
        return usable(written.text, question, context)

    def _written(self, message: str) -> GenerationResult:
        from engine import Sampling

        engine = self._engine
        session = engine.open(owner=self._owner)
        try:
            self._generation = engine.generate(
                session,
                engine.format.user(message, True),
                Sampling(max_tokens=MOST_TOKENS, stop=("\n",)),
            )
            if self._stopped:  # Stop came before there was a generation to cancel
                self._generation.cancel()
            return self._generation.result()
        finally:
            if self._generation is not None:
                self._generation.cancel()
                with suppress(EngineError):
                    self._generation.result()
            engine.close(session, forget=True)


def usable(written: str, question: str, context: Context) -> str | None:
    """What the model wrote, if it is a question of its own, made of the conversation's words."""
    text = " ".join(written.split())
    for label in _LABELS:
        text = text.removeprefix(label)
    text = text.strip(_QUOTES)
    said = [question, *context.earlier, context.last_answer]
    if not text or any(text.casefold() == one.strip().casefold() for one in said):
        return None
    if question.endswith(_ASKS) and not text.endswith(_ASKS):
        return None  # it is an answer
    words, known = words_of(text), words_of("\n".join(said))
    return text if len(words & known) * 2 > len(words) else None


def _message(question: str, context: Context) -> str:
    lines = [f"Question: {_short(one)}" for one in context.earlier[-_QUESTIONS:]]
    if context.last_answer:
        lines.append(f"Answer: {_short(context.last_answer)}")
    return _TASK.format(conversation="\n".join(lines), question=_short(question))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MOST_CHARACTERS else line[:_MOST_CHARACTERS] + "…"
