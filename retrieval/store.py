"""Documents, their pages and their passages in the database, and the queries on them."""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Select,
    String,
    Text,
    UniqueConstraint,
    delete,
    func,
    insert,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.orm import Mapped, Session, aliased, mapped_column

from retrieval.database import Base, UtcDateTime
from retrieval.owners import visible_to
from retrieval.views import DocumentState, DocumentView

UNFINISHED = ("queued", "parsing", "embedding")

# SQLite numbers rows by itself only for a plain INTEGER key.
_PassageId = BigInteger().with_variant(Integer, "sqlite")
_UNEMBEDDED = text("vector IS NULL")


class Document(Base):
    """A file of one owner. Its identity is its content: a name is a label.

    Life: queued -> parsing -> embedding -> ready, or refused with a reason from any of them.
    `embedder` is the fingerprint of the model that the passages were cut and embedded for.
    `replaces` is the id of the document that a draft is of (`drafts.py`), NULL otherwise.
    `warnings`, `pages_without_text`, `characters` and `seconds` are what reading the file showed.
    """

    __tablename__ = "documents"
    __table_args__ = (
        UniqueConstraint("owner", "content_hash", name="uq_documents_owner_content_hash"),
        Index("ix_documents_state", "state"),
    )

    id: Mapped[str] = mapped_column(String(16), primary_key=True)
    owner: Mapped[str] = mapped_column(String(255))
    name: Mapped[str] = mapped_column(Text)
    title: Mapped[str] = mapped_column(Text)
    format: Mapped[str] = mapped_column(String(16))
    state: Mapped[DocumentState] = mapped_column(String(16))
    reason: Mapped[str | None] = mapped_column(Text)
    warnings: Mapped[list[str]] = mapped_column(JSON, default=list)
    pages_without_text: Mapped[int] = mapped_column(Integer, default=0)
    characters: Mapped[int] = mapped_column(BigInteger, default=0)
    seconds: Mapped[float] = mapped_column(Float, default=0.0)
    content_hash: Mapped[str] = mapped_column(String(64), index=True)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    embedder: Mapped[str | None] = mapped_column(String(64))
    added_at: Mapped[datetime] = mapped_column(UtcDateTime())
    replaces: Mapped[str | None] = mapped_column(String(16))


class PageText(Base):
    """The extracted text of one page, 1-based; ranges of passages and citations point into it.

    `label` is what the page calls itself ("iii") where that is not its number, else "".
    """

    __tablename__ = "page_texts"

    document_id: Mapped[str] = mapped_column(
        ForeignKey("documents.id", ondelete="CASCADE"), primary_key=True
    )
    page: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    text: Mapped[str] = mapped_column(Text)
    label: Mapped[str] = mapped_column(Text, default="")
    ocr: Mapped[bool] = mapped_column(Boolean, default=False)


