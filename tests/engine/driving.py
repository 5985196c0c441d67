"""Driving an engine in the tests: asking, watching its steps, holding it still."""

import threading
from collections.abc import Callable
from typing import Any

import torch

from engine import Engine, Sampling, Session

MakeEngine = Callable[..., Engine]
TEXT = "The quick brown fox jumps over the lazy dog while the cache keeps every page. "


class Recorder:
    """Notes the work of every step of an engine, and can be told to fail."""

    def __init__(self, engine: Engine) -> None:
        self.steps: list[list[tuple[Session, int]]] = []
        self.fail: Callable[[Session], bool] = lambda _: False
        self.gate: threading.Event | None = None
        self._run = engine._runner.run
        engine._runner.run = self  # type: ignore[method-assign,assignment]

    def __call__(self, parts: list[tuple[Session, int]]) -> torch.Tensor:
        if self.gate is not None:
            assert self.gate.wait(30)
        self.steps.append(list(parts))
        if any(self.fail(session) for session, _ in parts):
            raise RuntimeError("injected fault")
        return self._run(parts)


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
