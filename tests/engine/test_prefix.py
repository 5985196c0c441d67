"""Pages found again by content: the policy alone, without tensors."""

import pytest

from engine.errors import OutOfPages
from engine.kv.prefix import PrefixCache
from engine.kv.session import Session
from tests.engine.paging import Harness


def _cache(total: int = 16, static: int = 0, caching: bool = True) -> Harness:
    cache = Harness(total, caching=caching)
    if static:
        session = _compute(cache, list(range(900, 900 + static)), owner=None)
        cache.pin_static(session)
    return cache


def _open(cache: Harness, tokens: list[int], owner: str | None = "ann") -> Session:
    session = Session(owner, tokens=list(tokens))
    cache.add(session)
    return session


def _compute(cache: Harness, tokens: list[int], owner: str | None = "ann") -> Session:
    session = _open(cache, tokens, owner)
    cache.attach(session)
    cache.reserve(session, len(tokens))
    cache.advance(session, session.pending_tokens)
    cache.check()
    return session


def _hit(cache: Harness, tokens: list[int], owner: str = "ann") -> int:
    """Tokens that a newcomer with these tokens finds; leaves everything as it was."""
    session = _open(cache, tokens, owner)
    cache.attach(session)
    found = session.kv_tokens
    cache.close(session)
    return found


LONG = list(range(14))  # three full pages and two tokens


def test_full_pages_are_found_and_a_partial_one_never() -> None:
    cache = _cache()
    first = _compute(cache, LONG)
    second = _open(cache, [*LONG, 77, 78, 79])
    cache.attach(second)
    assert second.kv_tokens == 12
    assert second.pages == first.pages[:3]
    assert first.pages[3] not in cache.prefix


def test_finding_a_page_in_use_raises_its_count_and_releasing_leaves_the_other() -> None:
    cache = _cache()
    first, second = _compute(cache, LONG), _compute(cache, LONG)
    assert [cache.pages.holders(p) for p in first.pages] == [2, 2, 2, 1]
    cache.close(second)
    assert [cache.pages.holders(p) for p in first.pages] == [1, 1, 1, 1]


def test_finding_a_cached_page_takes_it_off_the_list_of_those_that_can_be_reused() -> None:
    cache = _cache(total=4)
    cache.close(_compute(cache, LONG))
    assert cache.census.counts() == (4, 0, 0, 3, 1)
    found = _open(cache, LONG)
    cache.attach(found)
    assert cache.census.counts() == (4, 0, 3, 0, 1)
    found.running = True
    with pytest.raises(OutOfPages):
        cache.reserve(_open(cache, [5] * 8), 8)


def test_a_prompt_that_is_wholly_cached_still_computes_its_last_token() -> None:
    cache = _cache()
    _compute(cache, LONG[:12])
    again = _open(cache, LONG[:12])
    cache.attach(again)
    assert again.kv_tokens == 8
    assert again.pending_tokens == 4


def test_eviction_follows_the_order_of_release_with_tails_first() -> None:
    cache = _cache(total=6)
    older, younger = _compute(cache, LONG[:8]), _compute(cache, list(range(50, 58)))
    pages = {"older": list(older.pages), "younger": list(younger.pages)}
    cache.close(older)
    cache.close(younger)
    cache.reserve(taker := _open(cache, [1] * 24), 8)  # the two free ones
    order = []
    for length in (12, 16, 20, 24):
        cache.reserve(taker, length)
        order.append(taker.pages[-1])
    assert order == [*reversed(pages["older"]), *reversed(pages["younger"])]


def test_pages_without_content_are_reused_before_cached_ones() -> None:
    cache = _cache(total=5)
    cache.close(_compute(cache, LONG))  # three cached, and its partial page is free again
    cache.reserve(_open(cache, [1] * 8), 8)
    assert cache.census.counts() == (5, 0, 2, 3, 0)
    assert _hit(cache, LONG) == 12


def test_a_reused_page_is_not_found_under_its_old_content() -> None:
    cache = _cache(total=3)
    cache.close(_compute(cache, LONG[:12]))
    other = _compute(cache, list(range(60, 72)))
    assert _hit(cache, [*LONG[:12], 1]) == 0
    cache.close(other)
    assert _hit(cache, [*range(60, 72), 1]) == 12


