"""Which session holds which pages: finding, growing, forking, giving up. No tensors.

Where pages come from when they run out is `Supply`'s business, which of them are in full precision
`Precision`'s.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

from engine.errors import OutOfPages
from engine.kv.check import SessionCheck
from engine.kv.layout import PageLayout
from engine.kv.pages import PageAllocator
from engine.kv.precision import PageStore, Precision
from engine.kv.prefix import Node, PrefixCache, PrefixStats
from engine.kv.session import Session
from engine.kv.supply import Supply

PageKind = Literal["static", "active", "idle", "cached", "free"]


class PageCounts(NamedTuple):
    """Slots by what they are used for; all but the total add up to it (see `PageLayout`)."""

    total: int
    static: int
    sessions: int
    cached: int
    free: int


class KVCache:
    """Policy over the pages of all sessions.

    Invariants (see `check`): a session's table covers its `kv_tokens`; a page has as many holders
    as tables that list it; a session's full pages are published, and a page that will be written to
    is not, has one holder and is in full precision.
    """

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
            frames: of the pool.
            store: the pool.
            salt: what KV depends on besides tokens (see `PrefixCache.root`).
            caching: whether pages are found by content; if not, only the static prompt is shared.
        """
        self.layout, self.page_size = layout, layout.page_size
        self.prefix = PrefixCache()
        self._root = self.prefix.root(*salt)
        self.pages = PageAllocator(frames, self.prefix, layout.slots_per_frame)
        self.static = Session(owner=None)
        self._sessions: set[Session] = set()
        self._store = store
        self._precision = Precision(layout, self.pages, self.prefix, store)
        self._supply = Supply(self.pages, self._sessions, self._precision.note_new)
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
                session.pages += self._supply.obtain(1, session)
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
            session.pages += self._supply.obtain(missing, session)

    def make_all_room(self, session: Session) -> None:
        """Leave the pool to one session, whose coded pages move together."""
        self._supply.drop_idle(session)
        for page in self.pages.cached_pages:
            self.pages.discard(page)
        self._precision.close_ranks(session)

    def advance(self, session: Session, tokens: int, exact: bool = False) -> None:
        """The KV of the next `tokens` tokens is written; pages that are full now are published.

        Args:
            session: whose table covers them.
            tokens: how many.
            exact: computed from full precision, whatever the session's pages hold.
        """
        first = session.kv_tokens // self.page_size
        session.kv_tokens += tokens
        if not exact:
            self._precision.note_written(session, first)
        filled = range(len(session.nodes), session.kv_tokens // self.page_size)
        for index in filled:
            parent = session.nodes[-1] if session.nodes else self._root
            content = session.tokens[index * self.page_size : (index + 1) * self.page_size]
            page = session.pages[index]
            if self._caching or session.owner is None:
                node = self.prefix.publish(parent, content, session.owner, page)
            else:
                node = Node(parent, (session.owner, tuple(content)))
            session.nodes.append(node)
        if filled:
            self._precision.encode_old_pages(session)

    def drop(self, session: Session) -> None:
        """Give a session's pages back, last ones first; its tokens stay."""
        self._supply.drop(session)

    def trim(self, session: Session) -> None:
        """Give back pages that were reserved beyond the session's KV."""
        keep = self.layout.pages(session.kv_tokens)
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

    # -- exact KV ----------------------------------------------------------------------------

    def approximate_tokens(self, session: Session) -> int:
        """Tokens of a session on pages that were computed from coded KV."""
        return self._precision.approximate_tokens(session)

    def most_approximate(self, least: int) -> Session | None:
        """Of idle sessions whose refresh has room, the one with most approximate tokens.

        None where they are fewer than `least`.
        """
        idle = [s for s in self._sessions if not s.busy and s.kv_tokens and self._has_room_for(s)]
        most = max(idle, key=self.approximate_tokens, default=None)
        return most if most and self.approximate_tokens(most) >= least else None

    def reserve_exact(self, session: Session, at_all_costs: bool) -> None:
        """Give a session without pages those that it would have had all tokens been computed once.

        Full pages of the static prompt are shared: they are exact.

        Args:
            session: holds nothing.
            at_all_costs: other idle sessions give way.

        Raises:
            OutOfPages: there are too few; the session holds nothing still.
        """
        static, coded, plain = self._exact_pages(session)
        if not at_all_costs and not self._has_room_for(session):
            raise OutOfPages(plain + len(coded), self.pages.available)
        own = self._supply.obtain(plain, session)
        try:
            codes = self._supply.obtain_coded(len(coded), session)
        except OutOfPages:
            self.pages.release(reversed(own))
            raise
        shared = self.static.pages[: len(static)]
        self.pages.retain(shared)
        head = coded.start - len(static) if coded else 0
        session.pages = shared + own[:head] + codes + own[head:]
        session.nodes = static
        session.kv_tokens = session.static_tokens = len(static) * self.page_size

    def _exact_pages(self, session: Session) -> tuple[list[Node], range, int]:
        """What a refresh needs: nodes of shared pages, which pages are coded, how many are not."""
        tokens, static = len(session.tokens), self._static_nodes(session)
        coded = self._precision.coded_range(session, tokens, len(static))
        return static, coded, self.layout.pages(tokens) - len(static) - len(coded)

    def _has_room_for(self, session: Session) -> bool:
        """Whether a refresh finds its pages without taking any from idle sessions."""
        _, coded, plain = self._exact_pages(session)
        needed = plain * self.pages.per_frame + len(coded)
        return plain <= self.pages.available and needed <= self.pages.available_slots

    def replace(self, session: Session, by: Session) -> None:
        """Take over the exact pages of another session with the same tokens, which is closed."""
        self.drop(session)
        session.pages, session.nodes = by.pages, by.nodes
        session.kv_tokens, session.static_tokens = by.kv_tokens, by.static_tokens
        by.pages, by.nodes, by.kv_tokens = [], [], 0
        self.close(by)
        for page, node in zip(session.pages, session.nodes, strict=False):
            self._precision.keep_only(page, node)

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
        if rest:
            with suppress(OutOfPages):
                child.pages += self._supply.obtain(1, parent)
                self._copy_page(parent.pages[full], child.pages[full])
                child.kv_tokens += rest
        child.static_tokens = min(parent.static_tokens, child.kv_tokens)
        self.add(child)  # only now: an idle session might have to give its pages up
        return child

    # -- numbers -----------------------------------------------------------------------------

    def missing(self, session: Session, tokens: int) -> int:
        """Plain pages that a session still needs to cover `tokens` positions."""
        return max(self.layout.pages(tokens) - len(session.pages), 0)

    def missing_slots(self, session: Session, tokens: int) -> int:
        """Slots that a session still needs when the KV of `tokens` tokens is all there."""
        static = session.static_tokens // self.page_size
        held = sum(map(self.pages.slots, session.pages[static:]))
        return max(self.layout.slots(tokens, static) - held, 0)

    def capacity_tokens(self, tokens: list[int]) -> int:
        """How many tokens a sequence that begins so can hold when every other session gives way."""
        layout, frames = self.layout, self.pages.frames - len(self.static.pages)
        common = _common_prefix(tokens, self.static.tokens) // self.page_size
        shared = min(common, len(self.static.nodes))
        if layout.codec is None:
            return (shared + frames) * self.page_size
        window = layout.pages(layout.window_tokens) + 1 + (shared == 0)
        # One frame more is needed for the page that is written to before another is coded.
        coded = max(frames - window - 1, 0) * self.pages.per_frame
        return (shared + min(frames, window) + coded) * self.page_size

    def obtainable_slots(self, for_session: Session) -> int:
        """Slots that a session could have now: unheld ones, and those only idle others hold."""
        return self._supply.obtainable_slots(for_session)

    def bytes(self, session: Session) -> int:
        """What a session's pages take, shared ones included."""
        return sum(map(self.pages.slots, session.pages)) * self.layout.slot_bytes

    def counts(self) -> PageCounts:
        total, static = self.pages.total, sum(map(self.pages.slots, self.static.pages))
        in_use = total - self.pages.available_slots
        return PageCounts(total, static, in_use - static, self.pages.cached, self.pages.free)

    def sessions(self) -> list[Session]:
        """Open sessions, the one used last first; the static prompt is not among them."""
        return sorted(
            (s for s in self._sessions if not s.shadow), key=lambda s: (-s.last_used, s.id)
        )

    def page_map(self) -> list[PageKind]:
        """What each slot of the pool is used for."""
        kinds: list[PageKind] = ["free"] * self.pages.total

        def mark(pages: Sequence[int], kind: PageKind) -> None:
            for page in pages:
                for slot in self.pages.slots_of(page):
                    kinds[slot] = kind

        mark([page for s in self._sessions if not s.busy for page in s.pages], "idle")
        mark([page for s in self._sessions if s.busy for page in s.pages], "active")
        mark(self.static.pages, "static")
        mark(self.pages.cached_pages, "cached")
        return kinds

    def stats(self) -> PrefixStats:
        return PrefixStats(self._looked_up, self._hit, self.pages.evicted * self.page_size)

    def check(self) -> None:
        """Hold tables, counts and the prefix tree against each other.

        Raises:
            RuntimeError: names what does not hold.
        """
        self.pages.check()
        check = SessionCheck(self.page_size, self._root, self.pages, self.prefix, self._caching)
        holders: Counter[int] = Counter()
        for session in (*self._sessions, self.static):
            check.table(session)
            check.nodes(session)
            holders.update(session.pages)
        for page in range(self.pages.frames + self.pages.total):
            if self.pages.holders(page) != holders[page]:
                raise RuntimeError(
                    f"page {page} counts {self.pages.holders(page)} holders and has {holders[page]}"
                )

    # -- inside ------------------------------------------------------------------------------

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

    def _page_of(self, node: Node, index: int) -> int:
        """The page to share for a node: the static prompt's own, or the best there is."""
        static = self.static
        if index < len(static.nodes) and static.nodes[index] is node:
            return static.pages[index]
        return self._precision.best_page(node)

    def _static_rest(self, session: Session) -> int:
        """Tokens of the static prompt's partial page that go on where the session's KV ends."""
        start = session.kv_tokens
        if session.nodes != self.static.nodes or start != len(session.nodes) * self.page_size:
            return 0
        return _common_prefix(
            session.tokens[start:-1], self.static.tokens[start : self.static.kv_tokens]
        )

    def _static_nodes(self, session: Session) -> list[Node]:
        """Nodes of the static prompt that a session begins with."""
        if session.owner is None:
            return []
        common = _common_prefix(session.tokens, self.static.tokens)
        return self.static.nodes[: common // self.page_size]

    def _own_last_page(self, session: Session) -> None:
        """Before a page is written to in its middle: nobody else may hold it or find it.

        A coded one is never made plain again, which would round its numbers twice: what is left of
        it is computed anew.
        """
        last = session.pages[-1]
        if self.pages.is_coded(last):
            self._give_up_last_page(session)
            return
        if self.pages.holders(last) == 1 and last not in self.prefix:
            return
        try:
            (own,) = self._supply.obtain(1, session)
        except OutOfPages:
            self._give_up_last_page(session)
            return
        self._copy_page(last, own)
        session.pages[-1] = own
        self.pages.release([last])

    def _copy_page(self, source: int, target: int) -> None:
        self._store.copy_page(source, target)
        self._precision.note_copied(source, target)

    def _give_up_last_page(self, session: Session) -> None:
        """Let its tokens be computed again."""
        self.pages.release([session.pages.pop()])
        session.kv_tokens = len(session.pages) * self.page_size
        session.static_tokens = min(session.static_tokens, session.kv_tokens)

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
