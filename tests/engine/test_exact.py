"""The exact mode: the same tokens give the same bits, whatever happened before."""

from collections.abc import Callable

import pytest
import torch

from engine import Engine, Sampling, Session
from engine.errors import SessionBusy

MakeEngine = Callable[..., Engine]
TEXT = "The quick brown fox jumps over the lazy dog while the cache keeps every page. "


def _kv(engine: Engine, session: Session) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of a session as they are stored: two of [layers, kv_heads, tokens, d]."""
    table = torch.tensor(list(session.pages))
    layers = range(engine._pool.layout.layers)
    pairs = [engine._pool.read(layer, table, session.kv_tokens) for layer in layers]
    keys, values = zip(*pairs, strict=True)
    return torch.stack(keys), torch.stack(values)


def _same(one: tuple[torch.Tensor, ...], other: tuple[torch.Tensor, ...]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def _long_conversation(engine: Engine) -> Session:
    """Turns in chunks and batches of many shapes, with a fork, a truncation and an eviction."""
    session = engine.open()
    for turn in range(3):
        other = engine.open(owner="someone else")
        new = engine.format.end(session.tokens[-1:]) if turn else []
        new += engine.format.user(TEXT * (3 + 4 * turn), first=turn == 0)
        both = [
            engine.generate(session, new, Sampling(max_tokens=21)),
            engine.generate(other, engine.format.user(TEXT, first=True), Sampling(max_tokens=9)),
        ]
        for generation in both:
            generation.result()
    engine.truncate(session, len(session.tokens) - 13)
    fork = engine.fork(session)
    engine.drop_kv(session)
    return fork


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_recomputed_pages_equal_those_of_a_fresh_session_bit_for_bit(
    dtype: str, make_engine: MakeEngine
) -> None:
    engine = make_engine(dtype=dtype)
    engine.set_system("Be brief.")
    session = _long_conversation(engine)
    engine.recompute(session)
    assert session.kv_tokens == len(session.tokens)
    engine.check()

    fresh_engine = make_engine(dtype=dtype)
    fresh_engine.set_system("Be brief.")
    fresh = fresh_engine.open(session.tokens)
    assert fresh_engine.recompute(fresh) == len(session.tokens)
    assert _same(_kv(engine, session), _kv(fresh_engine, fresh))

    twin = engine.fork(session)
    engine.recompute(twin)
    shared = session.static_tokens // 16
    assert set(twin.pages[shared:]).isdisjoint(session.pages)
    assert _same(_kv(engine, session), _kv(engine, twin))


def test_a_longer_sessions_pages_begin_with_those_of_a_shorter_one(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine()
    tokens = engine.format.user(TEXT * 25, first=True)
    long, short = engine.open(tokens), engine.open(tokens[:301])
    engine.recompute(long)
    engine.recompute(short)
    keys, values = _kv(engine, long)
    assert _same((keys[:, :, :301], values[:, :, :301]), _kv(engine, short))


def test_recomputing_beside_running_answers_changes_neither(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.set_system("Be brief.")
    ask = engine.format.user("Go on.", first=True)
    expected = engine.generate(engine.open(), ask, Sampling(max_tokens=60)).result().tokens
    tokens = list(engine.static_tokens) + engine.format.user(TEXT * 30, first=True)
    alone = engine.open(tokens)
    engine.recompute(alone)
    generation = engine.generate(engine.open(owner="x"), ask, Sampling(max_tokens=60))
    beside = engine.open(tokens)
    engine.recompute(beside)
    assert generation.result().tokens == expected
    assert _same(_kv(engine, alone), _kv(engine, beside))


def test_a_recomputed_session_answers_as_before(make_engine: MakeEngine) -> None:
    engine = make_engine()
    session = engine.open(engine.format.user(TEXT * 4, first=True))
    twin = engine.open(session.tokens)
    engine.recompute(twin)
    new = engine.format.user("And?", first=False)
    answers = [
        engine.generate(s, new, Sampling(max_tokens=30)).result().tokens for s in (session, twin)
    ]
    assert answers[0] == answers[1]


def test_recomputing_needs_an_idle_session(make_engine: MakeEngine) -> None:
    engine = make_engine(kv_memory=f"{9 * 8192}")
    session = engine.open([5] * 120)
    generation = engine.generate(session, (), Sampling(max_tokens=3))
    with pytest.raises(SessionBusy):
        engine.recompute(session)
    generation.result()
    assert engine.recompute(session) == len(session.tokens)
    assert engine.recompute(engine.open()) == 0
