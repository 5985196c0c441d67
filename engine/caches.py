"""The cache that fits a pool: a plain one, or the storey for coded pages on top of it."""

from collections.abc import Callable
from typing import NamedTuple

from engine.exact.pages import FreshPages
from engine.kv.cache import KVCache
from engine.kv.layout import PageLayout
from engine.kv.pool import PagePool
from engine.kv.session import Session


class Caches(NamedTuple):
    """What keeps the books of one pool.

    Attributes:
        cache: of its pages.
        fresh_pages: gives pages out for sessions that are computed again.
        stale: the session whose KV is to be computed again while nobody waits, if any.
    """

    cache: KVCache
    fresh_pages: FreshPages
    stale: Callable[[], Session | None]


def make_caches(
    pool: PagePool, salt: tuple[str, ...], caching: bool, refresh_tokens: int
) -> Caches:
    """The books of a pool.

    Args:
        pool: of plain pages, or of coded ones too.
        salt: see `KVCache`.
        caching: see `KVCache`.
        refresh_tokens: of a session, how many may be approximate before it is stale; 0 means any.
    """
    if type(pool.layout) is PageLayout:
        cache = KVCache(pool.layout, pool.frames, pool, salt, caching)
        return Caches(cache, FreshPages(cache), lambda: None)
    from engine.coded.books import coded_books
    from engine.coded.pool import CodedPool

    assert isinstance(pool, CodedPool)
    pages = coded_books(pool, salt, caching)
    return Caches(
        pages.cache,
        pages,
        lambda: pages.most_approximate(refresh_tokens) if refresh_tokens else None,
    )
