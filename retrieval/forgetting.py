"""What was removed here and still has to be forgotten elsewhere, written down with the removal.

A removal is one transaction, but others copy what they find: conversations quote documents. A row
here stands for what they have still to do. It is written in the transaction of the removal and
deleted in that which finishes it, so a process that dies between the two leaves it to the next.
"""

from collections.abc import Sequence
from typing import Literal

from sqlalchemy import String, delete, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from retrieval.database import Base

Kind = Literal["document", "owner"]


class ToForget(Base):
    """A removed document's id, or the name of an owner of whom everything is being removed."""

    __tablename__ = "to_forget"

    kind: Mapped[Kind] = mapped_column(String(16), primary_key=True)
    name: Mapped[str] = mapped_column(String(255), primary_key=True)


def note(session: Session, kind: Kind, name: str) -> None:
    """From this transaction on, it is to be forgotten."""
    session.merge(ToForget(kind=kind, name=name))
    session.flush()


def left(session: Session, kind: Kind) -> Sequence[str]:
    """What is still to be forgotten."""
    query = select(ToForget.name).where(ToForget.kind == kind)
    return session.scalars(query.order_by(ToForget.name)).all()


def done(session: Session, kind: Kind, name: str) -> None:
    """With this transaction, it is forgotten everywhere."""
    session.execute(delete(ToForget).where(ToForget.kind == kind, ToForget.name == name))
