"""Which session holds which pages: finding, growing, giving up. No tensors.

When pages run out they are taken in this order: free ones; cached ones, which nobody holds, leaves
first; those of idle sessions, the longest unused first (their tokens stay). Only then does the
scheduler send a running request back to the queue.
"""

from collections import Counter
from collections.abc import Callable, Set
from typing import Protocol

from engine.errors import OutOfPages
from engine.kv.layout import PageLayout
from engine.kv.pages import PageAllocator
from engine.kv.prefix import Node, PrefixCache, PrefixStats
from engine.kv.session import Session


class PageStore(Protocol):
    """What holds the numbers; see `PagePool`."""

    def copy_page(self, source: int, target: int) -> None: ...


class PageBooks:
    """The books of all sessions' pages: what a request needs of them while it runs.

    Invariants (see `engine.kv.check`): a session's table covers its `kv_tokens`; a page has as many
    holders as tables that list it; a session's full pages are published, and a page that will be
    written to is not, and has one holder.
    """

    pages: PageAllocator

    def __init__(
        self,
        layout: PageLayout,
        frames: int,
        store: PageStore,
        salt: tuple[str, ...] = (),
        caching: bool = True,
    ) -> None:
        """
        Args:
            layout: of a page.
            frames: pages of the pool.
            store: the pool.
            salt: what KV depends on besides tokens (see `PrefixCache.root`).
            caching: whether pages are found by content; if not, only the static prompt is shared.
        """
        self.layout, self.page_size = layout, layout.page_size
        self.prefix = PrefixCache()
        self.root = self.prefix.root(*salt)
        self.caching = caching
        self.static = Session(owner=None)
        self.pages = self._make_pages(frames)
        self._sessions: set[Session] = set()
        self._store = store
        self._looked_up = self._hit = 0

    # -- pages of one session ----------------------------------------------------------------

    def add(self, session: Session) -> None:
        """Take a session in; it holds no page yet."""
        self._sessions.add(session)

    def attach(self, session: Session) -> None:
        """Take over what is computed already and goes on where the session's own KV ends.

        Full pages are shared; the static prompt's partial last page is copied, since the session
        will write to it. At least the last token is left, or there would be no logits.
        """
        held = len(session.nodes)
        found = self._find(session)
        if found:
            pages = [self._page_of(node, held + i) for i, node in enumerate(found)]
            self.pages.retain(pages)
            self.pages.release(reversed(session.pages[held:]))  # a partial page, now found whole
            session.pages[held:] = pages
            session.nodes += found
            session.kv_tokens = len(session.nodes) * self.page_size
            # Its partial page of the static prompt may be among what was found whole.
            static = sum(node.is_static for node in session.nodes) * self.page_size
            session.static_tokens = max(session.static_tokens, static)
        rest = self._static_rest(session)
        if rest:
            try:
                session.pages += self.obtain(1, session)
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
        missing = self.layout.pages(tokens) - len(session.pages)
        if missing > 0:
            session.pages += self.obtain(missing, session)

    def reserve_chunk(self, session: Session, tokens: int, alone: bool) -> int:
        """Make the table cover the next `tokens` tokens, or as many of them as do any good.

        Args:
            session: runs.
            tokens: after those that have KV.
            alone: whether no other request runs, whose pages could be had.

        Returns:
            How many there is room for: here all of them.

        Raises:
            OutOfPages: as for `reserve`.
        """
        self.reserve(session, session.kv_tokens + tokens)
        return tokens

    def may_run_ahead(self, session: Session, tokens: int) -> bool:
        """Whether a step may begin before the KV of these tokens has been taken over."""
        return True

    def advance(self, session: Session, tokens: int) -> None:
        """The KV of the next `tokens` tokens is written; pages that are full now are published."""
        first = session.kv_tokens // self.page_size
        session.kv_tokens += tokens
        for index in range(len(session.nodes), session.kv_tokens // self.page_size):
            parent = session.nodes[-1] if session.nodes else self.root
            content = session.tokens[index * self.page_size : (index + 1) * self.page_size]
            page = session.pages[index]
            if self.caching or session.owner is None:
                node = self.prefix.publish(parent, content, session.owner, page)
            else:
                node = Node(parent, (session.owner, tuple(content)))
            session.nodes.append(node)
        self._written(session, first)

    def drop(self, session: Session) -> None:
        """Give a session's pages back, last ones first; its tokens stay."""
        self.pages.release(reversed(session.pages))
        session.pages.clear()
        session.nodes = []
        session.kv_tokens = session.static_tokens = 0

    def trim(self, session: Session) -> None:
        """Give back pages that were reserved beyond the session's KV."""
        keep = self.layout.pages(session.kv_tokens)
        self.pages.release(reversed(session.pages[keep:]))
        del session.pages[keep:]

    # -- where pages come from ---------------------------------------------------------------

    def obtain(self, count: int, for_session: Session) -> list[int]:
        """Pages that nobody holds; idle sessions give theirs up if that helps.

        Raises:
            OutOfPages: there are too few all the same; nothing has changed.
        """
        if self.pages.available < count <= self._obtainable_pages(for_session):
            self.drop_idle(for_session, lambda: count <= self.pages.available)
        return self.pages.allocate(count)

    def drop_idle(self, for_session: Session, enough: Callable[[], bool]) -> None:
        """Take the pages of idle sessions but this one, the longest unused first, until enough."""
        for session in sorted(self._idle(for_session), key=lambda s: (s.last_used, s.id)):
            self.drop(session)
            if enough():
                return

    def _obtainable_pages(self, for_session: Session) -> int:
        return self.pages.available + len(self._only_idle(for_session))

    def _idle(self, but: Session) -> list[Session]:
        return [s for s in self._sessions if s.pages and not s.running and s is not but]

    def _only_idle(self, but: Session) -> list[int]:
        """Pages that nobody but idle sessions holds."""
        held = Counter(page for session in self._idle(but) for page in session.pages)
        return [page for page, count in held.items() if count == self.pages.holders(page)]

    # -- numbers -----------------------------------------------------------------------------

    @property
    def sessions(self) -> Set[Session]:
        """All that are open; the static prompt is not among them."""
        return self._sessions

    def stats(self) -> PrefixStats:
        """How much of what came without KV was found in the prefix cache."""
        return PrefixStats(self._looked_up, self._hit, self.pages.evicted * self.page_size)

    def units_of(self, page: int) -> range:
        """The units of the pool that a page lies in."""
        return range(page, page + 1)

    def missing(self, session: Session, tokens: int) -> int:
        """Units that a session still needs when the KV of `tokens` tokens is all there."""
        return max(self.layout.pages(tokens) - len(session.pages), 0)

    def obtainable(self, for_session: Session) -> int:
        """Units that a session could have now: unheld ones, and those only idle others hold."""
        return self._obtainable_pages(for_session)

    def capacity_tokens(self, tokens: list[int]) -> int:
        """How many tokens a sequence that begins so can hold when every other session gives way."""
        shared = len(self._common_static(tokens))
        return (shared + self.pages.total - len(self.static.pages)) * self.page_size

    def coded_pages(self, session: Session) -> int:
        """How many of a session's pages do not hold full precision."""
        return 0

    def approximate_tokens(self, session: Session) -> int:
        """Tokens of a session whose KV was computed from KV in less than full precision."""
        return 0

    # -- what coded pages do otherwise (see `engine.coded.cache`) ------------------------------

    def _make_pages(self, frames: int) -> PageAllocator:
        return PageAllocator(frames, self.prefix)

    def _written(self, session: Session, first: int) -> None:
        """KV was computed, on the session's pages from index `first` on."""

    def _best_page(self, node: Node) -> int:
        """Of pages with the same content the one to share."""
        return node.pages[0]

    def _copy_page(self, source: int, target: int) -> None:
        self._store.copy_page(source, target)

    # -- inside ------------------------------------------------------------------------------

    def _find(self, session: Session) -> list[Node]:
        """Nodes of the full pages that follow the session's own and can be shared."""
        nodes: list[Node] = []
        parent = session.nodes[-1] if session.nodes else self.root
        for index in range(len(session.nodes), (len(session.tokens) - 1) // self.page_size):
            content = session.tokens[index * self.page_size : (index + 1) * self.page_size]
            node = self.prefix.find(parent, content, session.owner)
            if node is None:
                break
            nodes.append(node)
            parent = node
        return nodes

    def _page_of(self, node: Node, index: int) -> int:
        """The page to share for a node: the static prompt's own, or the best there is."""
        static = self.static
        if index < len(static.nodes) and static.nodes[index] is node:
            return static.pages[index]
        return self._best_page(node)

    def _static_rest(self, session: Session) -> int:
        """Tokens of the static prompt's partial page that go on where the session's KV ends."""
        start = session.kv_tokens
        if session.nodes != self.static.nodes or start != len(session.nodes) * self.page_size:
            return 0
        return _common_prefix(
            session.tokens[start:-1], self.static.tokens[start : self.static.kv_tokens]
        )

    def static_nodes(self, session: Session) -> list[Node]:
        """Nodes of the static prompt that a session begins with; the prompt itself has none."""
        return [] if session.owner is None else self._common_static(session.tokens)

    def _common_static(self, tokens: list[int]) -> list[Node]:
        common = _common_prefix(tokens, self.static.tokens)
        return self.static.nodes[: common // self.page_size]


def _common_prefix(a: list[int], b: list[int]) -> int:
    length = min(len(a), len(b))
    if a[:length] == b[:length]:
        return length
    return next(i for i in range(length) if a[i] != b[i])
