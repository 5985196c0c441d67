"""The loop: plan a step, compute it, hand its tokens out, again.

One thread runs the model and alone touches the KV of sessions with a request. One lock guards the
bookkeeping of pages, sessions and requests; it is not held while the model computes.
"""

import logging
import threading
import time
from collections.abc import Set

import torch

from engine.device import device_bytes
from engine.errors import ContextTooLong, EngineError, EngineStopped, StepFailed
from engine.generation import FinishReason
from engine.kv.cache import KVCache
from engine.request import EXACT_TOKENS, Request
from engine.runner import Runner
from engine.scheduler import Scheduler, Work

log = logging.getLogger(__name__)


class Loop:
    """Runs requests until they end.

    Attributes:
        lock: guards the cache, the scheduler and every session.
        clock: ticks with each request's share of a step; tells which session was used last.
    """

    def __init__(
        self,
        runner: Runner,
        scheduler: Scheduler,
        cache: KVCache,
        *,
        stop_tokens: Set[int],
        device: torch.device,
        page_bytes: int,
        torch_threads: int,
    ) -> None:
        self.lock = threading.Lock()
        self.clock = 0
        self._runner = runner
        self._scheduler = scheduler
        self._cache = cache
        self._stop_tokens = stop_tokens
        self._device = device
        self._page_bytes = page_bytes
        self._stopping = False
        self._something_to_do = threading.Condition(self.lock)
        # The exact mode is exact for one number of threads: the loop keeps the one it starts with.
        self._threads = torch_threads
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        others = torch.get_num_threads()
        self._thread.start()
        # The last call decides for threads to come: theirs is not the loop's number.
        self._ready.wait()
        torch.set_num_threads(others)

    def submit(self, request: Request) -> None:
        """Queue a request. Needs the lock.

        Raises:
            EngineStopped, QueueFull: nothing has changed.
        """
        if self._stopping:
            raise EngineStopped
        self._scheduler.submit(request)
        request.session.busy = True
        self._something_to_do.notify()

    @property
    def is_current_thread(self) -> bool:
        """Whether the caller runs on the loop's own thread (a finaliser may), and must not wait."""
        return threading.current_thread() is self._thread

    def shutdown(self) -> None:
        """End every request with `EngineStopped`, then the thread."""
        with self.lock:
            self._stopping = True
            self._something_to_do.notify()
        self._thread.join()

    # -- the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            try:
                torch.set_num_threads(self._threads)
            finally:
                self._ready.set()
            while (plan := self._next_plan()) is not None:
                if plan:
                    self._step(plan)
        except BaseException:
            log.exception("the engine's loop ended by a fault of its own")
            raise
        finally:  # nobody is left waiting, and nobody begins to
            with self.lock:
                self._stopping = True
                for request in self._scheduler.requests:
                    self._end(request, EngineStopped())

    def _next_plan(self) -> list[Work] | None:
        """Wait until there is something to do, and plan it; None when the loop is to stop."""
        with self.lock:
            while not self._scheduler.busy and not self._stopping:
                self._something_to_do.wait()
            if self._stopping:
                return None
            for request in self._scheduler.requests:
                if request.cancelled:
                    self._end(request, "cancelled")
            try:
                plan = self._scheduler.plan()
            except Exception as error:  # a fault of ours: say so, and go on with new requests
                log.exception("planning a step failed")
                for request in self._scheduler.requests:
                    self._end(request, _as_engine_error(error))
                return []
            for request in self._scheduler.take_hopeless():
                capacity = self._cache.capacity_tokens(request.session.tokens)
                self._end(request, ContextTooLong(request.padded_tokens + 1, capacity))
            return plan

    def _step(self, plan: list[Work]) -> None:
        started = time.perf_counter()
        for work, outcome in self._compute(plan):
            try:
                if isinstance(outcome, Exception):
                    raise outcome
                self._advance(work, outcome)
            except Exception as error:
                log.exception("a request failed")
                with self.lock:
                    self._end(work.request, _as_engine_error(error))
        if self._device.type == "cuda":  # a step that samples nothing has waited for nothing yet
            torch.cuda.synchronize(self._device)
        if any(work.tokens > 1 for work in plan):
            exact = plan[0].request.exact
            rows = EXACT_TOKENS if exact else sum(work.tokens for work in plan)
            self._scheduler.budget.record(rows, time.perf_counter() - started)

    def _compute(self, plan: list[Work]) -> list[tuple[Work, torch.Tensor | Exception]]:
        """Logits for each piece of work; when the batch fails, each runs alone to find whose fault.

        Running work again is harmless: it writes the same keys and values to the same places.
        """
        try:
            if plan[0].request.exact:
                return [(plan[0], self._runner.run_exact(plan[0].request.session, plan[0].tokens))]
            logits = self._runner.run([(w.request.session, w.tokens) for w in plan])
            return list(zip(plan, logits.unbind(0), strict=True))
        except Exception as error:
            if len(plan) == 1:
                return [(plan[0], error)]
            return [outcome for work in plan for outcome in self._compute([work])]

    def _advance(self, work: Work, logits: torch.Tensor) -> None:
        """Take a step's outcome over: the KV is there, and perhaps a token is chosen."""
        request, session = work.request, work.request.session
        samples = work.samples
        token = None
        if samples and request.max_tokens and not request.cancelled:
            token = request.sampler.choose(logits, request.answer)
        reason: FinishReason | None = None
        with self.lock:
            self._cache.advance(session, work.tokens)
            self.clock += 1
            session.last_used = self.clock
            request.note_progress()
            request.note_memory(device_bytes(self._device))
            if samples:
                request.note_first_token()
            if token is not None:
                session.tokens.append(token)
                request.answer.append(token)
                request.generation.push(request.text.push(token))
                if token in self._stop_tokens or request.text.stopped:
                    reason = "stop"
            if reason is None and samples and len(request.answer) >= request.max_tokens:
                reason = "length"
            if reason is not None:
                self._end(request, reason)

    def _end(self, request: Request, outcome: FinishReason | EngineError) -> None:
        """End a request; its session is idle again, with what it has. Needs the lock.

        Whatever goes wrong in here, whoever waits for the request is told.
        """
        try:
            self._scheduler.remove(request)
            self._cache.trim(request.session)
            request.session.busy = False
            if not isinstance(outcome, EngineError):
                request.generation.push(request.text.flush())
                after = device_bytes(self._device)
                request.generation.finish(request.result(outcome, self._page_bytes, after))
                return
        except Exception as error:
            log.exception("ending a request failed")
            outcome = _as_engine_error(error)
        request.generation.fail(outcome)


def _as_engine_error(error: Exception) -> EngineError:
    if isinstance(error, EngineError):
        return error
    failed = StepFailed(
        f"The engine could not compute this answer ({type(error).__name__}: {error}). "
        "Other conversations are not affected; ask again."
    )
    failed.__cause__ = error
    return failed