def test_of_two_equal_pages_evicting_one_keeps_the_other_findable() -> None:
    cache = _cache(total=6)
    one, two = _open(cache, LONG[:8]), _open(cache, LONG[:8])
    for session in (one, two):  # both compute at the same time: neither finds the other's pages
        cache.reserve(session, 8)
    for session in (one, two):
        cache.advance(session, 8)
    assert set(one.pages).isdisjoint(two.pages)
    cache.close(one)
    taker = _open(cache, [1] * 16)
    taker.running = two.running = True
    cache.reserve(taker, 16)  # evicts both pages of the first
    assert cache.census.counts().cached == 0
    assert _hit(cache, [*LONG[:8], 1]) == 8


def test_an_allocation_never_evicts_what_the_same_request_has_just_found() -> None:
    cache = _cache(total=6)
    cache.close(_compute(cache, LONG[:12]))
    session = _open(cache, [*LONG[:12], *range(70, 82)])
    cache.attach(session)
    found = list(session.pages)
    cache.reserve(session, 24)
    assert session.pages[:3] == found
    assert len(set(session.pages)) == 6
    cache.check()


def test_a_failed_reservation_changes_nothing() -> None:
    cache = _cache(total=4)
    session = _compute(cache, LONG[:8])
    session.running = True
    before = (list(session.pages), cache.census.counts(), cache.stats())
    with pytest.raises(OutOfPages):
        cache.reserve(session, 24)
    assert (session.pages, cache.census.counts(), cache.stats()) == before


def test_a_page_is_published_when_it_is_full_and_only_after_its_kv_is_written() -> None:
    cache = _cache()
    session = _open(cache, LONG[:8])
    cache.reserve(session, 8)
    assert _hit(cache, [*LONG[:8], 1]) == 0
    cache.advance(session, 3)
    assert _hit(cache, [*LONG[:8], 1]) == 0
    cache.advance(session, 1)
    assert _hit(cache, [*LONG[:8], 1]) == 4
    free = cache.pages.free
    cache.reserve(session, 8)
    assert cache.pages.free == free, "decoding inside a page allocates nothing"


def test_evicting_a_page_in_mid_chain_shortens_later_hits_to_before_it() -> None:
    cache = _cache()
    session = _compute(cache, LONG)
    pages = list(session.pages)
    cache.close(session)
    cache.pages.discard(pages[1])
    assert _hit(cache, LONG) == 4
    cache.check()
    _compute(cache, LONG[:8])  # computed again, it links up with what came after it
    assert _hit(cache, LONG) == 12


def test_with_caching_off_nothing_is_found_and_allocation_is_the_same() -> None:
    on, off = _cache(static=4), _cache(static=4, caching=False)
    for cache in (on, off):
        tokens = [*cache.static.tokens, *LONG]
        pages = [_compute(cache, tokens).pages[1:] for _ in range(1)]
        assert pages == [[1, 2, 3, 4]]
    assert _hit(on, [*on.static.tokens, *LONG]) == 16
    assert _hit(off, [*off.static.tokens, *LONG]) == 4  # the static prompt is shared all the same


def test_another_owner_misses_and_the_same_hits() -> None:
    cache = _cache()
    _compute(cache, LONG, owner="ann")
    assert _hit(cache, LONG, owner="ann") == 12
    assert _hit(cache, LONG, owner="ben") == 0


def test_the_static_prompt_hits_for_all_owners_and_what_follows_for_one() -> None:
    cache = _cache(static=8)
    tokens = [*cache.static.tokens, *LONG]
    _compute(cache, tokens, owner="ann")
    assert _hit(cache, tokens, owner="ben") == 8
    assert _hit(cache, tokens, owner="ann") == 20


def test_another_model_or_format_has_a_tree_of_its_own() -> None:
    cache = PrefixCache()
    cache.publish(cache.root("model", "bfloat16"), (1, 2, 3, 4), "ann", page=0)
    assert cache.find(cache.root("model", "bfloat16"), (1, 2, 3, 4), "ann") is not None
    assert cache.find(cache.root("model", "int8"), (1, 2, 3, 4), "ann") is None
    assert cache.find(cache.root("another", "bfloat16"), (1, 2, 3, 4), "ann") is None
    cache.check()


