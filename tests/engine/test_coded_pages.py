"""Sessions on coded pages: what stays in full precision, and the refresh that makes it exact."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from engine import Engine, EngineConfig, Sampling, Session
from engine.coded.cache import CodedCache
from engine.coded.codec import CODECS, Codec
from engine.coded.layout import CodedLayout
from engine.errors import SettingError
from engine.kv.cache import KVCache
from engine.kv.check import check_cache
from engine.kv.layout import PageLayout
from tests.engine.driving import TEXT, Recorder, ask
from tests.engine.paging import SIZE, WINDOW, CodedHarness

MakeEngine = Callable[..., Engine]


@pytest.fixture(scope="module")
def folder(make_tiny: Callable[..., Path]) -> Path:
    return make_tiny(head_dim=32)


@pytest.fixture
def make_coded(folder: Path, make_engine: MakeEngine) -> MakeEngine:
    """Engines with a codec that refresh only when they are told to."""

    def make(kv_dtype: str = "int8", **settings: Any) -> Engine:
        common = {"model": str(folder), "refresh_tokens": 0, "backend": "torch"}
        engine = make_engine(**(common | {"kv_dtype": kv_dtype} | settings))
        engine.set_system("Be brief.")
        return engine

    return make


def _pages(engine: Engine, session: Session) -> list[torch.Tensor]:
    """A session's pages as they lie in memory, of a last one what is filled."""
    pool = engine._pool
    kept = []
    for index, page in enumerate(session.pages):
        filled = min(session.kv_tokens - index * pool.page_size, pool.page_size)
        if pool.is_coded(page):
            kept.append(pool.slots[:, page - pool.frames].clone())
        else:
            both = torch.stack((pool.keys[:, page], pool.values[:, page]))
            kept.append(both[..., :filled, :].clone())
    return kept


def _same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_the_first_page_and_the_window_stay_in_full_precision(make_coded: MakeEngine) -> None:
    engine = make_coded()
    session = engine.open([5] * 10)
    engine.generate(session, [6] * 400, Sampling(max_tokens=5)).result()
    coded = [engine._pool.is_coded(page) for page in session.pages]
    whole = (session.kv_tokens - 128) // 16
    assert coded == [False] + [True] * (whole - 1) + [False] * (len(coded) - whole)
    (info,) = engine.session_list()
    assert info.coded_pages == sum(coded)
    assert info.kv_bytes == engine.memory().kv_page_bytes * (
        info.coded_pages + (info.pages - info.coded_pages) * engine.memory().pages_per_plain
    )


def test_a_shared_page_is_coded_for_whoever_needs_it_and_left_to_the_others() -> None:
    cache = CodedHarness(40)
    parent = cache.open(5 * SIZE)
    cache.compute(parent)
    plain = list(parent.pages)
    child = cache.fork(parent)
    child.tokens += range(500, 500 + 2 * WINDOW)
    cache.compute(child)
    assert parent.pages == plain
    moved = [page for page in child.pages[:5] if cache.pages.is_coded(page)]
    assert len(moved) >= 3
    assert set(moved) <= set(cache.store.coded)
    parent.tokens += range(900, 900 + 2 * WINDOW)
    cache.compute(parent)  # the same content is coded by now: it is shared, not coded again
    assert set(moved) <= set(parent.pages)
    cache.check()


def test_what_stayed_plain_for_want_of_room_is_coded_when_a_page_fills_and_no_sooner() -> None:
    """Until then a step may run ahead, and read it."""
    cache = CodedHarness(frames=5)
    blocker, session = cache.open(SIZE), cache.open(3 * SIZE)
    cache.compute(blocker)
    cache.compute(session)
    other = cache.fork(session)  # holds the pages too, so that coding them makes no room
    session.tokens += range(SIZE)
    cache.compute(session)
    assert not cache.coded_pages(session)
    cache.close(other)
    cache.close(blocker, forget=True)
    cache.reserve(session, 5 * SIZE)
    for _ in range(SIZE - 1):
        assert cache.may_run_ahead(session, 1)
        session.tokens.append(7)
        cache.write(session, len(session.tokens))
        cache.advance(session, 1)
        assert not cache.coded_pages(session)
    assert not cache.may_run_ahead(session, 1)
    session.tokens.append(7)
    cache.write(session, len(session.tokens))
    cache.advance(session, 1)
    assert cache.coded_pages(session)
    cache.check_content(session)


