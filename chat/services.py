"""What a turn works with: the library, the engine, and the conversations' own stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from sqlalchemy import select

from chat.citations import without_markers
from chat.context import Context, ContextStore
from chat.engine_sessions import EngineSessions
from chat.prompt import render
from chat.rows import passages_read
from chat.store import ConversationStore
from chat.tables import Turn
from retrieval.store import Passage

if TYPE_CHECKING:
    from engine import Engine
    from retrieval.database import Database
    from retrieval.library import Library
    from retrieval.views import Found


class Ready(NamedTuple):
    ready: int
    total: int


@dataclass(frozen=True)
class Services:
    """One for all turns of a process; every part is thread-safe."""

    database: Database
    library: Library
    engine: Engine
    store: ConversationStore
    contexts: ContextStore
    sessions: EngineSessions

    @property
    def opening(self) -> Context:
        """What a conversation that begins now builds on."""
        return Context(self.engine.model_name, self.engine.static_tokens, (), ())

    def documents_ready(self, owner: str) -> Ready:
        """How many of the documents the owner sees can be searched; refused ones do not count."""
        states = [document.state for document in self.library.documents(owner)]
        return Ready(states.count("ready"), len(states) - states.count("refused"))

    def cosines(self, question: str, found: Sequence[Found]) -> list[float] | None:
        """How near each passage is to the question by meaning, from the stored vectors.

        None if the embedder does not know the question's script, and would answer at random.
        """
        embedder = self.library.embedder
        if not embedder.handles(question):
            return None
        asked = embedder.encode_question(question)
        with self.database.reading() as session:
            rows = session.execute(
                select(Passage.id, Passage.vector).where(
                    Passage.id.in_([passage.passage_id for passage in found]),
                    Passage.vector.is_not(None),
                )
            )
            stored = {id: np.frombuffer(vector or b"", dtype="<f4") for id, vector in rows}
        return [
            float(stored[passage.passage_id] @ asked) if passage.passage_id in stored else 0.0
            for passage in found
        ]

    def user_message(self, turn: Turn, first: bool) -> Sequence[int]:
        """The tokens of a stored turn's user message, rendered anew from its passages."""
        return self.engine.format.user(render(passages_read(turn), turn.question), first)

    def assistant_message(self, turn: Turn) -> Sequence[int]:
        """The tokens of a stored turn's answer and of its end, from its text."""
        answer = self.engine.format.answer(without_markers(turn.answer))
        return [*answer, *self.engine.format.end(answer)]

    def forget_document(self, document_id: str) -> set[str]:
        """Take a removed document out of the stored conversations; returns those it was in."""
        return self.contexts.forget_document(document_id, self.user_message)
