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

    Pages below `frames` are in full precision. With a codec there are coded ones too, which share
    the frames' memory, `per_frame` of them in each (see `PageLayout`): a frame is free, or is one
    plain page, or is divided into coded ones, of which some may be free.
    """

    def __init__(self, frames: int, prefix: PrefixCache, per_frame: int = 1) -> None:
        """
        Args:
            frames: of the pool.
            per_frame: coded pages that share a frame's memory; 1 where there are none.
        """
        self.frames, self.per_frame = frames, per_frame
        self.evicted = 0  # cached pages that were given to someone else
        self._prefix = prefix
        # Popped from the end, so that a fresh pool is used from page 0 on: untouched memory stays
        # untouched for as long as possible.
        self._free = list(range(frames - 1, -1, -1))
        self._loose: dict[int, None] = {}  # free coded pages in divided frames
        self._cached: dict[int, None] = {}  # in order of release
        self._holders: dict[int, int] = {}  # of pages in use
        self._used: dict[int, int] = {}  # pages of a divided frame that are not free
        self._held: dict[int, int] = {}  # pages of a frame in use, where there are any
        self._coded_held = 0

    # -- numbers -----------------------------------------------------------------------------

    @property
    def total(self) -> int:
        """Slots: what a coded page takes, and a plain one `per_frame` of."""
        return self.frames * self.per_frame

    @property
    def free(self) -> int:
        """Slots that hold nothing."""
        return len(self._free) * self.per_frame + len(self._loose)

    @property
    def cached(self) -> int:
        """Slots of pages that nobody holds and whose content can be found."""
        return sum(self.slots(page) for page in self._cached)

    @property
    def cached_pages(self) -> list[int]:
        """The cached pages, the next one to be reused first."""
        return list(self._cached)

    @property
    def available(self) -> int:
        """Plain pages that `allocate` can hand out: frames of which nobody holds anything."""
        return self.frames - len(self._held)

    @property
    def available_slots(self) -> int:
        """Slots that nobody holds, whoever could use them."""
        plain = len(self._holders) - self._coded_held
        return self.total - plain * self.per_frame - self._coded_held

    def holders(self, page: int) -> int:
        return self._holders.get(page, 0)

    def held_in(self, frame: int) -> int:
        """Pages of a frame that are in use."""
        return self._held.get(frame, 0)

    def is_coded(self, page: int) -> bool:
        return page >= self.frames

    def slots(self, page: int) -> int:
        """What a page takes."""
        return 1 if page >= self.frames else self.per_frame

    def frame(self, page: int) -> int:
        """Whose memory a page lies in."""
        return page if page < self.frames else (page - self.frames) // self.per_frame

    def slots_of(self, page: int) -> range:
        """The slots that a page lies in."""
        if page >= self.frames:
            return range(page - self.frames, page - self.frames + 1)
        return range(page * self.per_frame, (page + 1) * self.per_frame)

    # -- taking and giving back --------------------------------------------------------------

    def allocate(self, count: int) -> list[int]:
        """Take `count` plain pages with one holder each.

        Raises:
            OutOfPages: fewer are available; nothing has changed.
        """
        if count > self.available:
            raise OutOfPages(count, self.available)
        while len(self._free) < count:
            self._evict_frame()
        return [self._hold(self._free.pop()) for _ in range(count)]

    def allocate_coded(self, count: int, beside: int | None = None) -> list[int]:
        """Take `count` coded pages with one holder each.

        Args:
            count: how many.
            beside: a coded page whose frame is filled first, so that a sequence has frames of its
                own and gives them back whole.

        Raises:
            OutOfPages: fewer are available; nothing has changed.
        """
        possible = self.available_slots
        if count > possible:
            raise OutOfPages(count, possible)
        pages: list[int] = []
        for _ in range(count):
            beside = self._hold(self._take_coded(beside))
            pages.append(beside)
        return pages

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
                del self._holders[page]
                self._coded_held -= self.is_coded(page)
                _count(self._held, self.frame(page), -1)
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

    # -- inside ------------------------------------------------------------------------------

    def _hold(self, page: int) -> int:
        if page not in self._holders:
            self._holders[page] = 0
            self._coded_held += self.is_coded(page)
            _count(self._held, self.frame(page), 1)
        self._holders[page] += 1
        return page

    def _take_coded(self, beside: int | None) -> int:
        """A free coded page; evicts the oldest cached page if there is none."""
        while not self._loose and not self._free:
            self._evict(next(iter(self._cached)))
        frame = None if beside is None else self.frame(beside)
        page = next((page for page in self._coded_in(frame) if page in self._loose), None)
        if page is None and self._free:
            frame = self._free.pop()
            self._loose |= dict.fromkeys(self._coded_in(frame))
            page = self._coded_in(frame)[0]
        if page is None:
            page = next(iter(self._loose))
        del self._loose[page]
        _count(self._used, self.frame(page), 1)
        return page

    def _coded_in(self, frame: int | None) -> range:
        if frame is None:
            return range(0)
        start = self.frames + frame * self.per_frame
        return range(start, start + self.per_frame)

    def _evict(self, page: int) -> None:
        del self._cached[page]
        self._prefix.forget(page)
        self.evicted += 1
        self._give_back(page)

    def _evict_frame(self) -> None:
        """Make the frame free whose cached page is the oldest of those in frames nobody holds."""
        oldest = next(page for page in self._cached if self.frame(page) not in self._held)
        if not self.is_coded(oldest):
            self._evict(oldest)
            return
        for page in self._coded_in(self.frame(oldest)):
            if page in self._cached:
                self._evict(page)

    def _give_back(self, page: int) -> None:
        """A page is free; so is its frame when that was its last one."""
        frame = self.frame(page)
        if self.is_coded(page):
            self._loose[page] = None
            _count(self._used, frame, -1)
            if frame in self._used:
                return
            for other in self._coded_in(frame):
                del self._loose[other]
        self._free.append(frame)

    def check(self) -> None:
        """free + cached + in use = total, and no slot is two of these.

        Raises:
            RuntimeError: names what does not hold.
        """
        if len(set(self._free)) != len(self._free):
            raise RuntimeError("a page is twice in the free list")
        state: dict[int, str] = {}
        for name, pages in (
            ("free", (*self._free, *self._loose)),
            ("cached", self._cached),
            ("in use", self._holders),
        ):
            for page in pages:
                for slot in self.slots_of(page):
                    if slot in state:
                        raise RuntimeError(f"page {page} is {name} and {state[slot]}")
                    state[slot] = name
        if len(state) != self.total:
            raise RuntimeError(f"{len(state)} slots are accounted for, not {self.total}")
        for page in (*self._holders, *self._cached):
            if page in self._cached and page not in self._prefix:
                raise RuntimeError(f"page {page} and the prefix cache disagree")
        if any(page in self._prefix for page in (*self._free, *self._loose)):
            raise RuntimeError("a free page can be found in the prefix cache")
        used: dict[int, int] = {}
        held: dict[int, int] = {}
        for page in (*self._holders, *self._cached):
            if self.is_coded(page):
                _count(used, self.frame(page), 1)
        for page in self._holders:
            _count(held, self.frame(page), 1)
        if used != self._used or held != self._held:
            raise RuntimeError("the counts of divided frames are wrong")
        if self._coded_held != sum(map(self.is_coded, self._holders)):
            raise RuntimeError("the count of coded pages in use is wrong")
        self._prefix.check()


def _count(counts: dict[int, int], key: int, change: int) -> None:
    """Add to a count; what reaches 0 is not kept."""
    counts[key] = counts.get(key, 0) + change
    if not counts[key]:
        del counts[key]