def test_a_cut_into_a_coded_page_computes_its_rest_again(make_coded: MakeEngine) -> None:
    engine = make_coded()
    session = engine.open([5] * 400)
    engine.generate(session, (), Sampling(max_tokens=1)).result()
    engine.truncate(session, 100)
    assert session.kv_tokens == 96  # full pages only
    assert engine._pool.is_coded(session.pages[-1])
    engine.generate(session, [9] * 3, Sampling(max_tokens=2)).result()
    assert not engine._pool.is_coded(session.pages[6])


@pytest.mark.parametrize("codec", CODECS)
def test_a_refreshed_sessions_pages_equal_a_fresh_ones_bit_for_bit(
    codec: str, make_coded: MakeEngine
) -> None:
    engine = make_coded(codec, kv_memory="2MB")
    session, other = engine.open(), engine.open(owner="someone else")
    for turn in range(3):
        asked = ask(engine, session, TEXT * (4 + 4 * turn), max_tokens=21)
        ask(engine, other, TEXT, max_tokens=9).result()
        asked.result()
    engine.truncate(session, len(session.tokens) - 13)
    session = engine.fork(session)
    engine.drop_kv(session)
    ask(engine, session, TEXT * 2, max_tokens=33).result()
    before = _pages(engine, session)
    (info,) = [i for i in engine.session_list() if i.id == session.id]
    assert info.approximate_tokens > 0
    assert engine.recompute(session) == len(session.tokens)
    (info,) = [i for i in engine.session_list() if i.id == session.id]
    assert info.approximate_tokens == 0
    refreshed = _pages(engine, session)
    assert not _same(refreshed[: len(before)], before)

    fresh_engine = make_coded(codec)
    fresh = fresh_engine.open(session.tokens)
    fresh_engine.recompute(fresh)
    assert _same(refreshed, _pages(fresh_engine, fresh))


def test_a_newcomer_finds_the_refreshed_pages_and_no_others(make_coded: MakeEngine) -> None:
    engine = make_coded()
    session = engine.open([5] * 600)
    engine.generate(session, [6] * 200, Sampling(max_tokens=8)).result()
    engine.recompute(session)
    refreshed = list(session.pages)
    tokens = list(session.tokens)
    engine.close(session)
    again = engine.open(tokens)
    engine.generate(again, [7], Sampling(max_tokens=1)).result()
    assert again.pages[: len(refreshed) - 12] == refreshed[: len(refreshed) - 12]


def test_idle_time_refreshes_what_is_approximate_and_says_how_much(
    make_coded: MakeEngine,
) -> None:
    engine = make_coded(refresh_tokens=64)
    session = engine.open([5] * 300)
    engine.generate(session, [6] * 200, Sampling(max_tokens=30)).result()
    tokens = len(session.tokens)
    _until(lambda: session.refreshed_tokens > 0)
    assert engine.session_list()[0].approximate_tokens == 0
    assert engine.memory().kv_scratch_bytes == 0
    stats = engine.generate(session, [7] * 3, Sampling(max_tokens=2)).result().stats
    assert stats.refreshed_tokens == tokens
    assert (
        engine.generate(session, [7], Sampling(max_tokens=1)).result().stats.refreshed_tokens == 0
    )


def test_a_refresh_that_nobody_asked_for_gives_way(make_coded: MakeEngine) -> None:
    engine = make_coded(refresh_tokens=64)
    session = engine.open([5] * 900)
    engine.generate(session, [6] * 200, Sampling(max_tokens=30)).result()
    begun, go_on = _held_refreshes(engine)
    pages = list(session.pages)
    assert begun.wait(30)
    assert engine.memory().kv_scratch_bytes > 0
    generation = engine.generate(session, [7] * 3, Sampling(max_tokens=5))
    go_on.set()
    result = generation.result()
    assert result.stats.cached_tokens == result.stats.prompt_tokens - 4
    assert session.pages[:20] == pages[:20]
    engine.check()


