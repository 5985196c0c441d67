"""The loop: plan a step, have it computed, hand its tokens out, again.

One thread plans and alone advances the KV of sessions with a request; the executor's thread
computes. One lock guards the bookkeeping of pages, sessions and requests; it is not held while a
step is computed. While one step of decodes goes on the next is launched already, where it is
certain what that will be; its tokens are handed out while the next one is computed.
"""

import logging
import threading
import time
from collections.abc import Callable, Set
from contextlib import suppress
from typing import NamedTuple

from engine.errors import ContextTooLong, EngineError, EngineStopped, as_engine_error
from engine.executor import Executor, Pending
from engine.generation import FinishReason
from engine.jobs import Job, Jobs
from engine.kv.books import PageBooks
from engine.kv.pool import PagePool
from engine.kv.session import Session
from engine.request import Request
from engine.retry import Landed, Retry
from engine.sampler import NO_TOKEN
from engine.scheduler import Chunk, Scheduler
from engine.step import Step

log = logging.getLogger(__name__)


class Flight(NamedTuple):
    """A step that was launched."""

    plan: list[Chunk]
    pending: Pending
    started_s: float


class Loop:
    """Runs requests until they end.

    Attributes:
        lock: guards the cache, the scheduler and every session.
        jobs: work beside the requests.
        clock: ticks with each request's share of a step; tells which session was used last.
    """

    def __init__(
        self,
        executor: Executor,
        pool: PagePool,
        scheduler: Scheduler,
        cache: PageBooks,
        *,
        stop_tokens: Set[int],
        bytes_of: Callable[[Session], int],
        idle_job: Callable[[], Job | None],
    ) -> None:
        self.lock = threading.Lock()
        self.clock = 0
        self._executor, self._pool = executor, pool
        self._scheduler = scheduler
        self._cache = cache
        self._retry = Retry(executor, pool, scheduler.budget)
        self._stop_tokens = stop_tokens
        self._bytes_of = bytes_of
        self._stopping = False
        self._something_to_do = threading.Condition(self.lock)
        self.jobs = Jobs(self._something_to_do, scheduler, idle_job)
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Queue a request. Needs the lock.

        Raises:
            EngineStopped, QueueFull: nothing has changed.
        """
        if self._stopping:
            raise EngineStopped
        self._scheduler.submit(request)
        if self.jobs.queue:
            self.jobs.give_way(request.session)
        request.session.busy = True
        self._something_to_do.notify()

    @property
    def is_current_thread(self) -> bool:
        """Whether the caller runs on a thread of the engine (a finaliser may): it must not wait."""
        return threading.current_thread() is self._thread or self._executor.is_current_thread

    def shutdown(self) -> None:
        """End every request with `EngineStopped`, then the threads."""
        with self.lock:
            self._stopping = True
            self._something_to_do.notify()
        self._thread.join()
        self._executor.shutdown()

    # -- the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        flight: Flight | None = None
        try:
            while (turn := self._next_turn()) is not None:
                if not isinstance(turn, list):
                    self.jobs.run(turn, self.lock)
                    continue
                flight = self._launch(turn) if turn else None
                while flight is not None:
                    flight = self._land(flight, self._launch_ahead(flight))
        except BaseException:
            log.exception("the engine's loop ended by a fault of its own")
            raise
        finally:  # nobody is left waiting, and nobody begins to
            with self.lock:
                self._stopping = True
                for request in self._scheduler.requests:
                    self._end(request, EngineStopped())
                self.jobs.end_all(EngineStopped())

    def _next_turn(self) -> list[Chunk] | Job | None:
        """Wait until there is something to do; None when the loop is to stop."""
        with self.lock:
            while not self._stopping:
                busy = self._scheduler.busy
                if self.jobs.queue and (job := self.jobs.next(busy)) is not None:
                    return job
                if busy:
                    self.jobs.busy_s = time.perf_counter()
                    return self._next_plan()
                self.jobs.wait()
            return None

    def _next_plan(self) -> list[Chunk]:
        """The next step of the requests. Needs the lock."""
        for request in self._scheduler.requests:
            if request.cancelled:
                self._end(request, "cancelled")
        try:
            plan = self._scheduler.plan()
        except Exception as error:  # a fault of ours: say so, and go on with new requests
            log.exception("planning a step failed")
            for request in self._scheduler.requests:
                self._end(request, as_engine_error(error))
            return []
        for request in self._scheduler.take_hopeless():
            if self.jobs.hold_pages:
                # A job that has begun keeps its pages until it ends: then there may be room.
                self._scheduler.put_first(request)
                continue
            capacity = self._cache.capacity_tokens(request.session.tokens)
            self._end(request, ContextTooLong(len(request.session.tokens) + 1, capacity))
        return plan

    # -- steps -------------------------------------------------------------------------------

    def _launch(self, plan: list[Chunk]) -> Flight:
        try:
            self._executor.mark_peak()
            step = Step.of([chunk.part for chunk in plan], self._cache.page_size)
            return Flight(plan, self._executor.launch(step, self._pool), time.perf_counter())
        except Exception as error:  # whose fault it is will be found as for any other step
            return Flight(plan, Pending.failed(error), time.perf_counter())

    def _launch_ahead(self, flight: Flight) -> Flight | None:
        """Launch what follows a step while that goes on, if it is certain what that is."""
        with self.lock:
            if self._stopping or (self.jobs.queue and self.jobs.pressing):
                return None
            try:
                plan = self._scheduler.plan_ahead(flight.plan)
            except Exception:  # a fault of ours; what is wrong shows in the next plan again
                log.exception("planning a step ahead failed")
                return None
        return self._launch(plan) if plan else None

    def _land(self, flight: Flight, ahead: Flight | None) -> Flight | None:
        """Wait for a step and hand its tokens out; returns the step that goes on now.

        A request that ends by a step may be part of the next one, which knew nothing of that: then
        it keeps its pages, and ends, when that one has landed.
        """
        try:
            landed = self._wait_for(flight)
        except Exception as error:
            if ahead is not None:  # it goes on from tokens that were never drawn
                with suppress(Exception):
                    ahead.pending.tokens()
                ahead = None
            landed = self._retry.outcomes(flight.plan, error)
        in_use = self._executor.peak_bytes()
        goes_on = {chunk.request for chunk in ahead.plan} if ahead else set()
        for chunk, outcome in landed:
            request = chunk.request
            with self.lock:
                try:
                    if request.outcome is None:
                        self._advance(chunk, outcome, in_use)
                except Exception as error:
                    log.exception("a request failed")
                    request.outcome = as_engine_error(error)
                if request.outcome is not None and request not in goes_on:
                    self._end(request, request.outcome)
        return ahead

    def _wait_for(self, flight: Flight) -> list[Landed]:
        tokens = iter(flight.pending.tokens())
        seconds = time.perf_counter() - flight.started_s
        if any(chunk.tokens > 1 for chunk in flight.plan):
            rows = sum(chunk.tokens for chunk in flight.plan)
            self._scheduler.budget.record(rows, seconds)
        return [(chunk, next(tokens) if chunk.draws else None) for chunk in flight.plan]

    def _advance(self, chunk: Chunk, outcome: int | Exception | None, in_use: int) -> None:
        """Take a step's outcome over: the KV is there, and perhaps a token. Needs the lock."""
        if isinstance(outcome, Exception):
            raise outcome
        if outcome == NO_TOKEN:
            raise ValueError("the logits are not finite")
        request, session = chunk.request, chunk.request.session
        reaches_end = chunk.tokens == session.pending_tokens
        if reaches_end:
            request.note_token()
        if outcome is not None and not request.cancelled:
            session.tokens.append(outcome)
            request.answer.append(outcome)
            request.generation.push(request.text.push(outcome))
            if outcome in self._stop_tokens or request.text.stopped:
                request.outcome = "stop"
        self._cache.advance(session, chunk.tokens)  # and code pages, while others read the token
        self.clock += 1
        session.last_used = self.clock
        request.note_progress()
        request.note_memory(in_use)
        if request.outcome is None and request.cancelled:
            request.outcome = "cancelled"
        if request.outcome is None and reaches_end and request.tokens_left <= 0:
            request.outcome = "length"

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
                after = self._executor.allocated_bytes()
                held = self._bytes_of(request.session)
                request.generation.finish(request.result(outcome, held, after))
                return
        except Exception as error:
            log.exception("ending a request failed")
            outcome = as_engine_error(error)
        request.generation.fail(outcome)
