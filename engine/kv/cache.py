"""Which session holds which pages: finding, growing, forking, giving up. No tensors.

When pages run out they are taken in this order: free ones; cached ones, which nobody holds, leaves
first; those of idle sessions, the longest unused first (their tokens stay). Only then does the
scheduler send a running request back to the queue.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, NamedTuple

from engine.errors import OutOfPages
from engine.kv.pages import PageAllocator
from engine.kv.prefix import Node, PrefixCache, PrefixStats
from engine.kv.session import Session

PageKind = Literal["static", "active", "idle", "cached", "free"]


class PageCounts(NamedTuple):
    """Pages by what they are used for; all but the total add up to it."""

    total: int
    static: int
    sessions: int
    cached: int
    free: int


class KVCache:
    """Policy over the pages of all sessions.

    Invariants (see `check`): a session's table covers its `kv_tokens`; a page has as many holders
    as tables that list it; a session's full pages are published, and a page that will be written to
    is not, and has one holder.
    """

    def __init__(
        self,
        total_pages: int,
        page_size: int,
        copy_page: Callable[[int, int], None],
        salt: tuple[str, ...] = (),
        caching: bool = True,
    ) -> None:
        """
        Args:
            total_pages: of the pool.
            page_size: token positions in a page.
            copy_page: copies a page's content, (source, target).
            salt: what KV depends on besides tokens (see `PrefixCache.root`).
            caching: whether pages are found by content; if not, only the static prompt is shared.
        """
        self.page_size = page_size
        self.prefix = PrefixCache()
        self._root = self.prefix.root(*salt)
        self.pages = PageAllocator(total_pages, self.prefix)
        self.static = Session(owner=None)
        self._sessions: set[Session] = set()
        self._copy_page = copy_page
        self._caching = caching
        self._looked_up = self._hit = 0

    # -- sessions come and go ----------------------------------------------------------------

    def add(self, session: Session) -> None:
        """Take a session in; it holds no page yet."""
        self._sessions.add(session)

    def close(self, session: Session, forget: bool = False) -> None:
        """Let go of a session.

        Args:
            session: idle.
            forget: leave nothing of it findable, whatever it went through (turns taken back, a
                history that was cut): all that is cached for its owner becomes free.
        """
        self.drop(session)
        self._sessions.discard(session)
        session.closed = True
        if forget:
            self._forget(session.owner)

    def pin_static(self, session: Session) -> None:
        """Make a computed session the static prompt: it is never evicted, and others fork it."""
        self.unpin_static()
        self._sessions.discard(session)
        self.static = session

    def unpin_static(self) -> None:
        """Give the static prompt up; its pages go once no session holds them."""
        self.drop(self.static)
        self._forget(None)
        self.static = Session(owner=None)

    # -- pages of one session ----------------------------------------------------------------

    def attach(self, session: Session) -> None:
        """Take over what is computed already and goes on where the session's own KV ends.

        Full pages are shared; the static prompt's partial last page is copied, since the session
        will write to it. At least the last token is left, or there would be no logits.
        """
        held = len(session.nodes)
        found = self._find(session)
        if found:
            pages = [node.pages[0] for node in found]
            self.pages.retain(pages)
            self.pages.release(reversed(session.pages[held:]))  # a partial page, now found whole
            session.pages[held:] = pages
            session.nodes += found
            session.kv_tokens = len(session.nodes) * self.page_size
            session.static_tokens += sum(node.is_static for node in found) * self.page_size
        rest = self._static_rest(session)
        if rest:
            try:
                session.pages += self._obtain(1, session)
            except OutOfPages:
                return  # the few tokens are computed instead
            self._copy_page(self.static.pages[len(session.nodes)], session.pages[-1])
            session.kv_tokens += rest
            session.static_tokens += rest

    def count_lookup(self, session: Session) -> None:
        """Note what `attach` looked for and found, once a request."""
        self._looked_up += (len(session.tokens) - 1) // self.page_size * self.page_size
        self._hit += session.kv_tokens // self.page_size * self.page_size

    def reserve(self, session: Session, tokens: int) -> None:
        """Make the table cover `tokens` positions.

        Raises:
            OutOfPages: there are too few even when idle sessions give theirs up; the session's
                table is as before.
        """
        missing = self.missing(session, tokens)
        if missing:
            session.pages += self._obtain(missing, session)

    def advance(self, session: Session, tokens: int) -> None:
        """The KV of the next `tokens` tokens is written; pages that are full now are published."""
        session.kv_tokens += tokens
        for index in range(len(session.nodes), session.kv_tokens // self.page_size):
            parent = session.nodes[-1] if session.nodes else self._root
            content = session.tokens[index * self.page_size : (index + 1) * self.page_size]
            page = session.pages[index]
            if self._caching or session.owner is None:
                node = self.prefix.publish(parent, content, session.owner, page)
            else:
                node = Node(parent, (session.owner, tuple(content)))
            session.nodes.append(node)

    def drop(self, session: Session) -> None:
        """Give a session's pages back, last ones first; its tokens stay."""
        self.pages.release(reversed(session.pages))
        session.pages, session.nodes = [], []
        session.kv_tokens = session.static_tokens = 0

    def trim(self, session: Session) -> None:
        """Give back pages that were reserved beyond the session's KV."""
        keep = self._pages_for(session.kv_tokens)
        self.pages.release(reversed(session.pages[keep:]))
        del session.pages[keep:]

    def truncate(self, session: Session, tokens: int) -> None:
        """Keep the first `tokens` tokens and their KV."""
        del session.tokens[tokens:]
        self.truncate_kv(session, tokens)

    def truncate_kv(self, session: Session, tokens: int) -> None:
        """Keep the KV of the first `tokens` tokens at most; the tokens stay."""
        session.kv_tokens = min(session.kv_tokens, tokens)
        session.static_tokens = min(session.static_tokens, session.kv_tokens)
        del session.nodes[session.kv_tokens // self.page_size :]
        self.trim(session)
        if session.kv_tokens % self.page_size:
            self._own_last_page(session)

    def fork(self, parent: Session) -> Session:
        """A session with the same tokens: full pages are shared, the partial one is copied.

        Where there is no page for the copy, its few tokens are computed again instead.
        """
        full, rest = divmod(parent.kv_tokens, self.page_size)
        self.pages.retain(parent.pages[:full])
        child = Session(
            owner=parent.owner,
            tokens=list(parent.tokens),
            pages=parent.pages[:full],
            kv_tokens=full * self.page_size,
            nodes=parent.nodes[:full],
            last_used=parent.last_used,
        )
        self.add(child)
        if rest:
            with suppress(OutOfPages):
                child.pages += self._obtain(1, parent)
                self._copy_page(parent.pages[full], child.pages[full])
                child.kv_tokens += rest
        child.static_tokens = min(parent.static_tokens, child.kv_tokens)
        return child

    # -- numbers -----------------------------------------------------------------------------

    def missing(self, session: Session, tokens: int) -> int:
        """Pages that a session still needs to cover `tokens` positions."""
        return max(self._pages_for(tokens) - len(session.pages), 0)

    def capacity_tokens(self, tokens: list[int]) -> int:
        """How many tokens a sequence that begins so can hold when every other session gives way."""
        shared = _common_prefix(tokens, self.static.tokens) // self.page_size
        own = self.pages.total - len(self.static.pages) + min(shared, len(self.static.nodes))
        return own * self.page_size

    def obtainable(self, for_session: Session) -> int:
        """Pages that a session could have now: available ones, and those only idle others hold."""
        held = Counter(page for session in self._idle(for_session) for page in session.pages)
        idle = sum(count == self.pages.holders(page) for page, count in held.items())
        return self.pages.available + idle

    def counts(self) -> PageCounts:
        total, static = self.pages.total, len(self.static.pages)
        in_use = total - self.pages.available
        return PageCounts(total, static, in_use - static, self.pages.cached, self.pages.free)

    def sessions(self) -> list[Session]:
        """Open sessions, the one used last first; the static prompt is not among them."""
        return sorted(self._sessions, key=lambda s: (-s.last_used, s.id))

    def page_map(self) -> list[PageKind]:
        """What each page of the pool is used for, by its number."""
        kinds: list[PageKind] = ["free"] * self.pages.total
        for session in self.sessions()[::-1]:
            for page in session.pages:
                if kinds[page] != "active":
                    kinds[page] = "active" if session.busy else "idle"
        for page in self.static.pages:
            kinds[page] = "static"
        for page in self.pages.cached_pages:
            kinds[page] = "cached"
        return kinds

    def stats(self) -> PrefixStats:
        return PrefixStats(self._looked_up, self._hit, self.pages.evicted * self.page_size)

    def check(self) -> None:
        """Hold tables, counts and the prefix tree against each other.

        Raises:
            RuntimeError: names what does not hold.
        """
        self.pages.check()
        holders = [0] * self.pages.total
        for session in (*self._sessions, self.static):
            full, rest = divmod(session.kv_tokens, self.page_size)
            if self._pages_for(session.kv_tokens) > len(session.pages):
                raise RuntimeError(f"{session} has KV beyond its {len(session.pages)} pages")
            if session.kv_tokens > len(session.tokens):
                raise RuntimeError(f"{session} has KV for tokens that it does not have")
            if len(session.nodes) != full:
                raise RuntimeError(f"{session} has {len(session.nodes)} nodes, not {full}")
            self._check_nodes(session)
            if rest and session.pages[full] in self.prefix:
                raise RuntimeError(f"{session} will write to a page that is published")
            if rest and self.pages.holders(session.pages[full]) != 1:
                raise RuntimeError(f"{session} will write to a page that is shared")
            for page in session.pages:
                holders[page] += 1
        for page, expected in enumerate(holders):
            if self.pages.holders(page) != expected:
                raise RuntimeError(
                    f"page {page} counts {self.pages.holders(page)} holders and has {expected}"
                )

    # -- inside ------------------------------------------------------------------------------

    def _check_nodes(self, session: Session) -> None:
        """A session's full pages stand in the tree where their tokens and its owner lead."""
        parent = self._root
        for index, node in enumerate(session.nodes):
            content = session.tokens[index * self.page_size : (index + 1) * self.page_size]
            if node.parent is not parent or node.step[1] != tuple(content):
                raise RuntimeError(f"page {index} of {session} stands for other tokens")
            if node.step[0] not in (None, session.owner):
                raise RuntimeError(f"page {index} of {session} belongs to another owner")
            if self._caching and session.pages[index] not in node.pages:
                raise RuntimeError(f"page {index} of {session} is full and cannot be found")
            parent = node

    def _pages_for(self, tokens: int) -> int:
        return -(-tokens // self.page_size)

    def _find(self, session: Session) -> list[Node]:
        """Nodes of the full pages that follow the session's own and can be shared."""
        nodes: list[Node] = []
        parent = session.nodes[-1] if session.nodes else self._root
        for index in range(len(session.nodes), (len(session.tokens) - 1) // self.page_size):
            content = session.tokens[index * self.page_size : (index + 1) * self.page_size]
            node = self.prefix.find(parent, content, session.owner)
            if node is None:
                break
            nodes.append(node)
            parent = node
        return nodes

    def _static_rest(self, session: Session) -> int:
        """Tokens of the static prompt's partial page that go on where the session's KV ends."""
        start = session.kv_tokens
        if session.nodes != self.static.nodes or start != len(session.nodes) * self.page_size:
            return 0
        return _common_prefix(
            session.tokens[start:-1], self.static.tokens[start : self.static.kv_tokens]
        )

    def _obtain(self, count: int, for_session: Session) -> list[int]:
        if self.pages.available < count <= self.obtainable(for_session):
            for session in sorted(self._idle(for_session), key=lambda s: (s.last_used, s.id)):
                self.drop(session)
                if count <= self.pages.available:
                    break
        return self.pages.allocate(count)

    def _idle(self, but: Session) -> list[Session]:
        return [s for s in self._sessions if s.pages and not s.running and s is not but]

    def _own_last_page(self, session: Session) -> None:
        """Before a page is written to in its middle: nobody else may hold it or find it."""
        last = session.pages[-1]
        if self.pages.holders(last) == 1 and last not in self.prefix:
            return
        try:
            (own,) = self._obtain(1, session)
        except OutOfPages:  # its tokens are computed again
            self.pages.release([session.pages.pop()])
            session.kv_tokens = len(session.pages) * self.page_size
            session.static_tokens = min(session.static_tokens, session.kv_tokens)
            return
        self._copy_page(last, own)
        session.pages[-1] = own
        self.pages.release([last])

    def _forget(self, owner: str | None) -> None:
        """Discard what is cached for an owner; what sessions hold stays."""
        for node in list(self.prefix.nodes):
            if node.step[0] == owner:
                for page in list(node.pages):
                    if not self.pages.holders(page):
                        self.pages.discard(page)


def _common_prefix(a: list[int], b: list[int]) -> int:
    length = min(len(a), len(b))
    if a[:length] == b[:length]:
        return length
    return next(i for i in range(length) if a[i] != b[i])
