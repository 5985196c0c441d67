"""Many sessions over far too few pages, for a long time: nothing leaks, and no answer changes.

A tiny model in float64 makes answers exact: rounding is far below any gap between two logits.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from engine import Engine, EngineConfig, Generation, Sampling, Session
from engine.errors import ContextTooLong, OutOfPages, QueueFull
from engine.kv.check import check_cache

SESSIONS = 64
PAGES = 60
PAGE_BYTES = 2 * 2 * 2 * 16 * 16 * 8  # keys and values, layers, KV heads, head_dim, tokens, float64
LONGEST = 420


@dataclass
class Asked:
    prompt: list[int]
    sampling: Sampling
    generation: Generation


@dataclass
class Load:
    """Random operations on many sessions; every answer is compared with a lonely session's.

    With a codec an answer depends on which pages were coded when, so only the books are checked.
    """

    folder: Path
    seed: int
    kv_dtype: Any = "float64"
    kv_memory: int = PAGES * PAGE_BYTES
    steps: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        common: dict[str, Any] = {"model": str(self.folder), "dtype": "float64", "device": "cpu"}
        self.engine = Engine(
            EngineConfig(
                **common,
                kv_memory=f"{self.kv_memory}",
                max_sessions=12,
                max_waiting=20,
                kv_dtype=self.kv_dtype,
                refresh_tokens=64,
            )
        )
        self.alone = Engine(EngineConfig(**common, prefix_cache=False))
        self.engine.set_system("Answer briefly and name your sources.")
        self.sessions: list[Session] = []
        self.running: dict[Session, Asked] = {}
        self.broken: Exception | None = None
        plan = self.engine._scheduler.plan

        def check_then_plan() -> Any:  # the loop holds the lock here
            self.steps += 1
            try:
                check_cache(self.engine._cache)
            except Exception as error:
                self.broken = self.broken or error
            return plan()

        self.engine._scheduler.plan = check_then_plan  # type: ignore[method-assign]

    def run(self, steps: int) -> None:
        while self.steps < steps and self.broken is None:
            self._one_operation()
        for session in list(self.running):
            self._collect(session)
        for session in self.sessions:
            self.engine.close(session, forget=self.random.random() < 0.5)
        self.engine.check()
        assert self.broken is None, self.broken
        report = self.engine.memory()
        assert report.pages_sessions == 0
        held = report.pages_free + report.pages_cached + report.pages_static
        assert held == report.pages_total == self.kv_memory // report.kv_page_bytes
        self.engine.shutdown()
        self.alone.shutdown()

    def _one_operation(self) -> None:
        if len(self.sessions) < SESSIONS:
            owner = self.random.choice(["ann", "ben", "cho"])
            self.sessions.append(self.engine.open(owner=owner))
        session = self.random.choice(self.sessions)
        if session in self.running:
            if self.random.random() < 0.15:
                self.running[session].generation.cancel()
            if self.random.random() < 0.5:
                self._collect(session)
            return
        operations = {self._ask: 70, self._fork: 8, self._truncate: 8, self._drop: 4,
                      self._recompute: 3, self._close: 7}  # fmt: skip
        (operation,) = self.random.choices(list(operations), list(operations.values()))
        try:
            operation(session)
            self.counts[operation.__name__] += 1
        except (QueueFull, OutOfPages, ContextTooLong) as refusal:
            self.counts[type(refusal).__name__] += 1

    def _ask(self, session: Session) -> None:
        new = [self.random.randrange(17, 300) for _ in range(self.random.choice((1, 5, 40, 130)))]
        if len(session.tokens) + len(new) > LONGEST:
            self.engine.truncate(session, len(self.engine.static_tokens))
        seed = self.random.choice((None, 1, 2, 3))
        sampling = Sampling(
            temperature=0.0 if seed is None else 1.0,
            seed=seed,
            max_tokens=self.random.choice((1, 4, 16, 40)),
        )
        prompt = session.tokens + new
        generation = self.engine.generate(session, new, sampling)
        self.running[session] = Asked(prompt, sampling, generation)

    def _fork(self, session: Session) -> None:
        child = self.engine.fork(session)
        self.sessions.append(child)
        idle = [s for s in self.sessions if s not in self.running and s is not child]
        self._close(self.random.choice(idle))

    def _truncate(self, session: Session) -> None:
        self.engine.truncate(session, self.random.randrange(len(session.tokens) + 1))

    def _drop(self, session: Session) -> None:
        self.engine.drop_kv(session)

    def _recompute(self, session: Session) -> None:
        self.engine.recompute(session)

    def _close(self, session: Session) -> None:
        self.sessions.remove(session)
        self.engine.close(session, forget=self.random.random() < 0.5)

    def _collect(self, session: Session) -> None:
        asked = self.running.pop(session)
        result = asked.generation.result(120)
        self.counts[result.finish_reason] += 1
        assert session.tokens == asked.prompt + list(result.tokens)
        if not result.tokens or self.kv_dtype != "float64":
            return
        lonely = self.alone.open(asked.prompt)
        expected = self.alone.generate(lonely, (), asked.sampling).result().tokens
        self.alone.close(lonely)
        if result.finish_reason == "cancelled":
            expected = expected[: len(result.tokens)]
        assert result.tokens == expected


def _load(folder: Path, seed: int, steps: int, **settings: Any) -> Load:
    load = Load(folder, seed, **settings)
    load.run(steps)
    stats = load.engine.prefix_stats()
    assert stats.evicted_tokens > 0
    assert stats.hit_tokens > 0
    return load


def test_random_load_over_too_few_pages(tiny_folder: Path) -> None:
    _load(tiny_folder, seed=1, steps=500)


CODED_SLOT = 2 * 2 * 2 * 16 * (32 + 2)  # int8: keys and values, layers, KV heads, tokens, a row


def test_random_load_with_coded_pages(make_tiny: Callable[..., Path], open_gate: None) -> None:
    # Contexts of several windows, eight coded pages to a frame.
    memory = 60 * 8 * CODED_SLOT
    load = _load(make_tiny(head_dim=32), 3, 300, kv_dtype="int8", kv_memory=memory)
    assert load.engine.memory().pages_per_plain == 8


# A run as long as these has seen everything; a short one may miss what is rare.
SEEN = {"_ask", "_fork", "_truncate", "_drop", "_recompute", "_close", "cancelled", "length"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 5])
def test_random_load_of_ten_thousand_steps(tiny_folder: Path, seed: int) -> None:
    assert set(_load(tiny_folder, seed, steps=10_000).counts) >= SEEN


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 5])
def test_random_load_of_ten_thousand_steps_with_coded_pages(
    make_tiny: Callable[..., Path], open_gate: None, seed: int
) -> None:
    memory = 60 * 8 * CODED_SLOT
    load = _load(make_tiny(head_dim=32), seed, 10_000, kv_dtype="int8", kv_memory=memory)
    assert set(load.counts) >= SEEN
