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
    """

    def __init__(self, total: int, prefix: PrefixCache) -> None:
        self.total = total
        self.evicted = 0  # cached pages that were given to someone else
        self._prefix = prefix
        # Popped from the end, so that a fresh pool is used from page 0 on: untouched memory stays
        # untouched for as long as possible.
        self._free = list(range(total - 1, -1, -1))
        self._cached: dict[int, None] = {}  # in order of release
        self._holders = [0] * total

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
        """Pages that `allocate` can hand out."""
        return len(self._free) + len(self._cached)

    def holders(self, page: int) -> int:
        return self._holders[page]

    def allocate(self, count: int) -> list[int]:
        """Take `count` pages with one holder each.

        Raises:
            OutOfPages: fewer are available; nothing has changed.
        """
        if count > self.available:
            raise OutOfPages(count, self.available)
        pages = []
        for _ in range(count):
            if self._free:
                page = self._free.pop()
            else:
                page = next(iter(self._cached))
                del self._cached[page]
                self._prefix.forget(page)
                self.evicted += 1
            self._holders[page] = 1
            pages.append(page)
        return pages

    def retain(self, pages: Iterable[int]) -> None:
        """Add a holder to each page, which is in use or cached.

        Raises:
            ValueError: a page is free.
        """
        for page in pages:
            if not self._holders[page] and page not in self._cached:
                raise ValueError(f"page {page} is free and cannot be shared")
            self._cached.pop(page, None)
            self._holders[page] += 1

    def release(self, pages: Iterable[int]) -> None:
        """Take a holder away from each page.

        Raises:
            ValueError: a page has none.
        """
        for page in pages:
            if not self._holders[page]:
                raise ValueError(f"page {page} was freed twice")
            self._holders[page] -= 1
            if not self._holders[page]:
                if page in self._prefix:
                    self._cached[page] = None
                else:
                    self._free.append(page)

    def discard(self, page: int) -> None:
        """Make a published page unfindable; if nobody holds it, it becomes free."""
        self._prefix.forget(page)
        if page in self._cached:
            del self._cached[page]
            self._free.append(page)

    def check(self) -> None:
        """free + cached + in use = total, and no page is two of these.

        Raises:
            RuntimeError: names what does not hold.
        """
        free = set(self._free)
        if len(free) != len(self._free):
            raise RuntimeError("a page is twice in the free list")
        for page in range(self.total):
            states = (page in free, page in self._cached, self._holders[page] > 0)
            if sum(states) != 1:
                raise RuntimeError(f"page {page} is (free, cached, in use) = {states}")
            published = page in self._prefix
            if (published and page in free) or (not published and page in self._cached):
                raise RuntimeError(f"page {page} and the prefix cache disagree")
        self._prefix.check()
