"""Pages for a session that is computed again, where older ones are coded. No tensors."""

from engine.coded.cache import CodedCache
from engine.errors import OutOfPages
from engine.exact.pages import FreshPages
from engine.kv.prefix import Node
from engine.kv.session import Session


class CodedFreshPages(FreshPages):
    """See `FreshPages`: of each kind as many as the session would have if it had come at once."""

    cache: CodedCache

    def __init__(self, cache: CodedCache) -> None:
        super().__init__(cache)

    def reserve(self, shadow: Session, politely: bool = False) -> None:
        cache = self.cache
        static, coded, plain = self._needed(shadow)
        if politely and not self.has_room_for(shadow):
            raise OutOfPages(plain + len(coded), cache.pages.available)
        own = cache.obtain(plain, shadow)
        try:
            codes = cache.obtain_coded(len(coded), shadow)
        except OutOfPages:
            cache.pages.release(reversed(own))
            raise
        head = coded.start - len(static) if coded else 0
        self._begin(shadow, static, own[:head] + codes + own[head:])

    def has_room_for(self, session: Session) -> bool:
        """Whether `reserve` would find its pages without taking any from idle sessions."""
        _, coded, plain = self._needed(session)
        pages = self.cache.pages
        needed = plain * pages.per_frame + len(coded)
        return plain <= pages.available and needed <= pages.available_slots

    def stale(self, least: int) -> Session | None:
        """Of idle sessions for which there is room, the one with most approximate tokens.

        None where they are fewer than `least`.
        """
        cache = self.cache
        idle = [s for s in cache.sessions if not s.busy and s.kv_tokens and self.has_room_for(s)]
        most = max(idle, key=cache.approximate_tokens, default=None)
        return most if most and cache.approximate_tokens(most) >= least else None

    def _needed(self, session: Session) -> tuple[list[Node], range, int]:
        """Nodes of pages that are shared, which pages are coded, and how many are plain."""
        cache, tokens = self.cache, len(session.tokens)
        static = cache.static_nodes(session)
        coded = cache.precision.coded_range(session, tokens, len(static))
        return static, coded, cache.layout.pages(tokens) - len(static) - len(coded)

    def _advance(self, shadow: Session) -> None:
        super()._advance(shadow)
        self.cache.precision.note_exact(shadow.pages)
