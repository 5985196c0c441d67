"""Where a session's pages come from. No tensors.

When pages run out they are taken in this order: free ones; cached ones, which nobody holds, leaves
first; those of idle sessions, the longest unused first (their tokens stay). Only then does the
scheduler send a running request back to the queue.
"""

from collections import Counter
from collections.abc import Callable, Sequence, Set

from engine.kv.pages import PageAllocator
from engine.kv.session import Session


class Supply:
    """Gives out pages of either kind."""

    def __init__(
        self,
        pages: PageAllocator,
        sessions: Set[Session],
        note_new: Callable[[Sequence[int]], None],
    ) -> None:
        """
        Args:
            pages: of the pool.
            sessions: all that are open; looked at, never changed.
            note_new: told which pages were given out.
        """
        self._pages, self._sessions = pages, sessions
        self._note_new = note_new

    def obtain(self, count: int, for_session: Session) -> list[int]:
        """Pages in full precision; idle sessions give theirs up if that helps.

        Raises:
            OutOfPages: there are too few all the same; nothing has changed.
        """
        if self._pages.available < count <= self._obtainable_frames(for_session):
            self.drop_idle(for_session, lambda: count <= self._pages.available)
        pages = self._pages.allocate(count)
        self._note_new(pages)
        return pages

    def obtain_coded(self, count: int, for_session: Session) -> list[int]:
        """Coded pages; idle sessions give theirs up if that helps.

        Raises:
            OutOfPages: there are too few all the same; nothing has changed.
        """
        if self._pages.available_slots < count <= self.obtainable_slots(for_session):
            self.drop_idle(for_session, lambda: count <= self._pages.available_slots)
        pages = self._pages.allocate_coded(count)
        self._note_new(pages)
        return pages

    def obtainable_slots(self, for_session: Session) -> int:
        """Slots that a session could have now: unheld ones, and those only idle others hold."""
        idle = sum(map(self._pages.slots, self._only_idle(for_session)))
        return self._pages.available_slots + idle

    def drop(self, session: Session) -> None:
        """Give a session's pages back, last ones first; its tokens stay."""
        self._pages.release(reversed(session.pages))
        session.pages, session.nodes = [], []
        session.kv_tokens = session.static_tokens = 0

    def drop_idle(self, for_session: Session, enough: Callable[[], bool] = lambda: False) -> None:
        """Idle sessions but this one give their pages up, the longest unused first, until enough.

        Without a condition all do.
        """
        for session in sorted(self._idle(for_session), key=lambda s: (s.last_used, s.id)):
            self.drop(session)
            if enough():
                return

    def _obtainable_frames(self, for_session: Session) -> int:
        idle = Counter(map(self._pages.frame, self._only_idle(for_session)))
        return self._pages.available + sum(
            count == self._pages.held_in(frame) for frame, count in idle.items()
        )

    def _idle(self, but: Session) -> list[Session]:
        return [s for s in self._sessions if s.pages and not s.running and s is not but]

    def _only_idle(self, but: Session) -> list[int]:
        """Pages that nobody but idle sessions holds."""
        held = Counter(page for session in self._idle(but) for page in session.pages)
        return [page for page, count in held.items() if count == self._pages.holders(page)]
