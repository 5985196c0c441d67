"""Passages that are gone, and of which the indexes may still hold words or a vector.

They are listed in the transaction that removes them, and struck off when the indexes hold nothing
of them any more: a process that dies in between leaves them to the next.
"""

from collections.abc import Sequence

from sqlalchemy import BigInteger, Integer, bindparam, delete, insert, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from retrieval.database import Base


class RemovedPassage(Base):
    __tablename__ = "removed_passages"

    id: Mapped[int] = mapped_column(
        BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False
    )


def note(session: Session, ids: Sequence[int]) -> None:
    """From this transaction on, the indexes are to let go of them."""
    if ids:
        session.execute(insert(RemovedPassage), [{"id": id} for id in ids])


def left(session: Session) -> list[int]:
    """What the indexes may still hold."""
    return list(session.scalars(select(RemovedPassage.id)))


def done(session: Session, ids: Sequence[int]) -> None:
    """They are in no index any more."""
    if ids:
        gone = delete(RemovedPassage).where(RemovedPassage.id == bindparam("gone"))
        # One statement for all, on the connection: the write lock is held meanwhile.
        session.connection().execute(gone, [{"gone": id} for id in ids])
