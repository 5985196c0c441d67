"""Which session holds which pages: the policy alone, without tensors."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule

from engine.errors import OutOfPages
from engine.kv.pages import PageAllocator
from engine.kv.prefix import PrefixCache
from engine.kv.session import Session
from tests.engine.paging import SIZE, CodedHarness, Harness


def test_a_page_is_never_handed_out_twice() -> None:
    pages = PageAllocator(8, PrefixCache())
    taken = pages.allocate(5) + pages.allocate(3)
    assert sorted(taken) == list(range(8))


def test_freeing_twice_names_the_page() -> None:
    pages = PageAllocator(4, PrefixCache())
    (page,) = pages.allocate(1)
    pages.release([page])
    with pytest.raises(ValueError, match=f"page {page} was freed twice"):
        pages.release([page])


def test_a_failed_allocation_changes_nothing() -> None:
    pages = PageAllocator(4, PrefixCache())
    pages.allocate(3)
    with pytest.raises(OutOfPages) as caught:
        pages.allocate(2)
    assert (caught.value.wanted, caught.value.free, pages.free) == (2, 1, 1)
    pages.check()


def test_releasing_one_holder_leaves_the_others_pages_intact() -> None:
    pages = PageAllocator(2, PrefixCache())
    taken = pages.allocate(1)
    pages.retain(taken)
    pages.release(taken)
    assert pages.holders(taken[0]) == 1
    assert pages.free == 1


def test_a_fork_of_the_static_prompt_shares_full_pages_and_copies_the_partial_one() -> None:
    cache = Harness(16, static_tokens=10)  # two full pages and a half
    session = cache.open(3)
    cache.attach(session)
    assert session.pages[:2] == cache.static.pages[:2]
    assert cache.copies == [(cache.static.pages[2], session.pages[2])]
    assert session.pages[2] != cache.static.pages[2]
    assert session.kv_tokens == session.static_tokens == 10
    cache.check()


def test_a_prompt_that_is_wholly_static_still_computes_its_last_token() -> None:
    cache = Harness(16, static_tokens=8)
    session = cache.open(0)
    cache.attach(session)
    assert 1 <= session.pending_tokens <= SIZE


def test_idle_sessions_give_up_their_pages_the_longest_unused_first() -> None:
    cache = Harness(6)
    old, young, asking = cache.open(8), cache.open(8), cache.open(12)
    cache.compute(old)
    cache.compute(young)
    old.last_used, young.last_used = 1, 2
    asking.running = True
    cache.reserve(asking, 12)
    assert (old.pages, old.kv_tokens, len(old.tokens)) == ([], 0, 8)
    assert len(young.pages) == 2
    cache.check()


def test_running_sessions_keep_their_pages() -> None:
    cache = Harness(4)
    running, asking = cache.open(12), cache.open(8)
    cache.compute(running)
    running.running = True
    with pytest.raises(OutOfPages):
        cache.reserve(asking, 8)
    assert len(running.pages) == 3
    assert asking.pages == []
    cache.check()


def test_decoding_inside_a_page_allocates_nothing() -> None:
    cache = Harness(8)
    session = cache.open(5)
    cache.compute(session)
    before = cache.pages.free
    for length in (6, 7, 8):
        cache.reserve(session, length)
        assert cache.pages.free == before
    cache.reserve(session, 9)
    assert cache.pages.free == before - 1


def test_writing_to_a_fork_leaves_the_parent_unchanged() -> None:
    cache = Harness(8)
    parent = cache.open(6)
    cache.compute(parent)
    child = cache.fork(parent)
    assert child.pages[0] == parent.pages[0]
    assert child.pages[1] != parent.pages[1]
    assert cache.copies == [(parent.pages[1], child.pages[1])]
    child.tokens.append(1)
    assert len(parent.tokens) == 6
    cache.check()


def test_truncating_into_a_shared_page_copies_it() -> None:
    cache = Harness(8)
    parent = cache.open(8)
    cache.compute(parent)
    child = cache.fork(parent)
    cache.truncate(child, 6)  # the next token would be written to the second page, which is shared
    assert child.pages[1] != parent.pages[1]
    assert (child.kv_tokens, child.tokens) == (6, parent.tokens[:6])
    cache.check()


def test_closing_frees_only_what_nobody_else_holds() -> None:
    cache = Harness(8, static_tokens=8)
    one, two = cache.open(4), cache.open(4)
    cache.compute(one)
    cache.compute(two)
    cache.close(one)
    assert two.pages[:2] == cache.static.pages
    assert cache.census.counts() == (8, 2, 1, 1, 4)
    cache.check()


def test_another_static_prompt_lets_the_old_pages_go_once_nobody_holds_them() -> None:
    cache = Harness(8, static_tokens=8)
    holder = cache.open(2)
    cache.compute(holder)
    cache.unpin_static()
    assert cache.pages.available == 8 - 3
    cache.close(holder)
    assert cache.pages.available == 8


class AnyOperations(RuleBasedStateMachine):
    """After any sequence of operations free + in use = total, and tables agree with the counts."""

    sessions = Bundle("sessions")

    harness: type[Harness] = Harness
    frames = 12

    def __init__(self) -> None:
        super().__init__()
        self.cache = self.harness(self.frames, static_tokens=6)
        self.open: list[Session] = []

    @rule(target=sessions, tokens=st.integers(1, 20))
    def begin(self, tokens: int) -> Session:
        self.open.append(self.cache.open(tokens, owner="ab"[tokens % 2], seed=tokens % 3))
        return self.open[-1]

    @rule(session=sessions, more=st.integers(0, 9))
    def compute(self, session: Session, more: int) -> None:
        if session.closed:
            return
        session.tokens += range(more)
        session.running = True
        self.cache.attach(session)
        before = (list(session.pages), session.kv_tokens, self.cache.census.counts())
        try:
            self.cache.reserve(session, len(session.tokens))
        except OutOfPages:
            assert before == (session.pages, session.kv_tokens, self.cache.census.counts())
        else:
            self.cache.write(session, len(session.tokens))
            self.cache.advance(session, session.pending_tokens)
        session.running = False

    @rule(session=sessions)
    def toggle_running(self, session: Session) -> None:
        session.running = not session.running and not session.closed

    @rule(target=sessions, session=sessions)
    def fork(self, session: Session) -> Session:
        if session.closed:
            return session
        before = self.cache.pages.available
        try:
            child = self.cache.fork(session)
        except OutOfPages:
            assert self.cache.pages.available == before
            return session
        self.open.append(child)
        return child

    @rule(session=sessions, keep=st.integers(0, 20))
    def truncate(self, session: Session, keep: int) -> None:
        if not session.closed:
            self.cache.truncate(session, min(keep, len(session.tokens)))

    @rule(session=sessions)
    def drop(self, session: Session) -> None:
        self.cache.drop(session)

    @precondition(lambda self: len(self.open) > 3)
    @rule(session=sessions, forget=st.booleans())
    def close(self, session: Session, forget: bool) -> None:
        session.running = False
        self.cache.close(session, forget)

    @rule(session=sessions, at_all_costs=st.booleans())
    def refresh(self, session: Session, at_all_costs: bool) -> None:
        if session.closed or session.running:
            return
        before = (list(session.pages), session.kv_tokens)
        try:
            self.cache.refresh(session, politely=not at_all_costs)
            assert session.kv_tokens == len(session.tokens)
            assert not self.cache.approximate_tokens(session)
        except OutOfPages:
            if not at_all_costs:
                assert before == (session.pages, session.kv_tokens)
            for shadow in [s for s in self.cache._sessions if s.shadow]:
                assert not shadow.pages
                self.cache.close(shadow)

    @invariant()
    def every_page_holds_what_its_tables_say(self) -> None:
        for session in (*self.cache._sessions, self.cache.static):
            self.cache.check_content(session)

    @invariant()
    def books_agree(self) -> None:
        self.cache.check()
        counts = self.cache.census.counts()
        assert counts.static + counts.sessions + counts.cached + counts.free == counts.total

    @invariant()
    def pages_to_be_written_have_one_holder(self) -> None:
        for session in self.open:
            if session.kv_tokens % SIZE:
                assert self.cache.pages.holders(session.pages[session.kv_tokens // SIZE]) == 1


class AnyOperationsWithACodec(AnyOperations):
    """The same where pages are coded as they leave the window."""

    harness = CodedHarness
    frames = 9


AnyOperations.TestCase.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
AnyOperationsWithACodec.TestCase.settings = AnyOperations.TestCase.settings
test_any_sequence_of_operations_keeps_the_books = AnyOperations.TestCase
test_any_sequence_of_operations_keeps_the_books_with_a_codec = AnyOperationsWithACodec.TestCase
