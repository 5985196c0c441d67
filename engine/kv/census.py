"""What the pool is used for now: by kind, by page, by session."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from engine.kv.cache import KVCache
from engine.kv.session import Session
from engine.stats import SessionInfo

PageKind = Literal["static", "active", "idle", "cached", "free"]


class PageCounts(NamedTuple):
    """Units (see `PageLayout`) by what they are used for; all but the total add up to it."""

    total: int
    static: int
    sessions: int
    cached: int
    free: int


class Census:
    """Counts the pages of one cache."""

    def __init__(self, cache: KVCache) -> None:
        self._cache = cache

    def counts(self) -> PageCounts:
        """Units by what they are used for; a page of the static prompt counts as static."""
        pages = self._cache.pages
        static = self._units(self._cache.static.pages)
        sessions = self._units(pages.held_pages) - static
        return PageCounts(pages.total, static, sessions, pages.cached, pages.free)

    def bytes(self, session: Session) -> int:
        """What a session's pages take, shared ones included."""
        return self._units(session.pages) * self._cache.layout.unit_bytes

    def sessions(self) -> list[SessionInfo]:
        """The open sessions, the one used last first."""
        open_ = (s for s in self._cache.sessions if not s.shadow)
        return [
            SessionInfo(
                id=session.id,
                owner=session.owner or "",
                tokens=len(session.tokens),
                kv_tokens=session.kv_tokens,
                pages=len(session.pages),
                coded_pages=self._cache.coded_pages(session),
                kv_bytes=self.bytes(session),
                approximate_tokens=self._cache.approximate_tokens(session),
                busy=session.busy,
            )
            for session in sorted(open_, key=lambda s: (-s.last_used, s.id))
        ]

    def page_map(self) -> list[PageKind]:
        """What each unit of the pool is used for."""
        kinds: list[PageKind] = ["free"] * self._cache.pages.total

        def mark(pages: Iterable[int], kind: PageKind) -> None:
            for page in pages:
                for unit in self._cache.units_of(page):
                    kinds[unit] = kind

        sessions = self._cache.sessions
        mark([page for s in sessions if not s.busy for page in s.pages], "idle")
        mark([page for s in sessions if s.busy for page in s.pages], "active")
        mark(self._cache.static.pages, "static")
        mark(self._cache.pages.cached_pages, "cached")
        return kinds

    def _units(self, pages: Iterable[int]) -> int:
        return sum(len(self._cache.units_of(page)) for page in pages)
