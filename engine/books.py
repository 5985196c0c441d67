"""The books that fit a pool: plain ones, or the storey for coded pages on top of them."""

from engine.exact.pages import FreshPages
from engine.kv.cache import KVCache
from engine.kv.layout import PageLayout
from engine.kv.pool import PagePool


def make_books(pool: PagePool, salt: tuple[str, ...], caching: bool) -> FreshPages:
    """What gives pages of a pool out for sessions that are computed again, and knows its cache.

    Args:
        pool: of plain pages, or of coded ones too.
        salt: see `KVCache`.
        caching: see `KVCache`.
    """
    if type(pool.layout) is PageLayout:
        return FreshPages(KVCache(pool.layout, pool.frames, pool, salt, caching))
    from engine.coded.books import coded_books
    from engine.coded.pool import CodedPool

    assert isinstance(pool, CodedPool)
    return coded_books(pool, salt, caching)
