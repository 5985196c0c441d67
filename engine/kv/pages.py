"""Who owns which page. Plain Python without tensors."""

from collections.abc import Iterable

from engine.errors import OutOfPages


class PageAllocator:
    """Counts the holders of each page.

    A page is free (no holder) or in use (one or more). `allocate` hands out pages with one holder;
    `retain` adds a holder, `release` takes one away, and the last release frees the page.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        # Popped from the end, so that a fresh pool is used from page 0 on: untouched memory stays
        # untouched for as long as possible.
        self._free = list(range(total - 1, -1, -1))
        self._holders = [0] * total

    @property
    def free(self) -> int:
        return len(self._free)

    def holders(self, page: int) -> int:
        return self._holders[page]

    def allocate(self, count: int) -> list[int]:
        """Take `count` free pages.

        Raises:
            OutOfPages: fewer are free; nothing has changed.
        """
        if count > len(self._free):
            raise OutOfPages(count, len(self._free))
        pages = [self._free.pop() for _ in range(count)]
        for page in pages:
            self._holders[page] = 1
        return pages

    def retain(self, pages: Iterable[int]) -> None:
        """Add a holder to each page.

        Raises:
            ValueError: a page is free.
        """
        for page in pages:
            if not self._holders[page]:
                raise ValueError(f"page {page} is free and cannot be shared")
            self._holders[page] += 1

    def release(self, pages: Iterable[int]) -> None:
        """Take a holder away from each page.

        Raises:
            ValueError: a page is free already.
        """
        for page in pages:
            if not self._holders[page]:
                raise ValueError(f"page {page} was freed twice")
            self._holders[page] -= 1
            if not self._holders[page]:
                self._free.append(page)

    def check(self) -> None:
        """free + in use = total, and no page is both.

        Raises:
            RuntimeError: names what does not hold.
        """
        free = set(self._free)
        if len(free) != len(self._free):
            raise RuntimeError("a page is twice in the free list")
        wrong = [p for p in range(self.total) if (p in free) != (self._holders[p] == 0)]
        if wrong:
            raise RuntimeError(f"pages {wrong[:8]} are neither free nor in use, or both")