def test_equal_hashes_of_different_tokens_are_told_apart() -> None:
    cache = PrefixCache()
    root = cache.root()
    # -1 and -2 have the same hash in Python.
    assert hash((-1, 5)) == hash((-2, 5))
    cache.publish(root, (-1, 5), "ann", page=0)
    assert cache.find(root, (-2, 5), "ann") is None
    assert cache.find(root, (-1, 5), "ann") is not None


def test_truncating_into_a_published_page_keeps_it_findable_and_writes_elsewhere() -> None:
    cache = _cache()
    session = _compute(cache, LONG)
    old = session.pages[2]
    cache.truncate(session, 10)
    assert session.pages[2] != old
    cache.check()
    assert _hit(cache, LONG) == 12


def test_a_session_that_goes_back_to_an_older_branch_finds_it() -> None:
    cache = _cache(static=6)
    start = [*cache.static.tokens, *range(20, 24)]
    session = _compute(cache, [*start, *range(40, 54)])
    cache.truncate(session, len(start))
    session.tokens += range(60, 74)  # another branch
    cache.attach(session)
    assert session.kv_tokens == len(start)
    cache.reserve(session, len(session.tokens))
    cache.advance(session, session.pending_tokens)
    cache.truncate(session, len(start))
    session.tokens += range(40, 54)  # and back
    cache.attach(session)
    assert session.kv_tokens == 20
    assert session.static_tokens == 6
    cache.check()


def test_forgetting_a_session_leaves_nothing_of_it_to_be_found() -> None:
    cache = _cache(static=8)
    tokens = [*cache.static.tokens, *LONG]
    session = _compute(cache, tokens)
    branch = cache.fork(session)
    cache.truncate(branch, 8)  # back to the static prompt: another chain altogether
    branch.tokens += range(500, 506)
    cache.reserve(branch, 18)
    cache.advance(branch, branch.pending_tokens)
    cache.close(branch)
    assert cache.census.counts().cached > 0
    cache.close(session, forget=True)
    assert cache.census.counts().cached == 0
    assert _hit(cache, tokens) == 8
    cache.check()


def test_forgetting_leaves_what_another_session_holds() -> None:
    cache = _cache()
    session = _compute(cache, LONG)
    other = cache.fork(session)
    cache.close(session, forget=True)
    assert other.pages[:3]
    assert _hit(cache, LONG) == 12
    cache.check()


def test_a_tree_of_thousands_of_pages_in_a_row_is_checked_and_forgotten() -> None:
    cache = Harness(3000)
    session = _compute(cache, list(range(10000)))
    cache.check()
    cache.close(session, forget=True)
    assert cache.pages.free == 3000
    assert _hit(cache, list(range(10000))) == 0


def test_statistics_count_tokens_looked_up_found_and_evicted() -> None:
    cache = _cache(total=4)
    session = _compute(cache, LONG)
    cache.count_lookup(Session("ann", tokens=list(LONG)))
    cache.close(session)
    again = _open(cache, LONG)
    cache.attach(again)
    cache.count_lookup(again)
    cache.close(again)
    cache.reserve(_open(cache, [1] * 16), 16)
    stats = cache.stats()
    assert (stats.looked_up_tokens, stats.hit_tokens, stats.evicted_tokens) == (24, 12, 12)


def test_of_equal_pages_the_static_prompts_own_is_shared() -> None:
    cache = _cache(static=8)
    old = _open(cache, [*cache.static.tokens, 1, 2])
    cache.attach(old)
    again = Session(None, tokens=list(cache.static.tokens))  # the same prompt, computed anew
    cache.add(again)
    cache.reserve(again, 8)
    cache.advance(again, 8)
    cache.pin_static(again)
    new = _open(cache, [*cache.static.tokens, 3, 4])
    cache.attach(new)
    assert new.pages[:2] == cache.static.pages != old.pages[:2]
    cache.check()
