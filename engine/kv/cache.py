"""Which session holds which pages: forking the static prompt, growing, giving up. No tensors."""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from engine.errors import OutOfPages
from engine.kv.pages import PageAllocator
from engine.kv.session import Session


class PageCounts(NamedTuple):
    total: int
    static: int
    sessions: int
    cached: int
    free: int


class KVCache:
    """Policy over the pages of all sessions.

    Invariants (see `check`): a session's table covers its `kv_tokens`; every page in use has as
    many holders as tables that list it; a page that is written to has one holder.
    """

    def __init__(
        self, total_pages: int, page_size: int, copy_page: Callable[[int, int], None]
    ) -> None:
        """
        Args:
            total_pages: of the pool.
            page_size: token positions in a page.
            copy_page: copies a page's content, (source, target).
        """
        self.page_size = page_size
        self.pages = PageAllocator(total_pages)
        self.static = Session(owner="static")
        self._sessions: set[Session] = set()
        self._copy_page = copy_page

    # -- sessions come and go ----------------------------------------------------------------

    def add(self, session: Session) -> None:
        self._sessions.add(session)

    def close(self, session: Session) -> None:
        """Forget a session; pages that only it held become free."""
        self.drop(session)
        self._sessions.discard(session)
        session.closed = True

    def unpin_static(self) -> None:
        """Give the static prompt up; its pages go once no session holds them."""
        self.drop(self.static)
        self.static = Session(owner="static")

    def pin_static(self, session: Session) -> None:
        """Make a computed session the static prompt: it is never evicted, and others fork it."""
        self.unpin_static()
        self._sessions.discard(session)
        self.static = session

    # -- pages of one session ----------------------------------------------------------------

    def attach(self, session: Session) -> None:
        """Take over what is already computed: the static prompt's KV, for a session without any.

        Full pages are shared; the partial last page is copied, since the session will write to it.

        Raises:
            OutOfPages: there is no page for the copy; nothing has changed.
        """
        if session.kv_tokens or session is self.static:
            return
        shared = _common_prefix(session.tokens, self.static.tokens[: self.static.kv_tokens])
        # At least the last token is computed, or there would be no logits.
        shared = min(shared, len(session.tokens) - 1)
        full, rest = divmod(max(shared, 0), self.page_size)
        copied = self._obtain(1, session) if rest else []
        self.pages.retain(self.static.pages[:full])
        if rest:
            self._copy_page(self.static.pages[full], copied[0])
        session.pages = self.static.pages[:full] + copied
        session.kv_tokens = session.static_tokens = full * self.page_size + rest

    def reserve(self, session: Session, tokens: int) -> None:
        """Make the table cover `tokens` positions; idle sessions give up pages when it must be.

        Raises:
            OutOfPages: even so there are too few; the session's table is as before.
        """
        missing = self._pages_for(tokens) - len(session.pages)
        if missing > 0:
            session.pages += self._obtain(missing, session)

    def drop(self, session: Session) -> None:
        """Give a session's pages back, last ones first; its tokens stay."""
        self.pages.release(reversed(session.pages))
        session.pages = []
        session.kv_tokens = session.static_tokens = 0

    def truncate(self, session: Session, tokens: int) -> None:
        """Keep the first `tokens` tokens and their KV."""
        del session.tokens[tokens:]
        self.truncate_kv(session, tokens)

    def truncate_kv(self, session: Session, tokens: int) -> None:
        """Keep the KV of the first `tokens` tokens at most; the tokens stay."""
        session.kv_tokens = min(session.kv_tokens, tokens)
        session.static_tokens = min(session.static_tokens, session.kv_tokens)
        self.trim(session)
        self._own_last_page(session)

    def trim(self, session: Session) -> None:
        """Give back pages that were reserved beyond the session's KV."""
        keep = self._pages_for(session.kv_tokens)
        self.pages.release(reversed(session.pages[keep:]))
        del session.pages[keep:]

    def fork(self, parent: Session) -> Session:
        """A session with the same tokens: full pages are shared, the partial one is copied.

        Raises:
            OutOfPages: there is no page for the copy; nothing has changed.
        """
        full, rest = divmod(parent.kv_tokens, self.page_size)
        copied = self._obtain(1, parent) if rest else []
        self.pages.retain(parent.pages[:full])
        if rest:
            self._copy_page(parent.pages[full], copied[0])
        child = Session(
            owner=parent.owner,
            tokens=list(parent.tokens),
            pages=parent.pages[:full] + copied,
            kv_tokens=parent.kv_tokens,
            static_tokens=parent.static_tokens,
            last_used=parent.last_used,
        )
        self.add(child)
        return child

    # -- numbers -----------------------------------------------------------------------------

    def obtainable(self, for_session: Session) -> int:
        """Pages that a session could have now: free ones, and those that only idle others hold."""
        held = Counter(page for session in self._idle(for_session) for page in session.pages)
        return self.pages.free + sum(n == self.pages.holders(page) for page, n in held.items())

    def missing(self, session: Session, tokens: int) -> int:
        """Pages that a session still needs to cover `tokens` positions."""
        return max(self._pages_for(tokens) - len(session.pages), 0)

    def counts(self) -> PageCounts:
        in_use = self.pages.total - self.pages.free
        static = len(self.static.pages)
        return PageCounts(self.pages.total, static, in_use - static, 0, self.pages.free)

    def check(self) -> None:
        """Hold the tables against the holders' counts.

        Raises:
            RuntimeError: names what does not hold.
        """
        self.pages.check()
        holders = [0] * self.pages.total
        for session in (*self._sessions, self.static):
            if self._pages_for(session.kv_tokens) > len(session.pages):
                raise RuntimeError(f"{session} has KV beyond its {len(session.pages)} pages")
            if session.kv_tokens > len(session.tokens):
                raise RuntimeError(f"{session} has KV for tokens that it does not have")
            for page in session.pages:
                holders[page] += 1
        for page, expected in enumerate(holders):
            if self.pages.holders(page) != expected:
                raise RuntimeError(
                    f"page {page} counts {self.pages.holders(page)} holders and has {expected}"
                )

    # -- inside ------------------------------------------------------------------------------

    def _pages_for(self, tokens: int) -> int:
        return -(-tokens // self.page_size)

    def _obtain(self, count: int, for_session: Session) -> list[int]:
        """Allocate, taking pages from idle sessions, the longest unused first, when needed."""
        if self.pages.free < count <= self.obtainable(for_session):
            for session in sorted(self._idle(for_session), key=lambda s: (s.last_used, s.id)):
                self.drop(session)
                if count <= self.pages.free:
                    break
        return self.pages.allocate(count)

    def _idle(self, but: Session) -> list[Session]:
        return [s for s in self._sessions if s.pages and not s.running and s is not but]

    def _own_last_page(self, session: Session) -> None:
        """Copy the last page if it is shared and will be written to."""
        if session.kv_tokens % self.page_size == 0 or not session.pages:
            return
        last = session.pages[-1]
        if self.pages.holders(last) > 1:
            try:
                (own,) = self._obtain(1, session)
            except OutOfPages:  # give the partial page up instead: its tokens are computed again
                session.pages.pop()
                self.pages.release([last])
                session.kv_tokens = len(session.pages) * self.page_size
                session.static_tokens = min(session.static_tokens, session.kv_tokens)
                return
            self._copy_page(last, own)
            session.pages[-1] = own
            self.pages.release([last])


def _common_prefix(a: list[int], b: list[int]) -> int:
    length = min(len(a), len(b))
    if a[:length] == b[:length]:
        return length
    return next(i for i in range(length) if a[i] != b[i])
