"""The tables of the conversation: sessions, their turns, and what the turns cite."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, Boolean, Float, ForeignKey, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from chat.columns import TokenIds
from chat.views import TurnState
from retrieval.database import Base, UtcDateTime


class Conversation(Base):
    """A conversation of one owner.

    ``static_tokens`` is the system prompt as it was when the conversation began: its tokens are
    these and then those of its turns, whatever the prompt of a later version says.
    ``head_turn_id`` is the turn that the next question follows. It is no foreign key, since
    turns point at their session already and a circle could not be deleted row by row.
    ``options`` are those of the newest question (AskOptions), NULL before the first.
    """

    __tablename__ = "sessions"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    owner: Mapped[str] = mapped_column(String(255), index=True)
    title: Mapped[str] = mapped_column(Text)
    model: Mapped[str] = mapped_column(Text)
    static_tokens: Mapped[tuple[int, ...]] = mapped_column(TokenIds())
    head_turn_id: Mapped[str | None] = mapped_column(String(32))
    options: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime())
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime())


class Turn(Base):
    """A question and its answer; turns form a tree by ``parent_id``.

    ``gate`` and ``rewritten`` are TurnView's. ``sentences`` are the checked ones of the answer:
    ``text`` and, where one is supported, ``marker``, ``start`` and ``end`` of its citation.

    ``prompt_tokens`` is the user message with its passages, ``answer_tokens`` everything the model
    wrote and the tokens that close its turn. A turn is in the model's context if it has answer
    tokens and has not left it (``left_context``): one that was stopped before the first token, or
    that was answered without the model, is only there to be read.
    """

    __tablename__ = "turns"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    session_id: Mapped[str] = mapped_column(
        ForeignKey("sessions.id", ondelete="CASCADE"), index=True
    )
    parent_id: Mapped[str | None] = mapped_column(
        ForeignKey("turns.id", ondelete="CASCADE"), index=True
    )
    question: Mapped[str] = mapped_column(Text)
    answer: Mapped[str] = mapped_column(Text, default="")
    state: Mapped[TurnState] = mapped_column(String(16), default="pending", index=True)
    finish_reason: Mapped[str | None] = mapped_column(String(16))
    error: Mapped[str | None] = mapped_column(Text)
    prompt_tokens: Mapped[tuple[int, ...]] = mapped_column(TokenIds(), default=())
    answer_tokens: Mapped[tuple[int, ...]] = mapped_column(TokenIds(), default=())
    left_context: Mapped[bool] = mapped_column(Boolean, default=False)
    stats: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    notes: Mapped[list[str]] = mapped_column(JSON, default=list)
    gate: Mapped[float | None] = mapped_column(Float)
    rewritten: Mapped[str | None] = mapped_column(Text)
    sentences: Mapped[list[dict[str, Any]] | None] = mapped_column(JSON(none_as_null=True))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime())
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime())

    conversation: Mapped[Conversation] = relationship(viewonly=True)
    passages: Mapped[list[TurnPassage]] = relationship(
        order_by="TurnPassage.rank, TurnPassage.id",
        cascade="all, delete-orphan",
        passive_deletes=True,
    )


class TurnPassage(Base):
    """A passage that search brought for a turn, and one place where the answer rests on it.

    A passage that supports several sentences has a row for each, with the same ``rank`` (its place
    in the search result, from 0; beyond that, a passage that an earlier turn brought and this
    answer rests on) and the same ``marker``. The text is a copy and there is no
    foreign key to the library, since what was cited outlives the document. ``in_prompt``: the
    model read it; passages beyond the token budget are found and not read.

    A row with ``quoted`` is evidence instead, the first (0) or second sentence that was shown
    before the model said a word; its text is the passage with the whole of the sentence.
    """

    __tablename__ = "citations"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    turn_id: Mapped[str] = mapped_column(ForeignKey("turns.id", ondelete="CASCADE"), index=True)
    rank: Mapped[int] = mapped_column(Integer)
    document_id: Mapped[str] = mapped_column(String(16), index=True)
    title: Mapped[str] = mapped_column(Text)
    page: Mapped[int] = mapped_column(Integer)
    char_start: Mapped[int] = mapped_column(Integer)
    char_end: Mapped[int] = mapped_column(Integer)
    heading: Mapped[str] = mapped_column(Text, default="")
    text: Mapped[str] = mapped_column(Text)
    page_label: Mapped[str] = mapped_column(Text, default="")
    ocr: Mapped[bool] = mapped_column(Boolean, default=False)
    in_prompt: Mapped[bool] = mapped_column(Boolean, default=True)
    marker: Mapped[int | None] = mapped_column(Integer)
    support_start: Mapped[int | None] = mapped_column(Integer)
    support_end: Mapped[int | None] = mapped_column(Integer)
    removed: Mapped[bool] = mapped_column(Boolean, default=False)
    quoted: Mapped[int | None] = mapped_column(Integer)

    @property
    def was_shown(self) -> bool:
        """Whether its words are part of what the turn showed as an answer."""
        return self.marker is not None or self.quoted is not None
