"""Documents that are indexed again beside what was read before, and take its place in the end.

A draft is a row like a document's that nobody sees: it belongs to no person, and says whose place
it will take (`replaces`). Its words are indexed as its document's owner's.
"""

from sqlalchemy import update
from sqlalchemy.orm import Session

from retrieval.store import (
    Document,
    PageText,
    Passage,
    clear_content,
    document_id,
    new_document,
)

# Before a document's id, the owner of its draft: no person has a colon in their name.
OWNERS = "draft:"
# What reading a file and embedding its passages changes of a document.
_READ = ("title", "warnings", "pages_without_text", "characters", "seconds", "embedder")


def draft_of(document: Document) -> Document:
    """A new draft, in which a document is indexed again."""
    draft = new_document(
        _owner(document.id),
        document.name,
        document.format,
        document.content_hash,
        document.size_bytes,
    )
    draft.replaces = document.id
    return draft


def draft_id(id: str, content_hash: str) -> str:
    """The id of a document's draft, whether there is one or not."""
    return document_id(_owner(id), content_hash)


def _owner(id: str) -> str:
    return OWNERS + id


def take(session: Session, draft: Document) -> None:
    """Put a draft's pages and passages in the place of those that its document had."""
    document = session.get_one(Document, draft.replaces)
    clear_content(session, document.id)
    for part in (PageText, Passage):
        moved = update(part).where(part.document_id == draft.id)
        session.execute(moved.values(document_id=document.id))
    for name in _READ:
        setattr(document, name, getattr(draft, name))
    document.reason = None
    session.delete(draft)


def owner_of(session: Session, document: Document) -> str:
    """Whose a document is, a draft its document's owner."""
    if document.replaces is None:
        return document.owner
    return session.get_one(Document, document.replaces).owner
