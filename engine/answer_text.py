"""The visible text of an answer: whole characters, and nothing of a stop string."""

from collections.abc import Sequence

from engine.tokenizer import TextStream, Tokenizer


class AnswerText:
    """Turns tokens into text pieces that can be shown at once and never taken back."""

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._stream: TextStream | None = None  # begun by the first token
        self._stop = tuple(stop)
        self._held = ""  # could be the start of a stop string
        self.text = ""  # everything let out
        self.stopped = False

    def push(self, token: int) -> str:
        """The text that may be shown now; sets `stopped` when a stop string is complete."""
        self._stream = self._stream or self._tokenizer.stream()
        self._held += self._stream.push(token)
        found = [at for stop in self._stop if (at := self._held.find(stop)) >= 0]
        if found:
            self.stopped = True
            piece, self._held = self._held[: min(found)], ""
        else:
            keep = self._possible_stop()
            piece = self._held[: len(self._held) - keep]
            self._held = self._held[len(piece) :]
        self.text += piece
        return piece

    def flush(self) -> str:
        """What was held back, once it is clear that no stop string follows."""
        piece, self._held = self._held, ""
        self.text += piece
        return piece

    def _possible_stop(self) -> int:
        """Length of the longest end of the held text that begins a stop string."""
        for length in range(max(map(len, self._stop), default=1) - 1, 0, -1):
            tail = self._held[-length:]
            if len(tail) == length and any(stop.startswith(tail) for stop in self._stop):
                return length
        return 0
