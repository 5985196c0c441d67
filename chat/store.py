"""The conversations in the database: how a turn is begun, kept and finished there.

Every method is one transaction. Ownership is checked here: another owner's id is "not found".
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import func, or_, select, update
from sqlalchemy.orm import Session, selectinload

from chat.citations import Checked, Support
from chat.context import Context, ReadPassage
from chat.judged import Judged
from chat.migrations import migrate as migrate
from chat.options import AskOptions
from chat.rows import (
    attach,
    branch,
    drop_removed,
    found_row,
    owned,
    placed,
    quoted_row,
    stored,
    tree,
    turn_view,
    versions,
)
from chat.stats import TurnStats
from chat.tables import Conversation, Turn, TurnPassage
from chat.views import Quotes, SessionView, TurnState, TurnView
from retrieval.database import Database
from retrieval.versioned import Versioned

TITLE_CHARS = 60


@dataclass(frozen=True)
class Outcome:
    """How a turn ended: everything that is saved with it in one transaction.

    The ranks of ``supports`` go on from the passages that search brought to ``read_before``.
    ``removed_documents`` goes on filling until the moment of saving.
    """

    state: TurnState
    answer: str
    finish_reason: str
    answer_tokens: Sequence[int] = ()
    supports: Sequence[Support] = ()
    read_before: Sequence[ReadPassage] = ()
    removed_documents: AbstractSet[str] = frozenset()
    sentences: Sequence[Checked] = ()
    stats: TurnStats | None = None
    error: str | None = None
    notes: Sequence[str] = ()


class ConversationStore:
    """Conversations, turns and citations of all owners; thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._sessions: Versioned[list[SessionView]] = Versioned(database)

    @property
    def version(self) -> str:
        """Changes with every conversation, but not with the checkpoints of a running turn."""
        return self._database.version

    # A turn's life

    def begin(
        self,
        session_id: str,
        owner: str,
        question: str,
        opening: Context | None = None,
        instead_of: str | None = None,
        options: AskOptions | None = None,
    ) -> str:
        """Save a question as the conversation's newest turn, pending; returns the turn's id.

        With an ``opening``, the conversation itself begins with this turn. It follows the newest
        one, or takes the place of the turn ``instead_of``, which stays as another branch. The
        ``options`` become the conversation's.
        """
        turn_id = new_id()
        with self._database.session() as session:
            if opening is not None:
                session.add(
                    Conversation(
                        id=session_id,
                        owner=owner,
                        title=_title(question),
                        model=opening.model,
                        static_tokens=opening.static_tokens,
                        created_at=_now(),
                        updated_at=_now(),
                    )
                )
                session.flush()
            conversation = owned(session, session_id, owner)
            parent = conversation.head_turn_id
            if instead_of is not None:
                parent = placed(tree(session, conversation), instead_of).parent_id
            session.add(
                Turn(
                    id=turn_id,
                    session_id=session_id,
                    parent_id=parent,
                    question=question,
                    created_at=_after_all(session, session_id),
                )
            )
            conversation.head_turn_id = turn_id
            conversation.updated_at = _now()
            if options is not None:
                conversation.options = options.to_json()
        return turn_id

    def save_found(self, turn_id: str, judged: Judged, notes: Sequence[str]) -> None:
        """Save what search brought, none of it read by the model yet, and what it shows."""
        with self._database.session() as session:
            turn = session.get(Turn, turn_id)
            if turn is None:
                return
            turn.notes = [*notes]
            turn.gate = judged.gate
            turn.rewritten = judged.rewritten
            turn.passages = [
                *(found_row(rank, passage) for rank, passage in enumerate(judged.found)),
                *(quoted_row(place, quote) for place, quote in enumerate(judged.quotes)),
            ]

    def save_prompt(
        self, turn_id: str, passages: int, tokens: Sequence[int], notes: Sequence[str]
    ) -> bool:
        """Save what the model is about to read: a user message with the best ``passages``.

        False, with nothing saved, if one of their documents was removed in the meantime.
        """
        with self._database.session() as session:
            turn = session.get(Turn, turn_id, options=[selectinload(Turn.passages)])
            if turn is None:
                return True
            read = [row for row in turn.passages if row.quoted is None and row.rank < passages]
            if any(row.removed for row in read):
                return False
            turn.prompt_tokens = tuple(tokens)
            turn.notes = [*notes]
            for row in read:
                row.in_prompt = True
            return True

    def checkpoint(self, turn_id: str, answer: str, answer_tokens: Sequence[int]) -> None:
        """Save the answer as far as it has come, so that a kill loses next to nothing."""
        with self._database.session(is_news=False) as session:
            session.execute(
                update(Turn)
                .where(Turn.id == turn_id)
                .values(answer=answer, answer_tokens=tuple(answer_tokens))
            )

    def finish(self, turn_id: str, outcome: Outcome) -> TurnView | None:
        """Save text, tokens, citations and stats together; None if the turn was deleted."""
        with self._database.session() as session:
            turn = session.get(Turn, turn_id, options=[selectinload(Turn.passages)])
            if turn is None:
                return None
            turn.state = outcome.state
            turn.answer = outcome.answer
            turn.finish_reason = outcome.finish_reason
            turn.error = outcome.error
            turn.answer_tokens = tuple(outcome.answer_tokens)
            turn.stats = outcome.stats.to_json() if outcome.stats else None
            turn.notes = [*outcome.notes]
            turn.sentences = [stored(checked) for checked in outcome.sentences]
            turn.finished_at = _now()
            attach(turn, outcome.supports, outcome.read_before)
            for row in turn.passages:
                if row.document_id in outcome.removed_documents:
                    row.removed = True
            drop_removed(turn)
            session.execute(
                update(Conversation)
                .where(Conversation.id == turn.session_id)
                .values(updated_at=_now())
            )
            session.flush()
            session.refresh(turn, ["passages"])
            turns = tree(session, session.get_one(Conversation, turn.session_id))
            return turn_view(turn, versions(turns)[turn.parent_id])

    def recover(self, end: Callable[[Sequence[int]], list[int]], note: str) -> int:
        """Mark turns that a kill left pending as interrupted; returns how many there were.

        ``end(answer_tokens)`` gives the tokens that close an assistant turn after them.
        """
        with self._database.session() as session:
            pending = session.scalars(select(Turn).where(Turn.state == "pending")).all()
            for turn in pending:
                turn.state = turn.finish_reason = "interrupted"
                turn.finished_at = _now()
                turn.notes = [*turn.notes, note]
                drop_removed(turn)
                if turn.answer_tokens:
                    turn.answer_tokens += tuple(end(turn.answer_tokens))
            return len(pending)

    # Conversations

    def sessions(self, owner: str) -> list[SessionView]:
        """The owner's conversations, the one used last first."""
        return list(self._sessions.of(owner, lambda session: self._read_sessions(session, owner)))

    def _read_sessions(self, session: Session, owner: str) -> list[SessionView]:
        turns = (
            # A turn for each place: retries and edits of it stand in the same.
            select(func.count(func.distinct(func.coalesce(Turn.parent_id, ""))))
            .where(Turn.session_id == Conversation.id)
            .correlate(Conversation)
            .scalar_subquery()
        )
        query = (
            select(Conversation, turns)
            .where(Conversation.owner == owner)
            .order_by(Conversation.updated_at.desc(), Conversation.id)
        )
        return [
            SessionView(
                session=conversation.id,
                title=conversation.title,
                model=conversation.model,
                turns=count,
                created_at=conversation.created_at,
                updated_at=conversation.updated_at,
            )
            for conversation, count in session.execute(query)
        ]

    def session(self, session_id: str, owner: str) -> SessionView:
        """One conversation. Raises SessionNotFound."""
        self.require(session_id, owner)
        return next(view for view in self.sessions(owner) if view.session == session_id)

    def matching(self, owner: str, words: str) -> set[str]:
        """The owner's conversations whose title, questions or answers hold all of the words."""
        query = select(Conversation.id).where(Conversation.owner == owner)
        for word in words.split():
            holds = or_(
                Turn.question.icontains(word, autoescape=True),
                Turn.answer.icontains(word, autoescape=True),
            )
            turns = select(Turn.id).where(Turn.session_id == Conversation.id, holds)
            query = query.where(
                or_(Conversation.title.icontains(word, autoescape=True), turns.exists())
            )
        with self._database.reading() as session:
            return set(session.scalars(query))

    def options(self, session_id: str, owner: str) -> AskOptions:
        """How the conversation's questions are answered. Raises SessionNotFound."""
        with self._database.reading() as session:
            return AskOptions.from_json(owned(session, session_id, owner).options or {})

    def configure(self, session_id: str, owner: str, options: AskOptions) -> None:
        """Raises SessionNotFound."""
        with self._database.session() as session:
            owned(session, session_id, owner).options = options.to_json()

    def turns(self, session_id: str, owner: str) -> list[TurnView]:
        """The conversation from its first turn to its newest. Raises SessionNotFound."""
        with self._database.reading() as session:
            conversation = owned(session, session_id, owner)
            turns = tree(session, conversation, tokens=False)
            siblings = versions(turns)
            shown = branch(turns, conversation.head_turn_id)
            return [turn_view(turn, siblings[turn.parent_id]) for turn in shown]

    def show(self, session_id: str, owner: str, turn_id: str) -> None:
        """Go to the branch that holds a turn, to its newest end. Raises TurnNotFound."""
        with self._database.session() as session:
            conversation = owned(session, session_id, owner)
            turns = tree(session, conversation)
            below = {placed(turns, turn_id).id}
            for turn in turns.values():  # oldest first, so a parent comes before its children
                if turn.parent_id in below:
                    below.add(turn.id)
                    turn_id = turn.id
            conversation.head_turn_id = turn_id
            conversation.updated_at = _now()  # other tabs follow

    def quotes(self, document_id: str, owner: str) -> Quotes:
        """How many of the owner's conversations quote a document, and in how many citations."""
        query = (
            select(func.count(Conversation.id.distinct()), func.count(TurnPassage.id))
            .join(Turn, TurnPassage.turn_id == Turn.id)
            .join(Conversation, Turn.session_id == Conversation.id)
            .where(
                TurnPassage.document_id == document_id,
                or_(TurnPassage.marker.is_not(None), TurnPassage.quoted.is_not(None)),
                Conversation.owner == owner,
            )
        )
        with self._database.reading() as session:
            return Quotes(*session.execute(query).one())

    def require(self, session_id: str, owner: str) -> None:
        """Raises SessionNotFound unless the owner has this conversation."""
        with self._database.reading() as session:
            owned(session, session_id, owner)

    def rename(self, session_id: str, owner: str, title: str) -> None:
        with self._database.session() as session:
            owned(session, session_id, owner).title = _title(title)

    def delete(self, session_id: str, owner: str) -> None:
        """Delete a conversation, from the files of the database too. Raises SessionNotFound."""
        with self._database.session() as session:
            session.delete(owned(session, session_id, owner))
        self._database.checkpoint()

    def delete_all(self, owner: str) -> int:
        """Delete an owner's conversations; returns how many there were."""
        views = self.sessions(owner)
        for view in views:
            self.delete(view.session, owner)
        return len(views)

    def is_in_conversations(self, document_id: str) -> bool:
        """Whether anybody's conversation found or cites this document."""
        with self._database.reading() as session:
            query = select(TurnPassage.id).where(TurnPassage.document_id == document_id)
            return session.scalar(query.limit(1)) is not None


def _after_all(session: Session, session_id: str) -> datetime:
    """Now, or just after the conversation's newest turn.

    The order of turns is that of their times, and a computer's clock may be set back: after a
    sleep, or on a journey.
    """
    newest = session.scalar(select(func.max(Turn.created_at)).where(Turn.session_id == session_id))
    return _now() if newest is None else max(_now(), newest + timedelta(microseconds=1))


def new_id() -> str:
    return uuid.uuid4().hex


def _now() -> datetime:
    return datetime.now(UTC)


def _title(text: str) -> str:
    """One line of at most TITLE_CHARS characters."""
    line = " ".join(text.split())
    return line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1].rstrip() + "…"
