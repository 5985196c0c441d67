"""What to do when a step fails: find whose fault it is, and make it smaller where memory is short.

Running rows again is harmless: it writes the same keys and values to the same places.
"""

import logging
import traceback
from collections.abc import Sequence

from engine.executor import Executor
from engine.kv.pool import PagePool
from engine.memory import is_out_of_memory
from engine.scheduler import Chunk, StepBudget
from engine.step import KNOWN, Step

log = logging.getLogger(__name__)

Landed = tuple[Chunk, int | Exception | None]
"""A chunk with the token that it drew, nothing where it draws none, or what went wrong with it."""


class Retry:
    """Runs the chunks of failed steps again, each alone."""

    def __init__(self, executor: Executor, pool: PagePool, budget: StepBudget) -> None:
        self._executor, self._pool, self._budget = executor, pool, budget

    def outcomes(self, plan: Sequence[Chunk], error: Exception) -> list[Landed]:
        """What each chunk of a failed step came to, computed alone.

        Where memory ran out, chunks are halved until they fit: then a part of them has landed.
        """
        _let_go(error)
        for chunk in plan:  # nobody knows how far it came
            chunk.request.session.pages.forget_told()
        short = is_out_of_memory(error)
        if short:
            log.warning("memory ran out in a step of %d rows", sum(chunk.tokens for chunk in plan))
            self._executor.free_caches()
            self._budget.halve()
        if len(plan) > 1:
            return [self._alone(chunk) for chunk in plan]
        [chunk] = plan
        if short and chunk.tokens > 1:
            half = chunk.part._replace(rows=chunk.tokens // 2, draw=None)
            return [self._alone(chunk._replace(part=half))]
        return [(chunk, error)]

    def _alone(self, chunk: Chunk) -> Landed:
        # By now everything that the chunk goes on from is known, a token to be penalised too.
        draw = chunk.request.draw() if chunk.draws else None
        chunk = chunk._replace(part=chunk.part._replace(source=KNOWN, draw=draw))
        try:
            step = Step.of([chunk.part], self._pool.page_size)
            tokens = self._executor.launch(step, self._pool).tokens()
            return chunk, tokens[0] if chunk.draws else None
        except Exception as error:
            (landed,) = self.outcomes([chunk], error)
            return landed


def _let_go(error: BaseException) -> None:
    """Let the failed frames go of their tensors: what is tried next finds their memory free."""
    fault: BaseException | None = error
    while fault is not None:
        traceback.clear_frames(fault.__traceback__)
        fault = fault.__cause__ or fault.__context__
