"""The books of a pool of coded pages, or of plain ones beside it."""

from engine.coded.cache import CodedCache
from engine.coded.fresh_pages import CodedFreshPages
from engine.coded.pool import CodedPool
from engine.exact.pages import FreshPages
from engine.kv.cache import KVCache
from engine.kv.pool import PagePool


def coded_books(
    pool: CodedPool, salt: tuple[str, ...] = (), caching: bool = True
) -> CodedFreshPages:
    """What gives pages of a pool out, and knows its cache. See `KVCache` for the arguments."""
    return CodedFreshPages(CodedCache(pool.layout, pool.frames, pool, salt, caching))


def books_without_sharing(pool: PagePool) -> FreshPages:
    """The same for a pool of either kind whose pages are found by nobody else."""
    if isinstance(pool, CodedPool):
        return coded_books(pool, caching=False)
    return FreshPages(KVCache(pool.layout, pool.frames, pool, caching=False))