class Passage(Base):
    """A stretch of one page that fits the embedder; `text` = page text[char_start:char_end].

    Ids are never used twice, so that no stale index can lead to another passage. `vector` is
    float32, little-endian, normalised, [embedder.dim]; NULL while it is still to be computed.
    """

    __tablename__ = "passages"
    __table_args__ = (
        Index(
            "ix_passages_unembedded",
            "document_id",
            sqlite_where=_UNEMBEDDED,
            postgresql_where=_UNEMBEDDED,
        ),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(_PassageId, primary_key=True)
    document_id: Mapped[str] = mapped_column(
        ForeignKey("documents.id", ondelete="CASCADE"), index=True
    )
    page: Mapped[int] = mapped_column(Integer)
    char_start: Mapped[int] = mapped_column(Integer)
    char_end: Mapped[int] = mapped_column(Integer)
    text: Mapped[str] = mapped_column(Text)
    heading: Mapped[str] = mapped_column(Text)
    vector: Mapped[bytes | None] = mapped_column(LargeBinary)


class Hit(NamedTuple):
    """A live passage with its document and what is known of its page."""

    passage: Passage
    document: Document
    page_label: str
    ocr: bool


def document_id(owner: str, content_hash: str) -> str:
    return hashlib.sha256(f"{owner}\0{content_hash}".encode()).hexdigest()[:16]


def new_document(
    owner: str,
    name: str,
    format: str,
    content_hash: str,
    size_bytes: int,
    *,
    reason: str | None = None,
) -> Document:
    """A queued document, or a refused one if there is a `reason`."""
    return Document(
        id=document_id(owner, content_hash),
        owner=owner,
        name=name,
        title=name,
        format=format,
        state="refused" if reason else "queued",
        reason=reason,
        warnings=[],
        content_hash=content_hash,
        size_bytes=size_bytes,
        embedder=None,
        added_at=datetime.now(UTC),
    )


def _views() -> Select[Any]:
    draft = aliased(Document)

    def count(of: Any, *which: Any) -> Any:
        return select(func.count()).where(of == Document.id, *which).scalar_subquery()

    return select(
        Document,
        count(PageText.document_id),
        count(Passage.document_id),
        # To count those with a vector would read every one of them.
        count(Passage.document_id, Passage.vector.is_(None)),
        select(draft.state).where(draft.replaces == Document.id).scalar_subquery(),
    ).where(Document.replaces.is_(None))


def _view(row: Any) -> DocumentView:
    document, pages, passages, left, again = row
    return DocumentView(
        id=document.id,
        owner=document.owner,
        name=document.name,
        title=document.title,
        format=document.format,
        state=document.state,
        reason=document.reason,
        warnings=tuple(document.warnings),
        pages=pages,
        passages=passages,
        passages_done=passages - left,
        pages_without_text=document.pages_without_text,
        characters=document.characters,
        seconds=document.seconds,
        size_bytes=document.size_bytes,
        content_hash=document.content_hash,
        added_at=document.added_at,
        again=again,
    )


def views(session: Session, owner: str) -> list[DocumentView]:
    """All documents that an owner sees, oldest first."""
    query = _views().where(Document.owner.in_(visible_to(owner)))
    query = query.order_by(Document.added_at, Document.id)
    return [_view(row) for row in session.execute(query)]


def view(session: Session, id: str, owner: str | None = None) -> DocumentView | None:
    """A document, if there is one and `owner` sees it (None sees all)."""
    query = _views().where(Document.id == id)
    if owner is not None:
        query = query.where(Document.owner.in_(visible_to(owner)))
    row = session.execute(query).one_or_none()
    return None if row is None else _view(row)


def page_text(session: Session, id: str, page: int, owner: str) -> str | None:
    return session.scalar(
        select(PageText.text)
        .join(Document)
        .where(PageText.document_id == id, PageText.page == page)
        .where(Document.owner.in_(visible_to(owner)))
    )


def next_unfinished(session: Session, besides: Collection[str] = ()) -> Document | None:
    """The next document to work on; small ones first, so that one book keeps nobody waiting."""
    return session.scalar(
        select(Document)
        .where(Document.state.in_(UNFINISHED), Document.id.not_in(besides))
        .order_by(Document.size_bytes, Document.added_at, Document.id)
        .limit(1)
    )


def forget_vectors(session: Session, id: str, embedder: str) -> None:
    """Begin to embed a document's passages anew, by another embedder."""
    session.execute(update(Passage).where(Passage.document_id == id).values(vector=None))
    session.execute(update(Document).where(Document.id == id).values(embedder=embedder))


def clear_content(session: Session, id: str) -> list[int]:
    """Forget pages and passages of a document; returns the ids the passages had."""
    ids = passage_ids(session, id)
    session.execute(delete(Passage).where(Passage.document_id == id))
    session.execute(delete(PageText).where(PageText.document_id == id))
    return ids


def passage_ids(session: Session, id: str) -> list[int]:
    return list(
        session.scalars(select(Passage.id).where(Passage.document_id == id).order_by(Passage.id))
    )


def insert_rows(session: Session, model: type[Base], rows: Sequence[dict[str, Any]]) -> None:
    if rows:
        session.execute(insert(model), rows)


def save_vectors(session: Session, vectors: Iterable[tuple[int, bytes]]) -> None:
    session.execute(update(Passage), [{"id": id, "vector": vector} for id, vector in vectors])


def searchable_ids(session: Session, embedder: str) -> list[int]:
    """Ids of the passages of ready documents with vectors of this embedder, ascending."""
    query = (
        select(Passage.id)
        .join(Document)
        .where(Document.state == "ready", Document.embedder == embedder)
        .where(Passage.vector.is_not(None))
        .order_by(Passage.id)
    )
    return list(session.scalars(query))


def visible_ids(
    session: Session,
    owner: str,
    documents: Sequence[str] | None,
    among: Sequence[int] | None = None,
) -> set[int]:
    """Ids of the passages of ready documents that this owner sees, or the `documents` of them."""
    query = select(Passage.id).join(Document).where(Document.state == "ready")
    query = query.where(Document.owner.in_(visible_to(owner)))
    if documents is not None:
        query = query.where(Document.id.in_(documents))
    if among is not None:
        query = query.where(Passage.id.in_(among))
    return set(session.scalars(query))


def searchable_vectors(session: Session, embedder: str) -> list[tuple[int, bytes]]:
    """(passage id, vector) of ready documents with vectors of this embedder."""
    query = (
        select(Passage.id, Passage.vector)
        .join(Document)
        .where(Document.state == "ready", Document.embedder == embedder)
        .order_by(Passage.id)
    )
    return [(id, vector) for id, vector in session.execute(query) if vector is not None]


def document_vectors(session: Session, id: str) -> list[tuple[int, bytes]]:
    query = select(Passage.id, Passage.vector).where(Passage.document_id == id)
    return [(id, vector) for id, vector in session.execute(query) if vector is not None]


def has_hidden(session: Session, owner: str) -> bool:
    """Whether there are documents that this owner does not see."""
    query = select(Document.id).where(Document.owner.not_in(visible_to(owner)))
    return session.scalar(query.where(Document.replaces.is_(None)).limit(1)) is not None


def hits(
    session: Session, ids: Sequence[int], owner: str, documents: Sequence[str] | None
) -> dict[int, Hit]:
    """The live passages among `ids` that this owner may see, by id."""
    query = (
        select(Passage, Document, PageText.label, PageText.ocr)
        .join(Document, Document.id == Passage.document_id)
        .join(
            PageText,
            (PageText.document_id == Passage.document_id) & (PageText.page == Passage.page),
        )
        .where(Passage.id.in_(ids), Document.state == "ready")
        .where(Document.owner.in_(visible_to(owner)))
    )
    if documents is not None:
        query = query.where(Document.id.in_(documents))
    return {row[0].id: Hit(*row) for row in session.execute(query)}


def is_content_wanted(session: Session, content_hash: str) -> bool:
    """Whether any owner has a document with this content, be it a refused one."""
    query = select(Document.id).where(Document.content_hash == content_hash)
    return session.scalar(query.limit(1)) is not None


def content_hashes(session: Session, refused: bool) -> set[str]:
    """The contents of all documents, or without those of the `refused` ones, which may have had
    nothing to keep."""
    query = select(Document.content_hash).distinct()
    if not refused:
        query = query.where(Document.state != "refused")
    return set(session.scalars(query))


def all_passage_ids(session: Session) -> list[int]:
    return list(session.scalars(select(Passage.id).order_by(Passage.id)))


def owners(session: Session) -> list[str]:
    """Everybody who has documents, in order of name."""
    query = select(Document.owner).where(Document.replaces.is_(None)).distinct()
    return list(session.scalars(query.order_by(Document.owner)))


def index_texts(
    session: Session, *, id: str | None = None, owner: str | None = None
) -> list[tuple[int, str]]:
    """(passage id, the text whose words are indexed), of one document, or of one owner's documents
    with their drafts."""
    query = select(Passage.id, Document.title, Passage.heading, Passage.text).join(Document)
    if id is not None:
        query = query.where(Passage.document_id == id)
    if owner is not None:
        own = aliased(Document)
        drafts = Document.replaces.in_(select(own.id).where(own.owner == owner))
        query = query.where(or_(Document.owner == owner, drafts))
    rows = session.execute(query.order_by(Passage.id))
    return [(id, index_text(*parts)) for id, *parts in rows]


def index_text(title: str, heading: str, text: str) -> str:
    return f"{title}\n{heading}\n{text}"


def set_state(session: Session, id: str, state: DocumentState, reason: str | None = None) -> None:
    session.execute(update(Document).where(Document.id == id).values(state=state, reason=reason))


def delete_document(session: Session, id: str) -> list[int]:
    """Delete a document, and its draft if there is one; returns the ids their passages had."""
    both = select(Document.id).where(or_(Document.replaces == id, Document.id == id))
    ids: list[int] = []
    for one in session.scalars(both).all():
        ids += clear_content(session, one)
        session.execute(delete(Document).where(Document.id == one))
    return ids


def has_documents(session: Session, owner: str) -> bool:
    query = select(Document.id).where(Document.state != "refused")
    query = query.where(Document.owner.in_(visible_to(owner)))
    return session.scalar(query.limit(1)) is not None


def ready_count(session: Session) -> int:
    return session.scalar(select(func.count(Document.id)).where(Document.state == "ready")) or 0
