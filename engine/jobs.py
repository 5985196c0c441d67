"""Work beside the requests: in which order it gets its turn, and how it ends."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from engine.errors import EngineError, EngineStopped, as_engine_error
from engine.kv.session import Session
from engine.scheduler import Scheduler

log = logging.getLogger(__name__)

IDLE_S = 1.0  # without a request, before a job begins that nobody asked for


class Job(Protocol):
    """Work on one session in steps; `engine.exact.job` says what each of these does."""

    session: Session
    idle: bool
    cancelled: bool

    @property
    def holds_pages(self) -> bool: ...
    @property
    def computed(self) -> bool: ...
    @property
    def scratch_bytes(self) -> int: ...
    def prepare(self, alone: bool) -> bool: ...
    def step(self, tokens: int) -> int: ...
    def rest(self) -> None: ...
    def end(self, error: EngineError | None = None) -> None: ...


class Jobs:
    """A queue of jobs.

    One that somebody waits for takes turns with the requests, whose steps are never longer for it;
    one that nobody asked for waits until there are none. All but `run` needs the engine's lock.

    Attributes:
        queue: jobs that have not ended.
        busy_s: when there was last a request, by `time.perf_counter`.
    """

    def __init__(
        self,
        something_to_do: threading.Condition,
        scheduler: Scheduler,
        idle_job: Callable[[], Job | None],
    ) -> None:
        """
        Args:
            something_to_do: of the engine's lock.
            scheduler: of the requests.
            idle_job: what is to be done while nobody asks for anything, if there is something.
        """
        self._something_to_do = something_to_do
        self._scheduler, self._idle_job = scheduler, idle_job
        self.busy_s = time.perf_counter()
        self.queue: deque[Job] = deque()
        self._next_is_job = False  # beside requests a job gets every second step
        self._looked_s = 0.0  # when there was nothing to do in idle time either
        self._closed = False

    def submit(self, job: Job) -> None:
        """Queue a job that somebody waits for.

        Raises:
            EngineStopped: nothing has changed.
        """
        if self._closed:
            raise EngineStopped
        self.give_way(job.session)
        self.queue.append(job)
        job.session.busy = True
        self._something_to_do.notify()

    def give_way(self, session: Session) -> None:
        """A session is wanted for something else: its idle job ends."""
        for job in self.queue:
            if job.idle and job.session is session:
                job.cancelled = True

    @property
    def scratch_bytes(self) -> int:
        """What jobs hold beside the pool now."""
        return sum(job.scratch_bytes for job in self.queue)

    @property
    def hold_pages(self) -> bool:
        """Whether there are pages that come free when jobs have ended."""
        return any(job.holds_pages for job in self.queue)

    @property
    def pressing(self) -> bool:
        """Whether a job is to have its turn, or its end, before anything else is begun."""
        return any(job.cancelled or not job.idle for job in self.queue)

    def next(self, busy: bool) -> Job | None:
        """The job whose turn it is, ready to run a step.

        Args:
            busy: whether there are requests.
        """
        for job in [job for job in self.queue if job.cancelled]:
            self._end(job)
        if busy:
            self._next_is_job = not self._next_is_job
            if not self._next_is_job:
                return None
        waited_for = [job for job in self.queue if not job.idle]
        following = waited_for or ([] if busy else list(self.queue))
        return following[0] if following and self._is_ready(following[0]) else None

    def wait(self) -> None:
        """Sleep until something is asked for, or until it is time to begin an idle job."""
        if self.queue:  # one of them may be ready now
            return
        left = self.busy_s + IDLE_S - time.perf_counter()
        if self._looked_s > self.busy_s:
            self._something_to_do.wait()
        elif left > 0:
            self._something_to_do.wait(left)
        else:
            job = self._idle_job()
            if job is None:
                self._looked_s = time.perf_counter()  # nothing changes before the next request
            else:
                self.queue.append(job)

    def run(self, job: Job, lock: threading.Lock) -> None:
        """Run a step of a job; the lock is not held meanwhile."""
        started = time.perf_counter()
        error: EngineError | None = None
        budget = self._scheduler.budget
        try:
            tokens = job.step(budget.tokens // (3 if job.idle else 1))
            budget.record(tokens, time.perf_counter() - started)
        except Exception as fault:
            log.exception("a job failed")
            error = as_engine_error(fault)
        with lock:
            job.rest()
            if error is not None or (job.computed and not job.cancelled):
                self._end(job, error)

    def end_all(self, error: EngineError) -> None:
        """End every job, and take no more."""
        self._closed = True
        while self.queue:
            self._end(self.queue[0], error)

    def _is_ready(self, job: Job) -> bool:
        """Whether a job can run a step now; it may have ended instead."""
        try:
            return job.prepare(alone=not self._scheduler.running)
        except EngineError as error:
            if not job.idle:
                log.warning("a job could not begin: %s", error)
            self._end(job, error)
            return False

    def _end(self, job: Job, error: EngineError | None = None) -> None:
        self.queue.remove(job)
        if error is not None and job.idle:
            self._looked_s = time.perf_counter()  # what failed once is not begun again at once
        try:
            job.end(error)
        except Exception:  # whoever waits has been told
            log.exception("ending a job failed")
