"""What the model reads of a conversation, and how that changes after it was written.

A conversation's tokens are its static part and then the tokens of those of its turns that are in
the context. Tokens are kept, never made again from text, but for three reasons: the oldest turns
leave to make room, a document is removed, or another model goes on with the conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from sqlalchemy import select
from sqlalchemy.orm import Session, selectinload

from chat.citations import without_markers
from chat.rows import branch, chain, drop_removed, in_context, owned, placed, tree
from chat.tables import Turn, TurnPassage
from retrieval import forgetting
from retrieval.database import Database
from retrieval.views import Found

Ids: TypeAlias = Sequence[int]
# (turn, whether it directly follows the static part) -> the tokens of its user message
Render: TypeAlias = Callable[[Turn, bool], Ids]


class ContextTurn(NamedTuple):
    """A turn whose tokens the model still reads."""

    id: str
    prompt_tokens: tuple[int, ...]
    answer_tokens: tuple[int, ...]

    @property
    def tokens(self) -> tuple[int, ...]:
        return self.prompt_tokens + self.answer_tokens


class ReadPassage(NamedTuple):
    """A passage in the messages that the model still reads."""

    document_id: str
    title: str
    page: int
    char_start: int
    char_end: int
    heading: str
    text: str
    page_label: str
    ocr: bool


class Context(NamedTuple):
    """What a conversation's next turn builds on.

    `earlier` are the questions before it, `last_answer` what the model wrote to the last of them.
    """

    model: str
    static_tokens: tuple[int, ...]
    turns: tuple[ContextTurn, ...]
    earlier: tuple[str, ...]
    passages: tuple[ReadPassage, ...] = ()
    last_answer: str = ""

    @property
    def last_question(self) -> str | None:
        return self.earlier[-1] if self.earlier else None

    @property
    def tokens(self) -> list[int]:
        return [*self.static_tokens, *(token for turn in self.turns for token in turn.tokens)]

    def read_besides(self, found: Sequence[Found | ReadPassage]) -> tuple[ReadPassage, ...]:
        """The passages of earlier turns that are not among those of this one, each once."""
        here = {_place(passage) for passage in found}
        others = {_place(p): p for p in self.passages if _place(p) not in here}
        return tuple(others.values())


def _place(passage: Found | ReadPassage) -> tuple[str, int, int, int]:
    return passage.document_id, passage.page, passage.char_start, passage.char_end


class ContextStore:
    """The tokens of conversations; every method is one transaction. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def load(self, session_id: str, owner: str, instead_of: str | None = None) -> Context:
        """What the conversation's next turn builds on, or one in the place of ``instead_of``.

        Raises SessionNotFound, TurnNotFound.
        """
        with self._database.reading() as session:
            conversation = owned(session, session_id, owner)
            turns = chain(session, conversation)
            if instead_of is not None:
                every = tree(session, conversation)
                turns = branch(every, placed(every, instead_of).parent_id)
            read = in_context(turns)
            return Context(
                conversation.model,
                conversation.static_tokens,
                tuple(
                    ContextTurn(turn.id, turn.prompt_tokens, turn.answer_tokens) for turn in read
                ),
                tuple(turn.question for turn in turns),
                tuple(
                    ReadPassage(*(getattr(row, name) for name in ReadPassage._fields))
                    for turn in read
                    for row in turn.passages
                    if row.in_prompt
                ),
                without_markers(turns[-1].answer) if turns and turns[-1].answer_tokens else "",
            )

    def trim(self, session_id: str, owner: str, leaving_turns: int, render: Render) -> None:
        """Let the oldest turns leave the model's context; they stay readable.

        ``render(turn, first)`` gives a turn's user message anew: the oldest that stays now follows
        the static part.
        """
        with self._database.session() as session:
            turns = in_context(chain(session, owned(session, session_id, owner)))
            for turn in turns[:leaving_turns]:
                turn.left_context = True
            for turn in turns[leaving_turns : leaving_turns + 1]:
                turn.prompt_tokens = tuple(render(turn, True))

    def rewrite(
        self,
        session_id: str,
        owner: str,
        opening: Context,
        render: Render,
        render_answer: Callable[[Turn], Ids],
    ) -> None:
        """Render a conversation's tokens again, for another model than wrote them."""
        with self._database.session() as session:
            conversation = owned(session, session_id, owner)
            conversation.model = opening.model
            conversation.static_tokens = opening.static_tokens
            turns = tree(session, conversation)
            for turn in in_context(list(turns.values())):
                first = in_context(branch(turns, turn.id))[0] is turn
                turn.prompt_tokens = tuple(render(turn, first))
                turn.answer_tokens = tuple(render_answer(turn))

    def forget_document(self, document_id: str, render: Render) -> set[str]:
        """Take a removed document out of the conversations; returns those it was in.

        They are those of its owner or, for a document of the shared library, of anybody.

        What was cited stays, marked as removed. What was only found goes, and the user messages
        that held its passages are rendered again without them. A turn that is being answered
        keeps its rows until it is finished: its citations are still to come. What the removal
        wrote down as left to forget goes in the same transaction.
        """
        rendered = self._rendered_without(document_id, render)
        touched = set()
        with self._database.session() as session:
            for turn in _turns_with(session, document_id):
                touched.add(turn.session_id)
                before = turn.prompt_tokens
                if _take_out(turn, document_id):
                    known = rendered.get((turn.id, before))
                    turn.prompt_tokens = known or _rendered(session, turn, render)
            forgetting.done(session, "document", document_id)
        return touched

    def _rendered_without(
        self, document_id: str, render: Render
    ) -> dict[tuple[str, tuple[int, ...]], tuple[int, ...]]:
        """The user messages as they will be, by turn and what they are now.

        That takes long, so it is done before the transaction, in which nobody else can write.
        """
        with self._database.reading() as session, session.no_autoflush:
            return {
                (turn.id, turn.prompt_tokens): _rendered(session, turn, render)
                for turn in _turns_with(session, document_id)
                if _take_out(turn, document_id)
            }


def _turns_with(session: Session, document_id: str) -> Sequence[Turn]:
    """The turns that still have rows of a document."""
    has_rows = (TurnPassage.document_id == document_id) & ~TurnPassage.removed
    query = select(Turn).where(Turn.passages.any(has_rows))
    return session.scalars(query.options(selectinload(Turn.passages))).all()


def _take_out(turn: Turn, document_id: str) -> bool:
    """Mark or drop a document's rows; returns whether the model's context is another without."""
    was_read = False
    for row in turn.passages:
        if row.document_id == document_id:
            was_read |= row.in_prompt
            row.removed, row.in_prompt = True, False
    if turn.state != "pending":
        drop_removed(turn)
    return was_read and bool(turn.prompt_tokens)


def _rendered(session: Session, turn: Turn, render: Render) -> tuple[int, ...]:
    before = branch(tree(session, turn.conversation), turn.parent_id)
    return tuple(render(turn, not in_context(before)))
