"""Do the books hold? Tables, counts and the prefix tree, held against each other."""

from collections import Counter

from engine.kv.cache import KVCache
from engine.kv.session import Session


def check_cache(cache: KVCache) -> None:
    """Check the invariants of a cache (see docs/architecture.md).

    Raises:
        RuntimeError: names what does not hold.
    """
    cache.pages.check()
    holders: Counter[int] = Counter()
    for session in (*cache.sessions, cache.static):
        _check_table(cache, session)
        _check_nodes(cache, session)
        holders.update(session.pages)
    held = cache.pages.held_pages
    for page in {*holders, *held}:
        if cache.pages.holders(page) != holders[page]:
            raise RuntimeError(
                f"page {page} counts {cache.pages.holders(page)} holders and has {holders[page]}"
            )


def _check_table(cache: KVCache, session: Session) -> None:
    """A session's table covers its KV, and a page to be written to is its own."""
    full, rest = divmod(session.kv_tokens, cache.page_size)
    if session.kv_tokens > len(session.pages) * cache.page_size:
        raise RuntimeError(f"{session} has KV beyond its {len(session.pages)} pages")
    if session.kv_tokens > len(session.tokens):
        raise RuntimeError(f"{session} has KV for tokens that it does not have")
    if len(session.nodes) != full:
        raise RuntimeError(f"{session} has {len(session.nodes)} nodes, not {full}")
    if rest:
        cache.check_writable(session, session.pages[full])


def _check_nodes(cache: KVCache, session: Session) -> None:
    """A session's full pages stand in the tree where their tokens and its owner lead."""
    parent, size = cache.root, cache.page_size
    for index, node in enumerate(session.nodes):
        content = session.tokens[index * size : (index + 1) * size]
        if node.parent is not parent or node.step[1] != tuple(content):
            raise RuntimeError(f"page {index} of {session} stands for other tokens")
        if node.step[0] not in (None, session.owner):
            raise RuntimeError(f"page {index} of {session} belongs to another owner")
        if cache.caching and session.pages[index] not in node.pages:
            raise RuntimeError(f"page {index} of {session} is full and cannot be found")
        parent = node
