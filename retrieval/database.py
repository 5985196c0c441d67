"""One database for documents and conversations, and the way to a transaction on it."""

import errno
import sqlite3
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import DateTime, Engine, create_engine, event
from sqlalchemy.engine import Connection, Dialect, make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Session, sessionmaker
from sqlalchemy.types import TypeDecorator

from retrieval import durable

BUSY_TIMEOUT_S = 30.0
_COPY = ".before-"


class Base(DeclarativeBase):
    """The parent of every model, here and in `chat`."""


class UtcDateTime(TypeDecorator[datetime]):
    """An aware UTC datetime on every backend (SQLite itself forgets the zone)."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("A stored time needs a time zone; use datetime.now(UTC).")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Database:
    """The engine for `url` and sessions on it; thread-safe.

    `session()` writes, `reading()` only reads. On SQLite a writing session takes the write lock
    at its start: a transaction that reads first and writes later would otherwise fail at once
    ("database is locked") when another thread wrote in between, whatever the busy timeout.
    """

    def __init__(self, url: str) -> None:
        self.url = make_url(url)
        self.engine: Engine = create_engine(self.url)
        if self.is_sqlite:
            event.listen(self.engine, "connect", _prepare_sqlite)
            event.listen(self.engine, "begin", _begin_sqlite)
        writing = self.engine.execution_options(sqlite_begin="BEGIN IMMEDIATE")
        self._process, self._writes, self._counting = uuid.uuid4().hex, 0, threading.Lock()
        self._writing = sessionmaker(writing, expire_on_commit=False)
        self._reading = sessionmaker(self.engine, expire_on_commit=False)

    @property
    def is_sqlite(self) -> bool:
        return self.url.get_backend_name() == "sqlite"

    @property
    def path(self) -> Path | None:
        """The database's file, where it is one."""
        return Path(self.url.database) if self.is_sqlite and self.url.database else None

    @contextmanager
    def session(self, *, is_news: bool = True) -> Iterator[Session]:
        """One writing transaction: committed at the end, rolled back on an exception.

        It makes another `version`, unless nothing that is shown depends on it (`is_news`).
        """
        with self._writing() as session, session.begin():
            yield session
        if is_news:
            with self._counting:
                self._writes += 1

    @property
    def version(self) -> str:
        """Changes with everything that this process writes, and from process to process.

        Who has read something and sees the same version need not read it again. Other processes
        do not write while one holds the data folder.
        """
        return f"{self._process}-{self._writes}"

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """One consistent view of the data; nothing done in it is kept."""
        with self._reading() as session:
            yield session

    def copy_before(self, version: str) -> None:
        """Put a copy of the database beside it, before it is changed to the layout `version`.

        It is there until something is deleted: what is deleted must not go on in a copy.
        """
        if self.path is not None:
            copy = self.path.with_name(f"{self.path.name}{_COPY}{version}")
            part = copy.with_name(copy.name + ".part")
            part.unlink(missing_ok=True)
            snapshot(self.path, part)
            durable.replace(part, copy)

    def checkpoint(self) -> None:
        """Move the write-ahead log into the database file, so that deleted text leaves both.

        Does what it can beside other readers; the rest follows with a later call. Copies that
        were made before an update hold what was deleted, and go as well.
        """
        if self.path is not None:
            for copy in self.path.parent.glob(f"{self.path.name}{_COPY}*"):
                copy.unlink(missing_ok=True)
        if self.is_sqlite:
            with self.engine.connect() as connection:
                driver = connection.connection.driver_connection
                if driver is not None:
                    driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()

    def close(self) -> None:
        self.engine.dispose()


def snapshot(database: Path, target: Path) -> None:
    """A copy of an SQLite database as it is at one moment, whoever writes to it meanwhile.

    `target` is one plain file, without a log beside it. Raises sqlite3.Error and OSError.
    """
    with (
        closing(sqlite3.connect(database, timeout=BUSY_TIMEOUT_S)) as source,
        closing(sqlite3.connect(target)) as copy,
    ):
        source.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")


def _prepare_sqlite(connection: Any, _record: object) -> None:
    # Python's driver would begin transactions on its own, too late and always deferred.
    connection.isolation_level = None
    cursor = connection.cursor()
    try:
        cursor.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}")
        cursor.execute("PRAGMA journal_mode = WAL")
        # A commit returns when its log is on the disk: what was acknowledged survives a power cut.
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA foreign_keys = ON")
        # What is deleted is overwritten, not merely marked as free.
        cursor.execute("PRAGMA secure_delete = ON")
    finally:
        cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    statement = connection.get_execution_options().get("sqlite_begin", "BEGIN")
    connection.exec_driver_sql(statement)


def is_storage_full(error: BaseException) -> bool:
    """True for any of the ways in which the system and SQLite say that no space is left."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    # A quota or file size limit reaches SQLite as a failed write, not as "full"; and the file that
    # readers of the log share cannot be made on a full disk.
    return _sqlite_code(error) in (
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR_WRITE,
        sqlite3.SQLITE_IOERR_SHMSIZE,
    )


def is_locked(error: BaseException) -> bool:
    """True where another process wrote to the database for longer than anybody waits."""
    return _sqlite_code(error) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_damaged(error: BaseException) -> bool:
    """True where the file of the database is none any more, or not what SQLite wrote."""
    if isinstance(error, UnicodeDecodeError):  # what is wrong with a name, in its own bytes
        return error.object.startswith(b"malformed database")
    if isinstance(error, DBAPIError) and "Could not decode to UTF-8" in str(error.orig):
        return True
    return _sqlite_code(error) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _sqlite_code(error: BaseException) -> int:
    """SQLite's extended result code of an error, 0 of any other."""
    if isinstance(error, DBAPIError) and error.orig is not None:
        error = error.orig
    return getattr(error, "sqlite_errorcode", 0) if isinstance(error, sqlite3.Error) else 0
