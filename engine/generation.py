"""One answer on its way: what the caller holds while the engine works."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Literal

from engine.errors import EngineError
from engine.stats import EngineStats

FinishReason = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True)
class GenerationResult:
    """A finished answer.

    Attributes:
        tokens: ids generated, the end-of-turn token included where the model wrote one.
        text: what was streamed: without control tokens and without the stop string.
        finish_reason: "stop" (end-of-turn token or stop string), "length" or "cancelled".
        stats: what it cost.
    """

    tokens: tuple[int, ...]
    text: str
    finish_reason: FinishReason
    stats: EngineStats


class Generation:
    """A stream of text pieces, only whole characters: iterate it, cancel it, await its result.

    One thread iterates; `cancel` may be called from any. Errors of the request are raised where it
    is iterated or its result is asked for.
    """

    def __init__(
        self, on_cancel: Callable[[], None], may_wait: Callable[[], bool] = lambda: True
    ) -> None:
        """
        Args:
            on_cancel: called by `cancel`; takes no lock, since finalisers call it too.
            may_wait: False on the engine's own thread, which would wait for itself.
        """
        self._pieces: SimpleQueue[str | None] = SimpleQueue()
        self._on_cancel = on_cancel
        self._may_wait = may_wait
        self._done = threading.Event()
        self._result: GenerationResult | None = None
        self._error: EngineError | None = None

    def __iter__(self) -> Iterator[str]:
        """Text pieces as they come.

        Raises:
            EngineError: the request failed.
        """
        while (piece := self._pieces.get()) is not None:
            yield piece
        self._pieces.put(None)  # a second iteration ends at once
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        """Stop within one step. What was generated stays in the session; no error is raised."""
        self._on_cancel()

    @property
    def done(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self._done.is_set()

    def result(self, timeout_s: float | None = None) -> GenerationResult:
        """Wait for the end.

        Raises:
            EngineError: the request failed.
            TimeoutError: it is not finished after `timeout_s`.
            RuntimeError: it is not finished, and this is the engine's own thread.
        """
        if not self._done.is_set() and not self._may_wait():
            raise RuntimeError("the engine's thread cannot wait for an answer of its own")
        if not self._done.wait(timeout_s):
            raise TimeoutError(f"the answer is not finished after {timeout_s} s")
        if self._error is not None:
            raise self._error
        assert self._result is not None  # set together with the event
        return self._result

    # -- for the engine ----------------------------------------------------------------------

    def push(self, piece: str) -> None:
        if piece:
            self._pieces.put(piece)

    def finish(self, result: GenerationResult) -> None:
        self._result = result
        self._end()

    def fail(self, error: EngineError) -> None:
        self._error = error
        self._end()

    def _end(self) -> None:
        self._done.set()
        self._pieces.put(None)
