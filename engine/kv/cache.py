"""Which session holds which pages: finding, growing, forking, giving up. No tensors.

When pages run out they are taken in this order: free ones; cached ones, which nobody holds, leaves
first; those of idle sessions, the longest unused first (their tokens stay). Only then does the
scheduler send a running request back to the queue.

With a codec, pages that are full and lie before the window are coded (`PageLayout.coded_range`):
each once, from full precision, into another page.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple, Protocol

from engine.errors import OutOfPages
from engine.kv.layout import PageLayout
from engine.kv.pages import PageAllocator
from engine.kv.prefix import Node, PrefixCache, PrefixStats
from engine.kv.session import Session

PageKind = Literal["static", "active", "idle", "cached", "free"]


class PageStore(Protocol):
    """What holds the numbers; see `PagePool`."""

    def copy_page(self, source: int, target: int) -> None: ...

    def encode(self, pages: Sequence[int]) -> Any: ...

    def put(self, coded: Any, pages: Sequence[int]) -> None: ...


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
        # Pages whose KV was computed from coded KV; what was in full precision all along is exact.
        self._approximate: set[int] = set()
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
            pages = [self._best_page(node) for node in found]
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
            self._store.copy_page(self.static.pages[len(session.nodes)], session.pages[-1])
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

    def advance(self, session: Session, tokens: int, exact: bool = False) -> None:
        """The KV of the next `tokens` tokens is written; pages that are full now are published.

        Args:
            session: whose table covers them.
            tokens: how many.
            exact: computed from full precision, whatever the session's pages hold.
        """
        first = session.kv_tokens // self.page_size
        session.kv_tokens += tokens
        if not exact and any(map(self.pages.is_coded, session.pages)):
            self._approximate.update(session.pages[first : self.layout.pages(session.kv_tokens)])
        for index in range(len(session.nodes), session.kv_tokens // self.page_size):
            parent = session.nodes[-1] if session.nodes else self._root
            content = session.tokens[index * self.page_size : (index + 1) * self.page_size]
            page = session.pages[index]
            if self._caching or session.owner is None:
                node = self.prefix.publish(parent, content, session.owner, page)
            else:
                node = Node(parent, (session.owner, tuple(content)))
            session.nodes.append(node)
        self._encode_old_pages(session)

    def drop(self, session: Session) -> None:
        """Give a session's pages back, last ones first; its tokens stay."""
        self.pages.release(reversed(session.pages))
        session.pages, session.nodes = [], []
        session.kv_tokens = session.static_tokens = 0

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
        pages = sum(page in self._approximate for page in session.pages)
        return min(pages * self.page_size, session.kv_tokens)

    def most_approximate(self, least: int) -> Session | None:
        """The idle session with the most approximate tokens, if they are at least so many."""
        idle = [session for session in self._sessions if not session.busy and session.kv_tokens]
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
        tokens, static = len(session.tokens), self._static_nodes(session)
        coded = self._coded_range(session, tokens, len(static))
        plain = self.layout.pages(tokens) - len(static) - len(coded)
        needed = plain * self.pages.per_frame + len(coded)
        if not at_all_costs and needed > self.pages.available_slots:
            raise OutOfPages(plain + len(coded), self.pages.available)
        own = self._obtain(plain, session)
        try:
            codes = self._obtain_coded(len(coded), session)
        except OutOfPages:
            self.pages.release(reversed(own))
            raise
        shared = self.static.pages[: len(static)]
        self.pages.retain(shared)
        head = coded.start - len(static) if coded else 0
        session.pages = shared + own[:head] + codes + own[head:]
        session.nodes = static
        session.kv_tokens = session.static_tokens = len(static) * self.page_size

    def replace(self, session: Session, by: Session) -> None:
        """Take over the exact pages of another session with the same tokens, which is closed."""
        self.drop(session)
        session.pages, session.nodes = by.pages, by.nodes
        session.kv_tokens, session.static_tokens = by.kv_tokens, by.static_tokens
        by.pages, by.nodes, by.kv_tokens = [], [], 0
        self.close(by)
        for node in session.nodes:
            self._discard_approximate(node)

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
                self._store.copy_page(parent.pages[full], child.pages[full])
                child.kv_tokens += rest
        child.static_tokens = min(parent.static_tokens, child.kv_tokens)
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
        window = layout.pages(layout.window_tokens) + 1 + (shared == 0)
        plain = min(frames, window)
        # One frame more is needed for the page that is written to before another is coded.
        coded = max(frames - window - 1, 0) * self.pages.per_frame if layout.codec else 0
        if not layout.codec:
            plain = frames
        return (shared + plain + coded) * self.page_size

    def obtainable_slots(self, for_session: Session) -> int:
        """Slots that a session could have now: unheld ones, and those only idle others hold."""
        idle = sum(map(self.pages.slots, self._only_idle(for_session)))
        return self.pages.available_slots + idle

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
        holders: Counter[int] = Counter()
        for session in (*self._sessions, self.static):
            full, rest = divmod(session.kv_tokens, self.page_size)
            if self.layout.pages(session.kv_tokens) > len(session.pages):
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
            if rest and self.pages.is_coded(session.pages[full]):
                raise RuntimeError(f"{session} will write to a coded page")
            holders.update(session.pages)
        for page in range(self.pages.frames + self.pages.total):
            if self.pages.holders(page) != holders[page]:
                raise RuntimeError(
                    f"page {page} counts {self.pages.holders(page)} holders and has {holders[page]}"
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

    def _static_nodes(self, session: Session) -> list[Node]:
        """Nodes of the static prompt that a session begins with."""
        if session.owner is None:
            return []
        common = _common_prefix(session.tokens, self.static.tokens)
        return self.static.nodes[: common // self.page_size]

    def _best_page(self, node: Node) -> int:
        """Of pages with the same content: an exact one first, then one in full precision."""
        return min(node.pages, key=lambda p: (p in self._approximate, self.pages.is_coded(p)))

    # -- obtaining pages ---------------------------------------------------------------------

    def _obtain(self, count: int, for_session: Session) -> list[int]:
        """Plain pages; idle sessions give theirs up if that helps."""
        if self.pages.available < count <= self._obtainable_frames(for_session):
            for session in sorted(self._idle(for_session), key=lambda s: (s.last_used, s.id)):
                self.drop(session)
                if count <= self.pages.available:
                    break
        pages = self.pages.allocate(count)
        self._approximate.difference_update(pages)
        return pages

    def _obtain_coded(
        self, count: int, for_session: Session, beside: int | None = None
    ) -> list[int]:
        """Coded pages; idle sessions give theirs up if that helps."""
        if self.pages.available_slots < count <= self.obtainable_slots(for_session):
            for session in sorted(self._idle(for_session), key=lambda s: (s.last_used, s.id)):
                self.drop(session)
                if count <= self.pages.available_slots:
                    break
        pages = self.pages.allocate_coded(count, beside)
        self._approximate.difference_update(pages)
        return pages

    def _idle(self, but: Session) -> list[Session]:
        return [s for s in self._sessions if s.pages and not s.running and s is not but]

    def _only_idle(self, but: Session) -> list[int]:
        """Pages that nobody but idle sessions holds."""
        held = Counter(page for session in self._idle(but) for page in session.pages)
        return [page for page, count in held.items() if count == self.pages.holders(page)]

    def _obtainable_frames(self, for_session: Session) -> int:
        idle = Counter(map(self.pages.frame, self._only_idle(for_session)))
        return self.pages.available + sum(
            count == self.pages.held_in(frame) for frame, count in idle.items()
        )

    # -- coding ------------------------------------------------------------------------------

    def _coded_range(self, session: Session, tokens: int, static: int) -> range:
        """Pages that are coded; those of the static prompt, which all share, never are."""
        return range(0) if session.owner is None else self.layout.coded_range(tokens, static)

    def _encode_old_pages(self, session: Session) -> None:
        """Code what has left the window. Where there is no room, it stays as it is for now."""
        static = session.static_tokens // self.page_size
        left = [
            index
            for index in self._coded_range(session, session.kv_tokens, static)
            if not self.pages.is_coded(session.pages[index])
        ]
        alone = []
        for index in left:
            twin = self._coded_twin(session.nodes[index], session.pages[index])
            if twin is None:
                alone.append(index)
            else:
                page, session.pages[index] = session.pages[index], twin
                self.pages.retain([twin])
                self.pages.release([page])
                if page in self.prefix and not self.pages.holders(page):
                    self.pages.discard(page)
        # A page that others hold too stays theirs as it is; only our own make room.
        own = [self.pages.holders(session.pages[index]) == 1 for index in alone]
        while alone and self.pages.available_slots + sum(own) * self.pages.per_frame < len(alone):
            alone.pop(), own.pop()
        if alone:
            self._encode(session, alone, own)

    def _encode(self, session: Session, indices: list[int], own: list[bool]) -> None:
        plain = [session.pages[index] for index in indices]
        coded = self._store.encode(plain)
        approximate = [page in self._approximate for page in plain]
        findable = [page in self.prefix for page in plain]
        for page, mine in zip(plain, own, strict=True):
            if mine and page in self.prefix:
                self.prefix.withdraw(page)
        self.pages.release(plain)
        before = session.pages[indices[0] - 1] if indices[0] else 0
        pages = self.pages.allocate_coded(
            len(plain), before if self.pages.is_coded(before) else None
        )
        self._approximate.difference_update(pages)
        self._store.put(coded, pages)
        for index, page, rough, found in zip(indices, pages, approximate, findable, strict=True):
            session.pages[index] = page
            if rough:
                self._approximate.add(page)
            if found:
                self.prefix.put_back(session.nodes[index], page)

    def _coded_twin(self, node: Node, page: int) -> int | None:
        """A coded page with the content of a plain one, no less exact."""
        exact = page not in self._approximate
        return next(
            (
                twin
                for twin in node.pages
                if self.pages.is_coded(twin) and not (exact and twin in self._approximate)
            ),
            None,
        )

    def _discard_approximate(self, node: Node) -> None:
        """Leave no approximate page where an exact one can be found, unless somebody holds it."""
        for page in list(node.pages):
            if page in self._approximate and not self.pages.holders(page):
                self.pages.discard(page)

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
            (own,) = self._obtain(1, session)
        except OutOfPages:
            self._give_up_last_page(session)
            return
        self._store.copy_page(last, own)
        session.pages[-1] = own
        self.pages.release([last])

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
