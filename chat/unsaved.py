"""Ends of turns that could not be saved: kept in memory, shown, and saved when that is possible.

The database says of such a turn that it is pending; nobody is to read that, since nothing writes
its answer any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from threading import Lock

from chat.errors import NotSaved
from chat.notes import NOT_SAVED
from chat.retries import Retries
from chat.store import ConversationStore, Outcome
from chat.views import TurnView

# So long an asker waits for the second try and the third: what passes at once need not be said.
WAIT_S = 2.0


@dataclass
class _End:
    session_id: str
    outcome: Outcome
    removed_documents: set[str]  # the outcome's own, where it has one
    saved: TurnView | None = None


class Unsaved:
    """The unsaved ends of all conversations, by the turns' ids; thread-safe."""

    def __init__(self, store: ConversationStore, retries: Retries, wait_s: float = WAIT_S) -> None:
        self._store = store
        self._retries = retries
        self._wait_s = wait_s
        self._lock = Lock()
        self._ends: dict[str, _End] = {}

    def keep(
        self, view: TurnView, outcome: Outcome, removed_documents: set[str]
    ) -> TurnView | None:
        """Keep a turn's end, of which ``view`` tells as much as is known without the database.

        Returns the turn as ``ConversationStore.finish`` does where it could be saved after a
        moment, else as an error that says that it is not saved yet.
        """
        end = _End(view.session, outcome, removed_documents)
        with self._lock:
            self._ends[view.turn] = end
        self._retries.add(view.turn, self._saving(view.turn, end))
        if self._retries.wait(view.turn, self._wait_s):
            return end.saved
        return self._told(view, outcome)

    def _saving(self, turn_id: str, end: _End) -> Callable[[], None]:
        def save() -> None:
            end.saved = self._store.finish(turn_id, end.outcome)
            with self._lock:
                self._ends.pop(turn_id, None)

        return save

    def shown(self, turns: Sequence[TurnView]) -> list[TurnView]:
        """The turns, with what is kept of those whose end is not saved yet."""
        with self._lock:
            ends = dict(self._ends)
        return [
            self._told(turn, ends[turn.turn].outcome)
            if turn.turn in ends and turn.state == "pending"
            else turn
            for turn in turns
        ]

    def _told(self, turn: TurnView, outcome: Outcome) -> TurnView:
        return replace(
            turn,
            answer=outcome.answer,
            state="error",
            finish_reason="error",
            error=NOT_SAVED,
            stats=outcome.stats,
            notes=tuple(outcome.notes),
        )

    def save(self, session_id: str) -> None:
        """Save a conversation's ends now, since something is to follow. Raises NotSaved."""
        for turn_id in self._of(session_id):
            try:
                self._retries.now(turn_id)
            except Exception as error:
                raise NotSaved(session_id) from error

    def forget(self, session_id: str) -> None:
        """The conversation is deleted: nothing of it is kept."""
        for turn_id in self._of(session_id):
            self._retries.drop(turn_id)
            with self._lock:
                self._ends.pop(turn_id, None)

    def document_removed(self, document_id: str) -> None:
        """The ends are saved without it, like turns that are still running."""
        with self._lock:
            for end in self._ends.values():
                end.removed_documents.add(document_id)

    def _of(self, session_id: str) -> list[str]:
        with self._lock:
            return [id for id, end in self._ends.items() if end.session_id == session_id]
