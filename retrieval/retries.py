"""What failed and may not fail another time: which documents are to be tried again, and when."""

import threading
import time
from typing import NamedTuple

from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as NoConnection

from retrieval.database import is_storage_full
from retrieval.errors import EmbedderUnavailable, MayPass, ParserStopped, Unreadable

RETRIES = 3
# Before the first one; before each further one four times as long as before the last.
PAUSE_S = 5.0
_NEVER = float("inf")
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory")
TOO_LITTLE_MEMORY = (
    "There was too little memory to index the file. Close other programs, or add it in parts."
)


class _Failed(NamedTuple):
    times: int
    due_s: float
    reason: str


class Retries:
    """Documents whose last step failed, by id. Thread-safe; forgotten with the process, so that
    the next one tries everything again that is unfinished."""

    def __init__(self) -> None:
        self._failed: dict[str, _Failed] = {}
        self._lock = threading.Lock()

    @property
    def reasons(self) -> tuple[tuple[str, str], ...]:
        """Why documents wait, by id."""
        with self._lock:
            return tuple((id, failed.reason) for id, failed in self._failed.items())

    def again(self, id: str, reason: str) -> bool:
        """Note a failure that may pass; False if the document has been tried often enough."""
        with self._lock:
            times = self._failed[id].times + 1 if id in self._failed else 1
            if times > RETRIES:
                return False
            due_s = time.monotonic() + PAUSE_S * 4 ** (times - 1)
            self._failed[id] = _Failed(times, due_s, reason)
            return True

    def set_aside(self, id: str) -> None:
        """Try a document no more in this process."""
        with self._lock:
            self._failed[id] = _Failed(RETRIES, _NEVER, "")

    def given_up(self) -> set[str]:
        """The documents that were set aside."""
        with self._lock:
            return {id for id, failed in self._failed.items() if failed.due_s == _NEVER}

    def forget(self, id: str) -> None:
        with self._lock:
            self._failed.pop(id, None)

    def keep(self, ids: set[str]) -> None:
        """Forget all others, which are due and not there any more."""
        with self._lock:
            self._failed = {id: failed for id, failed in self._failed.items() if id in ids}

    def reason(self, id: str) -> str | None:
        """Why a document waits to be tried again, if it does."""
        failed = self._failed.get(id)
        return failed.reason or None if failed else None

    def resting(self) -> set[str]:
        """The documents that are not to be tried now."""
        now = time.monotonic()
        with self._lock:
            return {id for id, failed in self._failed.items() if failed.due_s > now}

    def pause_s(self) -> float | None:
        """Until the first of them is due; None if none ever is."""
        with self._lock:
            due_s = min((failed.due_s for failed in self._failed.values()), default=_NEVER)
        return None if due_s == _NEVER else max(0.0, due_s - time.monotonic())


def is_of_machine(error: Exception) -> bool:
    """Whether the fault lies outside of any document, so that all of them have to wait."""
    if isinstance(error, (ParserStopped, EmbedderUnavailable, OperationalError, NoConnection)):
        return True
    return is_storage_full(error) or isinstance(error, OSError)


def may_pass(error: Exception) -> bool:
    """Whether a document that failed so may be indexed another time."""
    return isinstance(error, MayPass) or _is_out_of_memory(error)


def reason(error: Exception) -> str:
    """Why a document was not indexed, for the person who added it."""
    if isinstance(error, Unreadable):
        return error.reason
    if _is_out_of_memory(error):
        return TOO_LITTLE_MEMORY
    return f"Indexing the file failed ({type(error).__name__}: {error}). The log has the details."


def _is_out_of_memory(error: Exception) -> bool:
    """Python's own error, or one of torch's, which on a CPU is any RuntimeError."""
    if isinstance(error, MemoryError):
        return True
    said = str(error).lower()
    return isinstance(error, RuntimeError) and any(sign in said for sign in _OUT_OF_MEMORY)
