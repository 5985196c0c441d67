"""The loop: plan a step, compute it, hand its tokens out, again.

One thread runs the model and alone touches the KV of sessions with a request. One lock guards the
bookkeeping of pages, sessions and requests; it is not held while the model computes.
"""

import logging
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Set

import torch

from engine.device import device_bytes, free_caches, is_out_of_memory, synchronize
from engine.errors import ContextTooLong, EngineError, EngineStopped, OutOfPages, StepFailed
from engine.generation import FinishReason
from engine.kv.cache import KVCache
from engine.kv.session import Session
from engine.refresh import Refresh
from engine.request import Request
from engine.runner import Runner
from engine.scheduler import Scheduler, Work

log = logging.getLogger(__name__)

IDLE_S = 1.0  # without a request, before KV is refreshed that nobody asked for


class Loop:
    """Runs requests until they end.

    Attributes:
        lock: guards the cache, the scheduler and every session.
        clock: ticks with each request's share of a step; tells which session was used last.
        refreshed_tokens: computed again exactly since the start.
    """

    def __init__(
        self,
        runner: Runner,
        scheduler: Scheduler,
        cache: KVCache,
        *,
        stop_tokens: Set[int],
        device: torch.device,
        torch_threads: int,
        idle_refresh: Callable[[], Refresh | None],
    ) -> None:
        self.lock = threading.Lock()
        self.clock = self.refreshed_tokens = 0
        self._runner = runner
        self._scheduler = scheduler
        self._cache = cache
        self._stop_tokens = stop_tokens
        self._device = device
        self._stopping = False
        self._idle_refresh = idle_refresh
        self._refreshes: deque[Refresh] = deque()
        self._refresh_next = False  # of steps beside requests, every second one
        self._busy_s = time.perf_counter()  # when something was last asked for
        self._looked_idle = False
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
        self.give_way(request.session)
        request.session.busy = True
        self._something_to_do.notify()

    def submit_refresh(self, refresh: Refresh) -> None:
        """Queue a refresh that somebody waits for. Needs the lock.

        Raises:
            EngineStopped: nothing has changed.
        """
        if self._stopping:
            raise EngineStopped
        self.give_way(refresh.session)
        self._refreshes.append(refresh)
        refresh.session.busy = True
        self._something_to_do.notify()

    def give_way(self, session: Session) -> None:
        """A session is wanted for something else: its idle refresh ends. Needs the lock."""
        for refresh in self._refreshes:
            if refresh.idle and refresh.session is session:
                refresh.cancelled = True

    @property
    def scratch_bytes(self) -> int:
        """What a refresh holds beside the pool now. Needs the lock."""
        return sum(refresh.scratch_bytes for refresh in self._refreshes)

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
            while (turn := self._next_turn()) is not None:
                if isinstance(turn, Refresh):
                    self._refresh_step(turn)
                elif turn:
                    self._step(turn)
        except BaseException:
            log.exception("the engine's loop ended by a fault of its own")
            raise
        finally:  # nobody is left waiting, and nobody begins to
            with self.lock:
                self._stopping = True
                for request in self._scheduler.requests:
                    self._end(request, EngineStopped())
                while self._refreshes:
                    self._end_refresh(self._refreshes[0], EngineStopped())

    def _next_turn(self) -> list[Work] | Refresh | None:
        """Wait until there is something to do; None when the loop is to stop.

        A refresh that somebody waits for takes turns with the requests, whose steps are never
        longer for it; one that nobody asked for waits until there are none.
        """
        with self.lock:
            while not self._stopping:
                for refresh in [r for r in self._refreshes if r.cancelled]:
                    self._end_refresh(refresh)
                asked = next((r for r in self._refreshes if not r.idle), None)
                if self._scheduler.busy:
                    self._busy_s, self._looked_idle = time.perf_counter(), False
                    self._refresh_next = not self._refresh_next
                    if asked is None or not self._refresh_next or not self._prepared(asked):
                        return self._next_plan()
                    return asked
                following = asked or next(iter(self._refreshes), None)
                if following is None:
                    self._wait()
                elif self._prepared(following):
                    return following
            return None

    def _wait(self) -> None:
        """Sleep until something is asked for, or until it is time to refresh what was not."""
        left = self._busy_s + IDLE_S - time.perf_counter()
        if self._looked_idle:
            self._something_to_do.wait()
        elif left > 0:
            self._something_to_do.wait(left)
        else:
            refresh = self._idle_refresh()
            if refresh is None:
                self._looked_idle = True  # and nothing changes that before the next request
            else:
                self._refreshes.append(refresh)

    def _next_plan(self) -> list[Work]:
        """The next step of the requests. Needs the lock."""
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
            if any(refresh.shadow.pages for refresh in self._refreshes):
                # A refresh that has begun keeps its pages until it ends: then there may be room.
                self._scheduler.put_first(request)
                continue
            capacity = self._cache.capacity_tokens(request.session.tokens)
            self._end(request, ContextTooLong(len(request.session.tokens) + 1, capacity))
        return plan

    def _step(self, plan: list[Work]) -> None:
        started = time.perf_counter()
        logits = self._compute(plan)
        failed = isinstance(logits, Exception)
        for work, outcome in self._outcomes(plan, logits):
            try:
                if isinstance(outcome, Exception):
                    raise outcome
                self._advance(work, outcome)
            except Exception as error:
                log.exception("a request failed")
                with self.lock:
                    self._end(work.request, _as_engine_error(error))
        # What was computed twice says nothing of how long a step takes.
        if not failed and any(work.tokens > 1 for work in plan):
            rows = sum(work.tokens for work in plan)
            self._scheduler.budget.record(rows, time.perf_counter() - started)

    def _compute(self, plan: list[Work]) -> torch.Tensor | Exception:
        """Logits of a step, [work, vocabulary], or why there are none.

        The failed frames let go of their tensors, so that whatever is tried next finds their memory
        free.
        """
        try:
            logits = self._runner.run([(work.request.session, work.tokens) for work in plan])
            synchronize(self._device)
            return logits
        except Exception as error:
            fault: BaseException | None = error
            while fault is not None:
                traceback.clear_frames(fault.__traceback__)
                fault = fault.__cause__ or fault.__context__
            return error

    def _outcomes(
        self, plan: list[Work], logits: torch.Tensor | Exception
    ) -> list[tuple[Work, torch.Tensor | Exception]]:
        """Logits for each piece of work.

        When a batch fails, each piece runs alone to find whose fault it was; when memory is short,
        pieces are halved until they fit. Running work again is harmless: it writes the same keys
        and values to the same places.
        """
        if not isinstance(logits, Exception):
            return list(zip(plan, logits.unbind(0), strict=True))
        short = is_out_of_memory(logits)
        if short:
            log.warning("memory ran out in a step of %d rows", sum(work.tokens for work in plan))
            free_caches(self._device)
            self._scheduler.budget.halve()
        if len(plan) > 1:
            return [outcome for work in plan for outcome in self._alone(work)]
        [work] = plan
        if short and work.tokens > 1:
            return self._alone(work._replace(tokens=work.tokens // 2))
        return [(work, logits)]

    def _alone(self, work: Work) -> list[tuple[Work, torch.Tensor | Exception]]:
        return self._outcomes([work], self._compute([work]))

    def _advance(self, work: Work, logits: torch.Tensor) -> None:
        """Take a step's outcome over: the KV is there, and perhaps a token is chosen."""
        request, session = work.request, work.request.session
        samples = work.samples
        token = None
        if samples and request.max_tokens and not request.cancelled:
            token = request.sampler.choose(logits, request.answer)
        reason: FinishReason | None = None
        with self.lock:
            if samples:
                request.note_first_token()
            if token is not None:
                session.tokens.append(token)
                request.answer.append(token)
                request.generation.push(request.text.push(token))
                if token in self._stop_tokens or request.text.stopped:
                    reason = "stop"
            self._cache.advance(session, work.tokens)  # and code pages, while others read the token
            self.clock += 1
            session.last_used = self.clock
            request.note_progress()
            request.note_memory(device_bytes(self._device))
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
                held = self._cache.bytes(request.session)
                request.generation.finish(request.result(outcome, held, after))
                return
        except Exception as error:
            log.exception("ending a request failed")
            outcome = _as_engine_error(error)
        request.generation.fail(outcome)

    # -- refreshes ---------------------------------------------------------------------------

    def _prepared(self, refresh: Refresh) -> bool:
        """Whether a refresh has its pages; if not, it has ended or waits. Needs the lock."""
        shadow, session = refresh.shadow, refresh.session
        if shadow.pages:
            shadow.running = True  # nobody may take its pages during a step
            return True
        if refresh.scratch_bytes:  # it has begun: a request has taken its pages
            self._end_refresh(refresh)
            return False
        self._cache.add(shadow)
        try:
            self._cache.reserve_exact(shadow, at_all_costs=not refresh.idle)
            return True
        except OutOfPages as full:
            if refresh.idle:
                self._looked_idle = True
                self._end_refresh(refresh)
            elif session.pages:
                self._cache.drop(session)  # there is not room for both
                return self._prepared(refresh)
            elif not self._scheduler.running:
                capacity = self._cache.capacity_tokens(session.tokens)
                log.warning("no pages for a refresh: %s", full)
                self._end_refresh(refresh, ContextTooLong(refresh.tokens, capacity))
        return False

    def _refresh_step(self, refresh: Refresh) -> None:
        started = time.perf_counter()
        error: EngineError | None = None
        tokens = 0
        try:
            tokens = refresh.step(self._scheduler.budget.tokens // (3 if refresh.idle else 1))
            synchronize(self._device)
        except Exception as fault:
            log.exception("a refresh failed")
            error = _as_engine_error(fault)
            self._looked_idle = True  # what failed once is not begun again at once
        self._scheduler.budget.record(tokens, time.perf_counter() - started)
        with self.lock:
            refresh.shadow.running = not refresh.idle
            if error is not None or (refresh.computed and not refresh.cancelled):
                self._end_refresh(refresh, error)

    def _end_refresh(self, refresh: Refresh, error: EngineError | None = None) -> None:
        """Take a refresh's pages over if it came to its end, or give them back. Needs the lock."""
        self._refreshes.remove(refresh)
        session, shadow = refresh.session, refresh.shadow
        shadow.busy = shadow.running = False
        if not refresh.idle:
            session.busy = False
        try:
            if error is None and refresh.computed and not refresh.cancelled:
                self._cache.advance(shadow, shadow.pending_tokens, exact=True)
                if session.kv_tokens:  # otherwise it is computed for the first time
                    session.refreshed_tokens += refresh.tokens
                    self.refreshed_tokens += refresh.tokens
                self._cache.replace(session, shadow)
            else:
                self._cache.close(shadow)
        except Exception as fault:  # whatever goes wrong in here, whoever waits is told
            log.exception("ending a refresh failed")
            error = _as_engine_error(fault)
        refresh.end(error)


def _as_engine_error(error: Exception) -> EngineError:
    if isinstance(error, EngineError):
        return error
    failed = StepFailed(
        f"The engine could not compute this answer ({type(error).__name__}: {error}). "
        "Other conversations are not affected; ask again."
    )
    failed.__cause__ = error
    return failed
