"""Books of coded pages where branches, copies and small pools meet. Without tensors."""

import pytest

from engine.errors import OutOfPages
from tests.engine.paging import SIZE, WINDOW, CodedHarness, Harness


def test_what_is_computed_from_an_approximate_page_of_others_is_approximate() -> None:
    cache = CodedHarness(60)
    parent = cache.open(SIZE + WINDOW)
    cache.compute(parent)
    child = cache.fork(parent)
    for start in (500, 600):  # the second page reads what was coded after the first
        child.tokens += range(start, start + SIZE)
        cache.compute(child)
    assert cache.approximate_tokens(child) == SIZE
    parent.tokens += child.tokens[len(parent.tokens) :] + [1] * 3
    cache.attach(parent)
    before = cache.approximate_tokens(parent)
    assert before == SIZE
    assert not any(map(cache.pages.is_coded, parent.pages))
    cache.reserve(parent, len(parent.tokens))
    cache.write(parent, len(parent.tokens))
    cache.advance(parent, 3)
    assert cache.approximate_tokens(parent) > before


def test_a_copy_of_an_approximate_page_is_approximate() -> None:
    cache = CodedHarness(60)
    session = cache.open(8 * SIZE)
    cache.compute(session)
    session.tokens += range(500, 500 + 2 * SIZE)
    cache.compute(session)
    assert cache.approximate_tokens(session) == 2 * SIZE
    cache.truncate(session, len(session.tokens) - 1)  # into a page that can be found: a copy
    assert cache.approximate_tokens(session) == 2 * SIZE
    child = cache.fork(session)
    assert cache.approximate_tokens(child) == 2 * SIZE


def test_a_fork_does_not_lose_its_pages_to_its_own_copy() -> None:
    cache = Harness(5)
    parent, other = cache.open(SIZE + 1), cache.open(3 * SIZE)
    other.last_used = 2
    cache.compute(parent)
    cache.compute(other)
    child = cache.fork(parent)
    cache.check()
    assert child.kv_tokens == SIZE + 1
    assert not other.pages


def test_a_refresh_that_nobody_asked_for_takes_nothing_from_idle_sessions() -> None:
    cache = CodedHarness(25)
    session, others = cache.open(8 * SIZE), []
    session.last_used = 1
    cache.compute(session)
    while cache.pages.available > 2:  # each leaves three slots of a frame free, in which codes fit
        others.append(cache.open(4 * SIZE))
        cache.compute(others[-1])
        cache.truncate(others[-1], 2 * SIZE)
    assert cache.pages.available_slots > 8 * cache.pages.per_frame
    with pytest.raises(OutOfPages):
        cache.refresh(session, politely=True)
    assert all(other.pages for other in others)


def test_a_session_too_large_to_be_refreshed_does_not_keep_another_from_it() -> None:
    cache = CodedHarness(18)
    large, small = cache.open(26 * SIZE), cache.open(5 * SIZE)
    for session in (large, small):
        tokens = session.tokens[:]
        for stop in range(SIZE, len(tokens) + 1, SIZE):
            session.tokens[:] = tokens[:stop]
            cache.compute(session)
    assert cache.approximate_tokens(large) > cache.approximate_tokens(small) > 0
    assert cache.fresh_pages.stale(1) is small


def test_scattered_coded_pages_move_together_when_there_is_no_other_room() -> None:
    cache = CodedHarness(10)
    session = cache.open(9 * SIZE)
    cache.compute(session)
    for index, page in enumerate(session.pages):  # each to a frame of its own
        if cache.pages.is_coded(page):
            cache.precision._move(session, [index], [True], cache.store.take([page]), None)
    assert cache.pages.available == 1
    assert len(session.tokens) + 4 * SIZE < cache.capacity_tokens(session.tokens)
    session.tokens += range(4 * SIZE)
    with pytest.raises(OutOfPages):
        cache.reserve(session, len(session.tokens))
    cache._leave_pool_to(session)
    cache.check()
    cache.compute(session)
    cache.check_content(session)
