"""Which pages of a session are coded, and which are exact. No tensors.

A page is *coded* or in full precision (see `CodedLayout`), and apart from that it is *exact* or
approximate: KV is exact when everything that it was computed from was in full precision. A coded
page can be exact, rounded once; what is computed after it is approximate.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from engine.coded.layout import CodedLayout
from engine.coded.pages import DividedPages
from engine.kv.prefix import Node, PrefixCache
from engine.kv.session import Session


class CodedPages(Protocol):
    """What holds the numbers; see `CodedPool`."""

    def encode(self, pages: Sequence[int]) -> Any: ...

    def take(self, pages: Sequence[int]) -> Any: ...

    def put(self, coded: Any, pages: Sequence[int]) -> None: ...


class Precision:
    """Codes what leaves the window, and knows what is approximate.

    A page is coded once, from full precision, when it is full: never in place, so that whoever else
    holds it keeps it as it is.
    """

    def __init__(
        self, layout: CodedLayout, pages: DividedPages, prefix: PrefixCache, store: CodedPages
    ) -> None:
        self._layout, self._pages, self._prefix, self._store = layout, pages, prefix, store
        self._approximate: set[int] = set()

    def note_exact(self, pages: Iterable[int]) -> None:
        """These pages hold nothing approximate: nothing yet, or what was computed exactly."""
        self._approximate.difference_update(pages)

    def note_written(self, session: Session, first: int) -> None:
        """The KV on a session's pages from index `first` on was computed from all its pages."""
        held = session.pages[: self._layout.pages(session.kv_tokens)]
        if any(self._pages.is_coded(page) or page in self._approximate for page in held):
            self._approximate.update(held[first:])

    def note_copied(self, source: int, target: int) -> None:
        """A page was copied."""
        if source in self._approximate:
            self._approximate.add(target)

    def approximate_tokens(self, session: Session) -> int:
        """Tokens on pages that were computed from coded KV."""
        pages = sum(page in self._approximate for page in session.pages)
        return min(pages * self._layout.page_size, session.kv_tokens)

    def best_page(self, node: Node) -> int:
        """Of pages with the same content: an exact one first, then one in full precision."""
        return min(node.pages, key=lambda p: (p in self._approximate, self._pages.is_coded(p)))

    def coded_range(self, session: Session, tokens: int, static: int) -> range:
        """Pages that are coded; those of the static prompt, which all share, never are."""
        return range(0) if session.owner is None else self._layout.coded_range(tokens, static)

    def encode_old_pages(self, session: Session) -> None:
        """Code the pages that have left the window. Without room they stay plain for now."""
        static = session.static_tokens // self._layout.page_size
        left = [
            index
            for index in self.coded_range(session, session.kv_tokens, static)
            if not self._pages.is_coded(session.pages[index])
        ]
        alone = []
        for index in left:
            twin = self._coded_twin(session.nodes[index], session.pages[index])
            if twin is None:
                alone.append(index)
            else:
                page, session.pages[index] = session.pages[index], twin
                self._pages.retain([twin])
                self._pages.release([page])
                if page in self._prefix and not self._pages.holders(page):
                    self._pages.discard(page)
        # A page that others hold too stays theirs as it is; only our own make room.
        own = [self._pages.holders(session.pages[index]) == 1 for index in alone]
        while alone and self._pages.available_slots + sum(own) * self._pages.per_frame < len(alone):
            alone.pop(), own.pop()
        if alone:
            codes = self._store.encode([session.pages[index] for index in alone])
            before = session.pages[alone[0] - 1]
            self._move(session, alone, own, codes, before if self._pages.is_coded(before) else None)

    def compact(self, session: Session) -> None:
        """Move coded pages that nobody else holds into fewer frames, so that others become free.

        They stand apart where they were taken over from sessions that have gone.
        """
        by_frame: dict[int, list[int]] = {}
        for index, page in enumerate(session.pages):
            if self._pages.is_coded(page) and self._pages.holders(page) == 1:
                by_frame.setdefault(self._pages.frame(page), []).append(index)
        frames = sorted(by_frame, key=lambda frame: len(by_frame[frame]))
        while len(frames) > 1:
            if self._pages.held_in(frames[-1]) == self._pages.per_frame:
                frames.pop()
                continue
            index = by_frame[frames[0]].pop()
            beside = session.pages[by_frame[frames[-1]][0]]
            codes = self._store.take([session.pages[index]])
            self._move(session, [index], [True], codes, beside)
            if not by_frame[frames[0]]:
                del frames[0]

    def _move(
        self, session: Session, indices: list[int], own: list[bool], coded: Any, beside: int | None
    ) -> None:
        """Give a session other pages, which hold these codes; its own become free."""
        old = [session.pages[index] for index in indices]
        approximate = [page in self._approximate for page in old]
        findable = [page in self._prefix for page in old]
        for page, mine in zip(old, own, strict=True):
            if mine and page in self._prefix:
                self._prefix.withdraw(page)
        self._pages.release(old)
        pages = self._pages.allocate_coded(len(old), beside)
        self.note_exact(pages)
        self._store.put(coded, pages)
        for index, page, rough, found in zip(indices, pages, approximate, findable, strict=True):
            session.pages[index] = page
            if rough:
                self._approximate.add(page)
            if found:
                self._prefix.put_back(session.nodes[index], page)

    def _coded_twin(self, node: Node, page: int) -> int | None:
        """A coded page with the content of a plain one, no less exact."""
        exact = page not in self._approximate
        return next(
            (
                twin
                for twin in node.pages
                if self._pages.is_coded(twin) and not (exact and twin in self._approximate)
            ),
            None,
        )
