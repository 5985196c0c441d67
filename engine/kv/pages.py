"""Who owns which page. Plain Python without tensors."""

from collections.abc import Iterable

from engine.errors import OutOfPages
from engine.kv.prefix import PrefixCache


class PageAllocator:
    """Counts the holders of each page.

    A page is free (no holder, no content worth keeping), cached (no holder, but published in the
    prefix cache) or in use (one or more holders). `allocate` takes free pages first, then cached
    ones in the order in which they were released. Sequences are released tail first, so that order
    gives up leaves before what they stand on.

    Attributes:
        total: pages of the pool.
        evicted: cached pages that were given to someone else.
    """

    def __init__(self, total: int, prefix: PrefixCache) -> None:
        self.total = total
        self.evicted = 0
        self._prefix = prefix
        # Popped from the end, so that a fresh pool is used from page 0 on: untouched memory stays
        # untouched for as long as possible.
        self._free = list(range(total - 1, -1, -1))
        self._cached: dict[int, None] = {}  # in order of release
        self._holders: dict[int, int] = {}  # of pages in use

    # -- numbers -----------------------------------------------------------------------------

    @property
    def free(self) -> int:
        """Pages that hold nothing."""
        return len(self._free)

    @property
    def cached(self) -> int:
        """Pages that nobody holds and whose content can be found."""
        return len(self._cached)

    @property
    def cached_pages(self) -> list[int]:
        """The cached pages, the next one to be reused first."""
        return list(self._cached)

    @property
    def available(self) -> int:
        """Pages that `allocate` can hand out: those that nobody holds."""
        return self.total - len(self._holders)

    @property
    def held_pages(self) -> list[int]:
        """Pages in use."""
        return list(self._holders)

    def holders(self, page: int) -> int:
        return self._holders.get(page, 0)

    # -- taking and giving back --------------------------------------------------------------

    def allocate(self, count: int) -> list[int]:
        """Take `count` pages with one holder each.

        Raises:
            OutOfPages: fewer are available; nothing has changed.
        """
        if count > self.available:
            raise OutOfPages(count, self.available)
        while len(self._free) < count:
            self._free_one()
        return [self._hold(self._free.pop()) for _ in range(count)]

    def retain(self, pages: Iterable[int]) -> None:
        """Add a holder to each page, which is in use or cached.

        Raises:
            ValueError: a page is free.
        """
        for page in pages:
            if page not in self._holders and page not in self._cached:
                raise ValueError(f"page {page} is free and cannot be shared")
            self._cached.pop(page, None)
            self._hold(page)

    def release(self, pages: Iterable[int]) -> None:
        """Take a holder away from each page.

        Raises:
            ValueError: a page has none.
        """
        for page in pages:
            if page not in self._holders:
                raise ValueError(f"page {page} was freed twice")
            self._holders[page] -= 1
            if not self._holders[page]:
                self._let_go(page)
                if page in self._prefix:
                    self._cached[page] = None
                else:
                    self._give_back(page)

    def discard(self, page: int) -> None:
        """Make a published page unfindable; if nobody holds it, it becomes free."""
        self._prefix.forget(page)
        if page in self._cached:
            del self._cached[page]
            self._give_back(page)

    def check(self) -> None:
        """free + cached + in use = total, and no page is two of these.

        Raises:
            RuntimeError: names what does not hold.
        """
        if len(set(self._free)) != len(self._free):
            raise RuntimeError("a page is twice in the free list")
        self._check_states({"free": self._free, "cached": self._cached, "in use": self._holders})
        for page in self._cached:
            if page not in self._prefix:
                raise RuntimeError(f"page {page} is cached and cannot be found")
        self._prefix.check()

    # -- inside ------------------------------------------------------------------------------

    def _check_states(self, states: dict[str, Iterable[int]]) -> None:
        state: dict[int, str] = {}
        for name, pages in states.items():
            for page in pages:
                if page in state:
                    raise RuntimeError(f"page {page} is {name} and {state[page]}")
                if name == "free" and page in self._prefix:
                    raise RuntimeError(f"page {page} is free and can be found")
                state[page] = name
        if len(state) != self.total:
            raise RuntimeError(f"{len(state)} pages are accounted for, not {self.total}")

    def _hold(self, page: int) -> int:
        self._holders[page] = self._holders.get(page, 0) + 1
        return page

    def _let_go(self, page: int) -> None:
        """The page's last holder has gone."""
        del self._holders[page]

    def _free_one(self) -> None:
        """Give up the cached page that was released first."""
        self._evict(next(iter(self._cached)))

    def _evict(self, page: int) -> None:
        del self._cached[page]
        self._prefix.forget(page)
        self.evicted += 1
        self._give_back(page)

    def _give_back(self, page: int) -> None:
        """Nobody holds the page, and nothing in it can be found."""
        self._free.append(page)
