"""A cache without tensors: its pages hold the tokens themselves, so that every mix-up shows."""

from itertools import count

import torch

from engine.coded.cache import CodedCache
from engine.coded.codec import Codec
from engine.coded.fresh_pages import CodedFreshPages
from engine.coded.layout import CodedLayout
from engine.exact.pages import FreshPages
from engine.kv.cache import KVCache
from engine.kv.census import Census
from engine.kv.check import check_cache
from engine.kv.layout import PageLayout
from engine.kv.session import Session

SIZE = 4
WINDOW = 8
_fresh = count(10)

PLAIN = PageLayout(1, 1, 32, SIZE, torch.float32)
CODED = CodedLayout.of(PLAIN, Codec.of("int8", 32), WINDOW)
"""Four coded pages share a frame."""


class TokenStore:
    """In the pool's place: a page holds tokens by their place in it."""

    def __init__(self) -> None:
        self.pages: dict[int, dict[int, int]] = {}
        self.copies: list[tuple[int, int]] = []
        self.coded: list[int] = []

    def copy_page(self, source: int, target: int) -> None:
        self.copies.append((source, target))
        self.pages[target] = dict(self.pages.get(source, {}))

    def encode(self, pages: list[int]) -> list[dict[int, int]]:
        return [dict(self.pages[page]) for page in pages]

    def take(self, pages: list[int]) -> list[dict[int, int]]:
        return [self.pages[page] for page in pages]

    def put(self, coded: list[dict[int, int]], pages: list[int]) -> None:
        self.coded += pages
        self.pages.update(zip(pages, coded, strict=True))


class Harness(KVCache):
    """A cache with helpers that compute by hand."""

    layouts: PageLayout = PLAIN

    def __init__(self, frames: int, static_tokens: int = 0, caching: bool = True) -> None:
        self.store = TokenStore()
        super().__init__(self.layouts, frames, self.store, caching=caching)
        self.census = Census(self)
        self.fresh_pages = FreshPages(self)
        if static_tokens:
            static = Session(None, tokens=list(range(100, 100 + static_tokens)))
            self.add(static)
            self.compute(static)
            self.pin_static(static)

    @property
    def copies(self) -> list[tuple[int, int]]:
        return self.store.copies

    def check(self) -> None:
        check_cache(self)

    def open(self, tokens: int, owner: str = "me", seed: int | None = None) -> Session:
        """A session with the static prompt and tokens that nobody else has, or those of a seed."""
        first = seed if seed is not None else next(_fresh) * 1000
        session = Session(owner, tokens=self.static.tokens + list(range(first, first + tokens)))
        self.add(session)
        return session

    def compute(self, session: Session) -> None:
        self.attach(session)
        self.reserve(session, len(session.tokens))
        self.write(session, len(session.tokens))
        self.advance(session, session.pending_tokens)

    def refresh(self, session: Session, politely: bool = False) -> None:
        """What `RefreshJob` does with pages."""
        shadow = Session(session.owner, tokens=list(session.tokens), shadow=True, running=True)
        self.add(shadow)
        self.fresh_pages.reserve(shadow, politely)
        self.write(shadow, len(shadow.tokens))
        shadow.running = False
        self.fresh_pages.hand_over(session, shadow)

    def write(self, session: Session, stop: int) -> None:
        """Put the tokens from the KV's end up to `stop` where their KV would be written."""
        for position in range(session.kv_tokens, stop):
            page = session.pages[position // SIZE]
            self.store.pages.setdefault(page, {})[position % SIZE] = session.tokens[position]

    def check_content(self, session: Session) -> None:
        """Every token's KV is where the table says."""
        for position in range(session.kv_tokens):
            held = self.store.pages[session.pages[position // SIZE]][position % SIZE]
            assert held == session.tokens[position], (session, position)


class CodedHarness(Harness, CodedCache):
    """The same with coded pages."""

    layouts = CODED

    def __init__(self, frames: int, static_tokens: int = 0) -> None:
        super().__init__(frames, static_tokens)
        self.fresh_pages: CodedFreshPages = CodedFreshPages(self)
