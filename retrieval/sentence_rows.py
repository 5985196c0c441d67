"""The sentences of passages in the database, with their vectors, and the queries on them.

One row holds all sentences of a passage, so that a question reads as many rows as it found
passages. A passage without a row is still to be embedded.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    ForeignKey,
    Integer,
    LargeBinary,
    Select,
    case,
    delete,
    func,
    or_,
    select,
)
from sqlalchemy.orm import Mapped, Session, aliased, mapped_column

from retrieval.database import Base
from retrieval.sentences import MAX_CHARACTERS, Span
from retrieval.store import Document, PageText, Passage

SPAN_DTYPE = np.dtype("<i4")
# Half precision moves a cosine by less than .001 and halves what the vectors take.
SENTENCE_DTYPE = np.dtype("<f2")


class PassageSentences(Base):
    """The sentences of a passage: every sentence of its page that has a part in it, whole.

    `spans` are int32 [sentences, 2], offsets in the page's text; `vectors` are float16
    [sentences, embedder.dim], normalised. Both little-endian.
    """

    __tablename__ = "passage_sentences"

    passage_id: Mapped[int] = mapped_column(
        BigInteger().with_variant(Integer, "sqlite"),
        ForeignKey("passages.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    )
    spans: Mapped[bytes] = mapped_column(LargeBinary)
    vectors: Mapped[bytes] = mapped_column(LargeBinary)


class Unembedded(NamedTuple):
    """A passage that lacks its own vector (`has_vector` is false) or those of its sentences."""

    id: int
    page: int
    char_start: int
    char_end: int
    heading: str
    text: str
    has_vector: bool


class StoredSentences(NamedTuple):
    """Sentences of a passage: ranges in the page's text, that text, and vectors [sentences, dim].

    `vectors` is None if they are of another embedder than was asked for.
    """

    spans: tuple[Span, ...]
    texts: tuple[str, ...]
    vectors: NDArray[np.float32] | None


def to_embed(session: Session, document_id: str, limit: int) -> list[Unembedded]:
    """The next passages of a document that are not wholly embedded, in order."""
    query = (
        select(
            Passage.id,
            Passage.page,
            Passage.char_start,
            Passage.char_end,
            Passage.heading,
            Passage.text,
            Passage.vector.is_not(None),
        )
        .outerjoin(PassageSentences, PassageSentences.passage_id == Passage.id)
        .where(Passage.document_id == document_id)
        .where(or_(Passage.vector.is_(None), PassageSentences.passage_id.is_(None)))
        .order_by(Passage.id)
        .limit(limit)
    )
    return [Unembedded(*row) for row in session.execute(query)]


def page(session: Session, document_id: str, number: int) -> str:
    """The text of a page that there is."""
    return session.get_one(PageText, (document_id, number)).text


def save(
    session: Session, passage_id: int, spans: Sequence[Span], vectors: NDArray[np.float32]
) -> None:
    session.merge(
        PassageSentences(
            passage_id=passage_id,
            spans=np.array(spans, dtype=SPAN_DTYPE).tobytes(),
            vectors=vectors.astype(SENTENCE_DTYPE).tobytes(),
        )
    )


def forget(session: Session, document_id: str) -> None:
    """Delete the sentences of a document."""
    passages = select(Passage.id).where(Passage.document_id == document_id)
    session.execute(delete(PassageSentences).where(PassageSentences.passage_id.in_(passages)))


def next_incomplete(
    session: Session, embedder: str, besides: Collection[str] = ()
) -> Document | None:
    """A ready document with vectors of another embedder, or with sentences still to be embedded."""
    return session.scalar(
        select(Document)
        .where(Document.id.in_(_incomplete(embedder).with_only_columns(Document.id)))
        .where(Document.id.not_in(besides), ~_has_draft())
        .order_by(Document.size_bytes, Document.id)
        .limit(1)
    )


def _has_draft() -> ColumnElement[bool]:
    draft = aliased(Document)
    return select(draft.id).where(draft.replaces == Document.id).exists()


def count_incomplete(session: Session, embedder: str, besides: Collection[str] = ()) -> int:
    """How many passages of ready documents are not wholly embedded by this embedder."""
    query = _incomplete(embedder).where(Document.id.not_in(besides))
    return session.scalar(query.with_only_columns(func.count())) or 0


def _incomplete(embedder: str) -> Select[Document]:
    return (
        select(Document)
        .join(Passage, Passage.document_id == Document.id)
        .outerjoin(PassageSentences, PassageSentences.passage_id == Passage.id)
        .where(Document.state == "ready")
        .where(
            or_(
                Document.embedder.is_distinct_from(embedder),
                Passage.vector.is_(None),
                PassageSentences.passage_id.is_(None),
            )
        )
    )


def of_passages(session: Session, ids: Iterable[int], embedder: str) -> dict[int, StoredSentences]:
    """The sentences of passages, by passage id; a passage that is not embedded yet has none."""
    # A page of plain text may be a whole book: only what is around the passage leaves the database.
    first = Passage.char_start - MAX_CHARACTERS
    start = case((first > 0, first), else_=0)
    window = func.substr(PageText.text, start + 1, Passage.char_end + MAX_CHARACTERS - start)
    query = (
        select(PassageSentences, start, window, Document.embedder == embedder)
        .join(Passage, Passage.id == PassageSentences.passage_id)
        .join(Document, Document.id == Passage.document_id)
        .join(
            PageText,
            (PageText.document_id == Passage.document_id) & (PageText.page == Passage.page),
        )
        .where(PassageSentences.passage_id.in_(list(ids)))
    )
    found = {}
    for row, offset, text, own in session.execute(query):
        pairs = np.frombuffer(row.spans, dtype=SPAN_DTYPE).reshape(-1, 2).tolist()
        vectors = None
        if own:
            vectors = np.frombuffer(row.vectors, dtype=SENTENCE_DTYPE).astype(np.float32)
            vectors = vectors.reshape(len(pairs), -1)
        found[row.passage_id] = StoredSentences(
            tuple(Span(*pair) for pair in pairs),
            tuple(text[start - offset : end - offset] for start, end in pairs),
            vectors,
        )
    return found
