"""What a turn works with: the library, the engine, and the conversations' own stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import func, select

from chat.citations import without_markers
from chat.context import Context, ContextStore
from chat.engine_sessions import EngineSessions
from chat.prompt import render
from chat.rows import passages_read
from chat.store import ConversationStore
from chat.tables import Turn
from chat.unsaved import Unsaved
from retrieval import forgetting
from retrieval import store as rows
from retrieval.gates import Gates
from retrieval.store import Passage
from retrieval.views import Found

if TYPE_CHECKING:
    from engine import Engine
    from retrieval.database import Database
    from retrieval.library import Library


# A model below this makes up what it was not given: where nothing was found it is not asked, its
# text stands below the quotations, and it rewrites no question.
SMALL_PARAMETERS = 1_000_000_000


def is_small(engine: Engine) -> bool:
    return engine.parameters < SMALL_PARAMETERS


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
    unsaved: Unsaved
    contexts: ContextStore
    sessions: EngineSessions
    gates: Gates

    @property
    def opening(self) -> Context:
        """What a conversation that begins now builds on."""
        return Context(self.engine.model_name, self.engine.static_tokens, (), ())

    @property
    def model_is_small(self) -> bool:
        return is_small(self.engine)

    def documents_ready(self, owner: str, among: Sequence[str] | None = None) -> Ready:
        """How many of the documents the owner sees can be searched; refused ones do not count.

        With ``among``, of those ids only.
        """
        states = [
            document.state
            for document in self.library.documents(owner)
            if among is None or document.id in among
        ]
        return Ready(states.count("ready"), len(states) - states.count("refused"))

    def newest_title(self, owner: str, among: Sequence[str] | None = None) -> str | None:
        """Of the documents that can be searched, the newest one's title."""
        titles = [
            document.title
            for document in self.library.documents(owner)
            if document.state == "ready" and (among is None or document.id in among)
        ]
        return titles[-1] if titles else None

    def passages_of(self, document_id: str, owner: str) -> tuple[Found, ...]:
        """A whole document in its order; none of one that is gone."""
        with self.database.reading() as session:
            ids = rows.passage_ids(session, document_id)
            hits = rows.hits(session, ids, owner, None)
        return tuple(
            Found(
                passage_id=id,
                document_id=document_id,
                title=hits[id].document.title,
                name=hits[id].document.name,
                page=hits[id].passage.page,
                char_start=hits[id].passage.char_start,
                char_end=hits[id].passage.char_end,
                text=hits[id].passage.text,
                heading=hits[id].passage.heading,
                score=0.0,
                lexical_rank=None,
                dense_rank=None,
                page_label=hits[id].page_label,
                ocr=hits[id].ocr,
            )
            for id in sorted(hits)
        )

    def passage_counts(self, passages: Sequence[Found]) -> int:
        """How many passages the documents have that these are from."""
        documents = {passage.document_id for passage in passages}
        query = select(func.count(Passage.id)).where(Passage.document_id.in_(documents))
        with self.database.reading() as session:
            return session.scalar(query) or 0

    def user_message(self, turn: Turn, first: bool) -> Sequence[int]:
        """The tokens of a stored turn's user message, rendered anew from its passages."""
        return self.engine.format.user(render(passages_read(turn), turn.question), first)

    def assistant_message(self, turn: Turn) -> Sequence[int]:
        """The tokens of a stored turn's answer and of its end, from its text."""
        answer = self.engine.format.answer(without_markers(turn.answer))
        return [*answer, *self.engine.format.end(answer)]

    def forget_removed(self) -> set[str]:
        """Take every removed document out of the stored conversations that is still to be.

        Returns those it was in.
        """
        with self.database.reading() as session:
            removed = forgetting.left(session, "document")
        touched: set[str] = set()
        for document_id in removed:
            touched |= self.contexts.forget_document(document_id, self.user_message)
        return touched
