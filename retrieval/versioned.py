"""What was read from the database, kept for everyone who asks until something is written."""

from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

from sqlalchemy.orm import Session

from retrieval.database import Database

T = TypeVar("T")


class Versioned(Generic[T]):
    """Values by a key (an owner), all of one version of the database; thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = Lock()
        self._version = ""
        self._values: dict[str, T] = {}

    def of(self, key: str, read: Callable[[Session], T]) -> T:
        """The value as the database has it now; shared, so not to be changed."""
        # Asked before reading: a value may be newer than its version, and then is read again.
        version = self._database.version
        with self._lock:
            if self._version != version:
                self._version, self._values = version, {}
            if key in self._values:
                return self._values[key]
        with self._database.reading() as session:
            value = read(session)
        with self._lock:
            if self._version == version:
                self._values[key] = value
        return value
