"""Driving an engine in the tests: asking, watching its steps, holding it still."""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from engine import Engine, Sampling, Session
from engine.executor import Pending
from engine.kv.pool import PagePool
from engine.step import Ints, Part, Step

MakeEngine = Callable[..., Engine]
TEXT = "The quick brown fox jumps over the lazy dog while the cache keeps every page. "


class Recorder:
    """Notes the work of every step of an engine, and can hold it or have it fail."""

    def __init__(self, engine: Engine) -> None:
        self.steps: list[list[tuple[Session, int]]] = []
        self.fail: Callable[[Session], bool] = lambda _: False
        self.gate: threading.Event | None = None
        self._engine, executor = engine, engine._executor
        self._launch, self._forward = executor.launch, executor.forward
        self._sessions: dict[int, list[Session]] = {}
        executor.launch = self._launching  # type: ignore[method-assign]
        executor.forward = self._computing  # type: ignore[method-assign]

    def _launching(self, step: Step, pool: PagePool) -> Pending:
        by_row = {r.session.pages.row: r.session for r in self._engine._scheduler.running}
        self._sessions[id(step)] = [by_row[row] for row in step.table_rows.tolist()]
        return self._launch(step, pool)

    def _computing(self, step: Step, tokens: Ints, pool: PagePool) -> torch.Tensor:
        if self.gate is not None:
            assert self.gate.wait(30)
        sessions = self._sessions.pop(id(step))
        self.steps.append(list(zip(sessions, np.diff(step.starts).tolist(), strict=True)))
        if any(map(self.fail, sessions)):
            raise RuntimeError("injected fault")
        return self._forward(step, tokens, pool)


def compute(
    engine: Engine, parts: Sequence[tuple[Session, int]], all_logits: bool = True
) -> torch.Tensor:
    """Compute KV for the next tokens of some sessions, of an engine that does nothing else.

    Args:
        engine: idle.
        parts: each a session, whose table covers them, and how many of its pending tokens to take.
        all_logits: logits for every row instead of each session's last.

    Returns:
        [rows or sessions, vocabulary]. `kv_tokens` of the sessions is the caller's to advance.
    """
    for row, (session, _) in enumerate(parts):
        session.pages.take_row(row)
    step = Step.of(
        [Part(s, s.kv_tokens, n, all_logits=True) for s, n in parts], engine._cache.page_size
    )
    logits = engine._executor.launch(step, engine._pool).logits()
    return logits if all_logits else logits[step.starts[1:] - 1]


def compute_in_chunks(engine: Engine, session: Session, sizes: Iterator[int]) -> torch.Tensor:
    """Logits at every pending position, computed in chunks of these sizes."""
    rows = []
    while session.pending_tokens:
        count = min(next(sizes), session.pending_tokens)
        engine._cache.reserve(session, session.kv_tokens + count)
        rows.append(compute(engine, [(session, count)]))
        session.kv_tokens += count
    return torch.cat(rows)


def ask(engine: Engine, session: Session, text: str, **sampling: Any) -> Any:
    first = len(session.tokens) == len(engine.static_tokens)
    closing = [] if first else engine.format.end(session.tokens[-1:])
    new = closing + engine.format.user(text, first)
    return engine.generate(session, new, Sampling(**({"max_tokens": 12} | sampling)))


def alone(make_engine: MakeEngine, text: str, **sampling: Any) -> tuple[int, ...]:
    """The answer that a roomy engine gives to this one request."""
    engine = make_engine()
    engine.set_system("Be brief.")
    return ask(engine, engine.open(), text, **sampling).result().tokens  # type: ignore[no-any-return]
