"""Pageturn's own engine, in a process like the others."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.answering import answer
from benchmarks.peers.protocol import Run, serve


class Pageturn:
    """The engine by its public interface; for logits, its executor on a loaded model.

    Options are those of `EngineConfig`. What is not needed is not loaded: an engine with the first
    run, a bare model with the first logits.
    """

    def __init__(self, model: Path, threads: int, options: dict[str, Any]) -> None:
        import torch

        from engine import EngineConfig

        torch.set_num_threads(threads)
        # Every prompt is new: without prefix caching, as for the others.
        self._config = EngineConfig(str(model), prefix_cache=False, **options)
        self._engine: Any = None
        self._loaded: Any = None
        self.about: dict[str, Any] = {}

    def choose(self, prompts: Sequence[Sequence[int]], new_tokens: int) -> dict[str, Any]:
        self.run(prompts, new_tokens)
        return {"backend": self._engine.backend}

    def run(self, prompts: Sequence[Sequence[int]], new_tokens: int) -> Run:
        from engine import Engine

        if self._engine is None:
            self._engine = Engine(self._config)
        (prompt,) = prompts
        session = self._engine.open()
        given = answer(self._engine, session, prompt, new_tokens)
        self._engine.close(session, forget=True)
        return Run([list(given.tokens)], given.steps)

    def logits(self, tokens: Sequence[int], chunk: int) -> Any:
        import torch

        from engine import Session
        from engine.loading import load
        from engine.step import Part, Step

        if self._loaded is None:
            self._loaded = load(self._config, lambda _: None)
        executor, pool = self._loaded.executor, self._loaded.pool
        # The pool has no other user, so the session may say itself which pages are its own.
        session = Session(owner=None, tokens=list(tokens))
        session.pages.extend(range(pool.layout.pages(len(tokens))))
        session.pages.take_row(0)
        rows = []
        while session.pending_tokens:
            count = min(chunk, session.pending_tokens)
            part = Part(session, session.kv_tokens, count, all_logits=True)
            step = Step.of([part], pool.page_size)
            rows.append(executor.launch(step, pool).logits().float())
            session.kv_tokens += count
        return torch.cat(rows).numpy()


if __name__ == "__main__":
    serve(Pageturn)
