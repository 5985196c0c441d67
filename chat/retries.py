"""What could not be written is tried again, with growing pauses, until it is."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 30.0

log = logging.getLogger(__name__)


class Retries:
    """Actions by a key; thread-safe. A thread runs them while any is left, and only then.

    An action is left as long as it raises, and never runs twice at a time.
    """

    def __init__(
        self, first_pause_s: float = FIRST_PAUSE_S, longest_pause_s: float = LONGEST_PAUSE_S
    ) -> None:
        self._first_pause_s, self._longest_pause_s = first_pause_s, longest_pause_s
        self._changed = threading.Condition()
        self._one_at_a_time = threading.Lock()
        self._left: dict[str, Callable[[], object]] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, key: str, action: Callable[[], object]) -> None:
        """Run it until it succeeds, the first time after a short pause."""
        with self._changed:
            self._left[key] = action
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="retries", daemon=True)
                self._thread.start()

    def drop(self, key: str) -> None:
        """It needs to be done no more."""
        with self._changed:
            self._left.pop(key, None)
            self._changed.notify_all()

    def wait(self, key: str, timeout_s: float) -> bool:
        """Whether it is done, as soon as it is or after `timeout_s`."""
        with self._changed:
            return self._changed.wait_for(lambda: key not in self._left, timeout_s)

    def now(self, key: str) -> None:
        """Run it at once, if it is still left. Raises what it raises; then it stays."""
        with self._one_at_a_time:
            with self._changed:
                action = self._left.get(key)
            if action is not None:
                action()
                self.drop(key)

    def close(self) -> None:
        """Try everything that is left for a last time."""
        with self._changed:
            self._closed = True
            keys = list(self._left)
            self._changed.notify_all()
        for key in keys:
            try:
                self.now(key)
            except Exception:
                log.exception("%s could not be written before the end", key)

    def _run(self) -> None:
        pause_s = self._first_pause_s
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed, pause_s)
                if self._closed or not self._left:
                    self._thread = None
                    return
                keys = list(self._left)
            try:
                for key in keys:
                    self.now(key)
                pause_s = self._first_pause_s
            except Exception as error:
                log.warning("%s could not be written, and is tried again: %s", key, error)
                pause_s = min(2 * pause_s, self._longest_pause_s)
