"""Pages of two kinds in the same memory. Plain Python without tensors."""

from collections.abc import Iterable

from engine.errors import OutOfPages
from engine.kv.pages import PageAllocator
from engine.kv.prefix import PrefixCache


class DividedPages(PageAllocator):
    """Plain pages and coded ones; see `PageAllocator`.

    Page numbers below `frames` are plain pages, which are in full precision. The others are coded;
    they share the frames' memory, `per_frame` of them in each (see `CodedLayout`). A frame is free,
    or is one plain page, or is divided into coded pages, of which some may be free.

    Attributes:
        frames: of the pool.
        per_frame: coded pages that lie in the memory of one frame.
        total: slots, the room of one coded page; a plain page takes `per_frame` of them.
    """

    def __init__(self, frames: int, prefix: PrefixCache, per_frame: int) -> None:
        super().__init__(frames, prefix)
        self.frames, self.per_frame = frames, per_frame
        self.total = frames * per_frame
        self._loose: dict[int, None] = {}  # free coded pages in divided frames
        self._used: dict[int, int] = {}  # by divided frame: its pages that are not free
        self._held: dict[int, int] = {}  # by frame: its pages in use, where there are any
        self._coded_held = 0

    # -- numbers -----------------------------------------------------------------------------

    @property
    def free(self) -> int:
        """Slots that hold nothing."""
        return len(self._free) * self.per_frame + len(self._loose)

    @property
    def cached(self) -> int:
        """Slots of pages that nobody holds and whose content can be found."""
        return sum(self.slots(page) for page in self._cached)

    @property
    def available(self) -> int:
        """Plain pages that `allocate` can hand out: frames of which nobody holds anything."""
        return self.frames - len(self._held)

    @property
    def available_slots(self) -> int:
        """Slots that nobody holds, whoever could use them."""
        plain = len(self._holders) - self._coded_held
        return self.total - plain * self.per_frame - self._coded_held

    def held_in(self, frame: int) -> int:
        """Pages of a frame that are in use."""
        return self._held.get(frame, 0)

    def is_coded(self, page: int) -> bool:
        return page >= self.frames

    def slots(self, page: int) -> int:
        """How many slots a page takes."""
        return 1 if page >= self.frames else self.per_frame

    def frame(self, page: int) -> int:
        """The frame whose memory a page lies in."""
        return page if page < self.frames else (page - self.frames) // self.per_frame

    def slots_of(self, page: int) -> range:
        """The slots that a page lies in."""
        if page >= self.frames:
            return range(page - self.frames, page - self.frames + 1)
        return range(page * self.per_frame, (page + 1) * self.per_frame)

    # -- taking and giving back --------------------------------------------------------------

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

    def check(self) -> None:
        """See `PageAllocator.check`; the counts of frames are right too.

        Raises:
            RuntimeError: names what does not hold.
        """
        super().check()
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

    # -- inside ------------------------------------------------------------------------------

    def _check_states(self, states: dict[str, Iterable[int]]) -> None:
        if any(page in self._prefix for page in self._loose):
            raise RuntimeError("a free page can be found")
        state: dict[int, str] = {}
        for name, pages in (*states.items(), ("free", self._loose)):
            for page in pages:
                for slot in self.slots_of(page):
                    if slot in state:
                        raise RuntimeError(f"page {page} is {name} and {state[slot]}")
                    state[slot] = name
        if len(state) != self.total:
            raise RuntimeError(f"{len(state)} slots are accounted for, not {self.total}")

    def _hold(self, page: int) -> int:
        if page not in self._holders:
            self._coded_held += self.is_coded(page)
            _count(self._held, self.frame(page), 1)
        return super()._hold(page)

    def _let_go(self, page: int) -> None:
        super()._let_go(page)
        self._coded_held -= self.is_coded(page)
        _count(self._held, self.frame(page), -1)

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

    def _free_one(self) -> None:
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


def _count(counts: dict[int, int], key: int, change: int) -> None:
    """Add to a count; what reaches 0 is not kept."""
    counts[key] = counts.get(key, 0) + change
    if not counts[key]:
        del counts[key]
