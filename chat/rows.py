"""Rows of the conversation tables: finding them, and reading them as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import select
from sqlalchemy.orm import Session, defer, selectinload

from chat.citations import Checked, Support
from chat.errors import SessionNotFound, TurnNotFound
from chat.judged import Quote
from chat.stats import TurnStats
from chat.tables import Conversation, Turn, TurnPassage
from chat.views import CitationView, SentenceView, TurnView
from retrieval.views import Found

if TYPE_CHECKING:
    from chat.context import ReadPassage


def owned(session: Session, session_id: str, owner: str) -> Conversation:
    """The owner's conversation. Raises SessionNotFound, for another owner's too."""
    conversation = session.get(Conversation, session_id)
    if conversation is None or conversation.owner != owner:
        raise SessionNotFound(session_id)
    return conversation


def tree(session: Session, conversation: Conversation, *, tokens: bool = True) -> dict[str, Turn]:
    """All turns of a conversation by their ids, oldest first: every branch.

    Without ``tokens`` those are not read, which are most of a turn and not for people.
    """
    query = select(Turn).where(Turn.session_id == conversation.id)
    if not tokens:
        query = query.options(defer(Turn.prompt_tokens), defer(Turn.answer_tokens))
    query = query.order_by(Turn.created_at, Turn.id).options(selectinload(Turn.passages))
    return {turn.id: turn for turn in session.scalars(query)}


def branch(turns: Mapping[str, Turn], at: str | None) -> list[Turn]:
    """The turns from the root to the turn ``at``; none for None."""
    upwards = []
    while at is not None:
        upwards.append(turns[at])
        at = turns[at].parent_id
    return upwards[::-1]


def chain(session: Session, conversation: Conversation) -> list[Turn]:
    """The turns from the root to the conversation's head."""
    return branch(tree(session, conversation), conversation.head_turn_id)


def placed(turns: Mapping[str, Turn], turn_id: str) -> Turn:
    """A turn of this conversation. Raises TurnNotFound, for another conversation's too."""
    if turn_id not in turns:
        raise TurnNotFound(turn_id)
    return turns[turn_id]


def in_context(turns: Sequence[Turn]) -> list[Turn]:
    """Those of a chain's turns that the model still reads."""
    return [
        turn
        for turn in turns
        if turn.answer_tokens and not turn.left_context and turn.state != "pending"
    ]


def versions(turns: Mapping[str, Turn]) -> dict[str | None, list[str]]:
    """For each parent (None at the root) the turns that follow it, oldest first."""
    following: dict[str | None, list[str]] = {}
    for turn in turns.values():
        following.setdefault(turn.parent_id, []).append(turn.id)
    return following


def drop_removed(turn: Turn) -> None:
    """Forget passages of removed documents, unless the answer quotes them."""
    turn.passages = [row for row in turn.passages if row.was_shown or not row.removed]


def passages_read(turn: Turn) -> list[TurnPassage]:
    """The passages that the turn's user message holds, best first."""
    by_rank = {row.rank: row for row in turn.passages if row.in_prompt}
    return [by_rank[rank] for rank in sorted(by_rank)]


def found_row(rank: int, passage: Found | ReadPassage) -> TurnPassage:
    """A passage that search brought, not read by the model yet."""
    return TurnPassage(
        rank=rank,
        document_id=passage.document_id,
        title=passage.title,
        page=passage.page,
        char_start=passage.char_start,
        char_end=passage.char_end,
        heading=passage.heading,
        text=passage.text,
        page_label=passage.page_label,
        ocr=passage.ocr,
        in_prompt=False,
    )


def quoted_row(place: int, quote: Quote) -> TurnPassage:
    """A sentence of a passage, with as much of the page around it as the passage has."""
    row = found_row(quote.rank, quote.passage)
    row.quoted = place
    row.support_start, row.support_end = quote.start, quote.end
    row.char_start, row.char_end, row.text = quote.char_start, quote.char_end, quote.text
    return row


def stored(checked: Checked) -> dict[str, Any]:
    """A checked sentence as `Turn.sentences` holds it."""
    _, marker, start, end = checked.support or (None, None, None, None)
    return {"text": checked.text, "marker": marker, "start": start, "end": end}


def attach(
    turn: Turn, supports: Sequence[Support], read_before: Sequence[ReadPassage] = ()
) -> None:
    """Note on a turn's passages which words of them support its answer.

    Those of earlier turns (``read_before``) that do become passages of this one.
    """
    by_rank = {row.rank: row for row in turn.passages if row.quoted is None}
    found = len(by_rank)
    for support in supports:
        if support.rank not in by_rank:
            by_rank[support.rank] = found_row(support.rank, read_before[support.rank - found])
            turn.passages.append(by_rank[support.rank])
        row = by_rank[support.rank]
        if row.marker is not None:  # a second sentence rests on this passage: one more row
            row = _copy(row)
            turn.passages.append(row)
        row.marker = support.marker
        row.support_start, row.support_end = support.start, support.end


def turn_view(turn: Turn, versions: Sequence[str]) -> TurnView:
    """A turn as it is seen from outside; ``versions`` are the turns that stand in its place."""
    rows = sorted(turn.passages, key=lambda row: (row.rank, row.id))
    quoted = [row for row in rows if row.quoted is not None]
    cited = sorted(
        (row for row in rows if row.marker is not None),
        key=lambda row: (row.marker or 0, row.support_start or 0),
    )
    citations = {
        (row.marker, row.support_start, row.support_end): _citation_view(row) for row in cited
    }
    return TurnView(
        session=turn.session_id,
        turn=turn.id,
        question=turn.question,
        answer=turn.answer,
        state=turn.state,
        created_at=turn.created_at,
        finish_reason=turn.finish_reason,
        error=turn.error,
        citations=tuple(citations.values()),
        retrieved=tuple(_citation_view(row) for row in rows if not row.was_shown),
        evidence=tuple(
            _citation_view(row) for row in sorted(quoted, key=lambda row: row.quoted or 0)
        ),
        gate=turn.gate,
        rewritten=turn.rewritten,
        sentences=tuple(
            SentenceView(
                checked["text"],
                citations.get((checked["marker"], checked["start"], checked["end"])),
            )
            for checked in turn.sentences or ()
        ),
        stats=TurnStats.from_json(turn.stats) if turn.stats else None,
        notes=tuple(turn.notes),
        versions=tuple(versions),
    )


def _citation_view(row: TurnPassage) -> CitationView:
    return CitationView(
        document=row.document_id,
        title=row.title,
        page=row.page,
        char_start=row.char_start,
        char_end=row.char_end,
        text=row.text,
        marker=None if row.marker is None else f"[{row.marker}]",
        support_start=row.support_start,
        support_end=row.support_end,
        removed=row.removed,
        page_label=row.page_label,
        ocr=row.ocr,
    )


def _copy(row: TurnPassage) -> TurnPassage:
    return TurnPassage(
        rank=row.rank,
        document_id=row.document_id,
        title=row.title,
        page=row.page,
        char_start=row.char_start,
        char_end=row.char_end,
        heading=row.heading,
        text=row.text,
        in_prompt=row.in_prompt,
        removed=row.removed,
        page_label=row.page_label,
        ocr=row.ocr,
    )