def test_a_refresh_that_nobody_asked_for_leaves_its_pages_to_who_needs_them(
    make_coded: MakeEngine,
) -> None:
    engine = make_coded(refresh_tokens=64, kv_memory=f"{40 * 2 * 2 * 2 * 32 * 16 * 4}")
    limit = engine.context_tokens
    session = engine.open([5] * (limit // 3))
    engine.generate(session, (), Sampling(max_tokens=3)).result()
    begun, go_on = _held_refreshes(engine)
    assert begun.wait(30)
    other = engine.open([7] * (limit - 60), owner="someone else")
    generation = engine.generate(other, (), Sampling(max_tokens=20))
    go_on.set()
    assert generation.result().tokens
    engine.check()


def test_a_refresh_that_fails_is_not_begun_again_before_the_next_request(
    make_coded: MakeEngine,
) -> None:
    engine = make_coded(refresh_tokens=64)
    session = engine.open([5] * 300)
    engine.generate(session, [6] * 200, Sampling(max_tokens=3)).result()
    tries, run_layer = 0, engine._executor.run_layer

    def fail(*_: Any) -> Any:
        nonlocal tries
        tries += 1
        raise MemoryError("injected")

    engine._executor.run_layer = fail  # type: ignore[method-assign]
    _until(lambda: tries > 0)
    time.sleep(0.3)
    assert tries == 1
    engine._executor.run_layer = run_layer  # type: ignore[method-assign]
    assert len(engine.generate(session, [7], Sampling(max_tokens=3)).result().tokens) == 3
    _until(lambda: session.refreshed_tokens > 0)


def test_more_conversations_fit_into_the_same_memory() -> None:
    """Conversations of 4,000 tokens of SmolLM2-135M, one after the other, in one GiB."""

    class NoStore:
        def copy_page(self, source: int, target: int) -> None: ...
        def encode(self, pages: Any) -> None: ...
        def take(self, pages: Any) -> None: ...
        def put(self, coded: Any, pages: Any) -> None: ...

    def held(codec: str | None) -> int:
        plain = PageLayout(30, 3, 64, 16, torch.bfloat16)
        cache = KVCache(plain, 2**30 // plain.page_bytes, NoStore())
        if codec:
            layout = CodedLayout.of(plain, Codec.of(codec, 64))
            cache = CodedCache(layout, 2**30 // layout.page_bytes, NoStore())
        count = 0
        while True:
            session = Session("me", tokens=[count, *range(3_999)])
            cache.add(session)
            while session.pending_tokens:
                chunk = min(400, session.pending_tokens)
                cache.reserve(session, session.kv_tokens + chunk)
                cache.advance(session, chunk)
            count += 1
            if any(s.pending_tokens for s in cache.sessions):  # one had to give way
                check_cache(cache)
                return count - 1

    plain = held(None)
    assert held("int8") >= 1.75 * plain
    assert held("int4") >= 3 * plain


def test_a_pool_of_coded_pages_is_used_to_the_last_page(make_coded: MakeEngine) -> None:
    page = 2 * 2 * 2 * 32 * 16 * 4
    plain = make_coded("float32", kv_memory=f"{40 * page}")
    engine = make_coded("int8", kv_memory=f"{40 * page}")
    limit = engine.context_tokens
    assert limit > 2 * plain.context_tokens
    session = engine.open([5] * (limit - 40))
    recorder = Recorder(engine)
    result = engine.generate(session, (), Sampling(max_tokens=100)).result()
    assert len(session.tokens) == limit
    assert result.finish_reason == "length"
    assert len(recorder.steps) > 40


def test_an_unknown_codec_and_heads_that_it_cannot_take_are_refused_with_a_sentence(
    folder: Path, make_tiny: Callable[..., Path]
) -> None:
    with pytest.raises(SettingError, match=r"kv-dtype 'int3' is not one of .*int8, k8v4, int4"):
        EngineConfig(str(folder), kv_dtype="int3")  # type: ignore[arg-type]
    odd = make_tiny(hidden_size=144, num_attention_heads=2, num_key_value_heads=1, head_dim=72)
    with pytest.raises(SettingError, match=r"A head of 72 numbers"):
        Engine(EngineConfig(str(odd), device="cpu", kv_dtype="int4"))


def _held_refreshes(engine: Engine) -> tuple[threading.Event, threading.Event]:
    """Holds every refresh at its next layer: set when one is there, and to be set to let it go."""
    run_layer, begun, go_on = engine._executor.run_layer, threading.Event(), threading.Event()

    def slow(*given: Any) -> torch.Tensor:
        begun.set()
        assert go_on.wait(30)
        return run_layer(*given)

    engine._executor.run_layer = slow  # type: ignore[method-assign]
    return begun, go_on


def _until(condition: Callable[[], bool], limit_s: float = 60) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
