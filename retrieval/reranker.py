"""A cross-encoder that reads question and passage together, and orders the first ones anew.

Off unless one is named: it costs a run of its model for each passage, some tenths of a second on
a CPU, and a small one helps little where search is right already.
"""

import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from retrieval.errors import RerankerUnavailable
from retrieval.views import Found

# So many of the first passages are read; what is further down was hardly meant.
READ = 20


class Reranker:
    """A model by its folder or by the Hub id of one in the local cache. Thread-safe.

    It is loaded at the first question. Raises RerankerUnavailable if that cannot be done.
    """

    def __init__(self, model: str, device: str = "auto") -> None:
        self.model = model
        self._device = None if device == "auto" else device
        self._lock = threading.Lock()

    @cached_property
    def _encoder(self) -> Any:
        from sentence_transformers import CrossEncoder

        try:
            return CrossEncoder(self.model, device=self._device, local_files_only=True)
        except (OSError, ValueError, KeyError) as error:
            raise RerankerUnavailable(self.model, error) from error

    def order(self, question: str, passages: Sequence[Found]) -> list[Found]:
        """The passages by the model's score, which becomes theirs, best first."""
        if not passages:
            return []
        pairs = [(question, f"{p.heading}\n{p.text}".strip()) for p in passages]
        with self._lock:
            scores = self._encoder.predict(pairs, show_progress_bar=False)
        read = [replace(p, score=float(s)) for p, s in zip(passages, scores, strict=True)]
        return sorted(read, key=lambda passage: -passage.score)
