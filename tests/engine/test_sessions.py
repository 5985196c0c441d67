"""Sessions step by step: which tokens have KV, and that found KV is as good as computed KV."""

from collections.abc import Callable

import pytest
import torch

from engine import Engine, Sampling, Session
from engine.kv.pool import PagePool
from engine.step import Ints, Step

MakeEngine = Callable[..., Engine]
TEXT = "The quick brown fox jumps over the lazy dog while the cache keeps every page. "


class Forwarded:
    """Notes which tokens went through the model at which positions of each session."""

    def __init__(self, engine: Engine) -> None:
        self.tokens: dict[Session, dict[int, int]] = {}
        self.logits: dict[Session, torch.Tensor] = {}
        self._engine, executor = engine, engine._executor
        self._forward = executor.forward
        executor.forward = self  # type: ignore[method-assign,assignment]

    def __call__(self, step: Step, tokens: Ints, pool: PagePool) -> torch.Tensor:
        logits = self._forward(step, tokens, pool)
        by_row = {r.session.pages.row: r.session for r in self._engine._scheduler.running}
        rows = step.logit_rows.tolist()
        for index, row in enumerate(step.table_rows.tolist()):
            session, own = by_row[row], slice(*step.starts[index : index + 2].tolist())
            seen = self.tokens.setdefault(session, {})
            seen.update(zip(step.positions[own].tolist(), tokens[own].tolist(), strict=True))
            if own.stop - 1 in rows:
                self.logits[session] = logits[rows.index(own.stop - 1)]
        return logits


def _prefill(engine: Engine, forwarded: Forwarded, tokens: list[int], owner: str) -> torch.Tensor:
    """Logits after the last of these tokens, in a session of their own."""
    session = engine.open(tokens, owner=owner)
    engine.generate(session, (), Sampling(max_tokens=1)).result()
    return forwarded.logits[session]


def test_the_tokens_with_kv_are_those_that_went_through_the_model(make_engine: MakeEngine) -> None:
    engine = make_engine(prefix_cache=False)
    forwarded = Forwarded(engine)
    session = engine.open()
    for turn in range(3):
        new = engine.format.user(TEXT * (turn + 1), first=turn == 0)
        engine.generate(session, new, Sampling(max_tokens=7)).result()
        assert session.kv_tokens == len(session.tokens) - 1  # all but the last sampled one
        held = dict(enumerate(session.tokens[: session.kv_tokens]))
        assert forwarded.tokens[session] == held


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_hit_and_a_miss_give_the_same_logits_within_tolerance(
    dtype: str, make_engine: MakeEngine
) -> None:
    engine = make_engine(dtype=dtype)
    forwarded = Forwarded(engine)
    tokens = engine.format.user(TEXT * 9, first=True)
    miss = _prefill(engine, forwarded, tokens, owner="ann")
    hit = _prefill(engine, forwarded, tokens, owner="ann")
    assert engine.prefix_stats().hit_tokens >= len(tokens) - 16
    # Logits of this model span about +-20; bfloat16 keeps eight bits of a number.
    tolerance = 1e-3 if dtype == "float32" else 0.5
    assert (hit - miss).abs().max() < tolerance


def test_an_evicted_session_answers_with_the_logits_of_one_that_was_not(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine(prefix_cache=False)
    forwarded = Forwarded(engine)
    kept, evicted = engine.open(owner="ann"), engine.open(owner="ben")
    for session in (kept, evicted):
        new = engine.format.user(TEXT * 3, first=True)
        engine.generate(session, new, Sampling(max_tokens=9)).result()
    engine.drop_kv(evicted)
    for session in (kept, evicted):
        new = engine.format.user("And then?", first=False)
        engine.generate(session, new, Sampling(max_tokens=1)).result()
    assert (forwarded.logits[kept] - forwarded.logits[evicted]).abs().max() < 1e-3


def test_nothing_of_a_stopped_answer_is_left_after_regenerating(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.set_system("Be brief.")
    question = engine.format.user(TEXT, first=True)
    fresh = engine.open(owner="x")
    expected = engine.generate(fresh, question, Sampling(max_tokens=20)).result().tokens
    session = engine.open()
    prompt = len(session.tokens) + len(question)
    generation = engine.generate(session, question, Sampling(temperature=2.0, seed=1))
    next(iter(generation))
    generation.cancel()
    stopped = generation.result().tokens
    assert stopped
    engine.truncate(session, prompt)
    again = engine.generate(session, (), Sampling(max_tokens=20)).result().tokens
    assert again == expected
    assert session.tokens == [*fresh.tokens]


def test_idle_sessions_never_stop_a_new_one_from_running(make_engine: MakeEngine) -> None:
    engine = make_engine(kv_memory=f"{20 * 8192}")
    sessions = []
    for index in range(8):  # together they need three times the pool
        sessions.append(engine.open(owner=f"owner {index}"))
        new = engine.format.user(TEXT * 6, first=True)
        result = engine.generate(sessions[-1], new, Sampling(max_tokens=5)).result()
        assert len(result.tokens) == 5
        engine.check()
    assert sum(bool(session.pages) for session in sessions) < 8
    assert all(session.tokens for session in sessions)


def test_a_seed_means_the_same_alone_and_in_a_batch(make_engine: MakeEngine) -> None:
    engine = make_engine(dtype="float64")
    question = engine.format.user(TEXT, first=True)
    sampled = Sampling(max_tokens=25, temperature=1.3, top_p=0.9, seed=5)
    alone = engine.generate(engine.open(owner="x"), question, sampled).result().tokens
    others = [
        engine.generate(
            engine.open(owner=f"o{i}"),
            engine.format.user(TEXT * i, first=True),
            Sampling(max_tokens=30),
        )
        for i in range(1, 5)
    ]
    batched = engine.generate(engine.open(owner="y"), question, sampled).result().tokens
    assert batched == alone
    for other in others:
        other.result()
