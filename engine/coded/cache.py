"""A KV cache whose older pages are coded. No tensors.

Which pages are coded and which are approximate is `Precision`'s business; here it is put between
the plain cache and its pages, when a page has filled and when pages run out.
"""

from collections import Counter
from typing import Protocol

from engine.coded.layout import CodedLayout
from engine.coded.pages import DividedPages
from engine.coded.precision import CodedPages, Precision
from engine.errors import OutOfPages
from engine.kv.books import PageStore
from engine.kv.cache import KVCache
from engine.kv.prefix import Node
from engine.kv.session import Session


class CodedStore(PageStore, CodedPages, Protocol):
    """What holds the numbers; see `CodedPool`."""


class CodedCache(KVCache):
    """See `KVCache`; of two kinds of pages, of which the coded ones are never written to again.

    Further invariants: a page that will be written to is plain; a coded page is never made plain
    again, which would round its numbers twice.
    """

    pages: DividedPages
    layout: CodedLayout

    def __init__(
        self,
        layout: CodedLayout,
        frames: int,
        store: CodedStore,
        salt: tuple[str, ...] = (),
        caching: bool = True,
    ) -> None:
        """See `KVCache`; `frames` is the number of plain pages that the pool could hold."""
        self._slots_per_frame = layout.slots_per_frame
        super().__init__(layout, frames, store, salt, caching)
        self.precision = Precision(layout, self.pages, self.prefix, store)

    # -- when a page has filled --------------------------------------------------------------

    def _written(self, session: Session, first: int) -> None:
        self.precision.note_written(session, first)
        if session.kv_tokens // self.page_size > first:
            self.precision.encode_old_pages(session)

    def may_run_ahead(self, session: Session, tokens: int) -> bool:
        """Coding a page moves it, which no step may be reading then. It is done where one fills."""
        filled = (session.kv_tokens + tokens) // self.page_size
        return filled == session.kv_tokens // self.page_size

    # -- when pages run out ------------------------------------------------------------------

    def reserve_chunk(self, session: Session, tokens: int, alone: bool) -> int:
        """See `KVCache.reserve_chunk`.

        A chunk's pages are plain for one step only, so a smaller chunk needs fewer of them: that is
        tried before others are sent away. A session that is alone gets the whole pool, with its
        coded pages moved together.
        """
        while True:
            try:
                return super().reserve_chunk(session, tokens, alone)
            except OutOfPages:
                if tokens > self.page_size:
                    tokens = max(tokens // 2, self.page_size)
                elif alone:
                    self._leave_pool_to(session)
                    alone = False
                else:
                    raise

    def _leave_pool_to(self, session: Session) -> None:
        self.drop_idle(session, lambda: False)
        for page in self.pages.cached_pages:
            self.pages.discard(page)
        self.precision.compact(session)

    def obtain(self, count: int, for_session: Session) -> list[int]:
        """Plain pages; see `KVCache.obtain`."""
        pages = super().obtain(count, for_session)
        self.precision.note_exact(pages)
        return pages

    def obtain_coded(self, count: int, for_session: Session) -> list[int]:
        """Coded pages; idle sessions give theirs up if that helps.

        Raises:
            OutOfPages: there are too few all the same; nothing has changed.
        """
        if self.pages.available_slots < count <= self.obtainable(for_session):
            self.drop_idle(for_session, lambda: count <= self.pages.available_slots)
        pages = self.pages.allocate_coded(count)
        self.precision.note_exact(pages)
        return pages

    def _obtainable_pages(self, for_session: Session) -> int:
        idle = Counter(map(self.pages.frame, self._only_idle(for_session)))
        return self.pages.available + sum(
            count == self.pages.held_in(frame) for frame, count in idle.items()
        )

    # -- numbers -----------------------------------------------------------------------------

    def units_of(self, page: int) -> range:
        return self.pages.slots_of(page)

    def missing(self, session: Session, tokens: int) -> int:
        static = session.static_tokens // self.page_size
        held = sum(map(self.pages.slots, session.pages[static:]))
        return max(self.layout.units(tokens, static) - held, 0)

    def obtainable(self, for_session: Session) -> int:
        idle = sum(map(self.pages.slots, self._only_idle(for_session)))
        return self.pages.available_slots + idle

    def capacity_tokens(self, tokens: list[int]) -> int:
        layout, frames = self.layout, self.pages.frames - len(self.static.pages)
        shared = len(self._common_static(tokens))
        window = layout.pages(layout.window_tokens) + 1 + (shared == 0)
        # One frame more is needed for the page that is written to before another is coded.
        coded = max(frames - window - 1, 0) * self.pages.per_frame
        return (shared + min(frames, window) + coded) * self.page_size

    def coded_pages(self, session: Session) -> int:
        return sum(map(self.pages.is_coded, session.pages))

    def approximate_tokens(self, session: Session) -> int:
        return self.precision.approximate_tokens(session)

    def check_writable(self, session: Session, page: int) -> None:
        super().check_writable(session, page)
        if self.pages.is_coded(page):
            raise RuntimeError(f"{session} will write to a coded page")

    # -- inside ------------------------------------------------------------------------------

    def _make_pages(self, frames: int) -> DividedPages:
        return DividedPages(frames, self.prefix, self._slots_per_frame)

    def _best_page(self, node: Node) -> int:
        return self.precision.best_page(node)

    def _is_open(self, page: int) -> bool:
        return not self.pages.is_coded(page)

    def _copy_page(self, source: int, target: int) -> None:
        super()._copy_page(source, target)
        self.precision.note_copied(source, target)
