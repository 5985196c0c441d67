"""Which tokens of which requests run in the next step. Plain Python without tensors."""

from collections import deque
from typing import NamedTuple

from engine.errors import OutOfPages, QueueFull
from engine.kv.cache import KVCache
from engine.request import Request

HEADROOM_PAGES = 2  # of every request, for tokens to come, before another is let in


class Work(NamedTuple):
    """`tokens` pending tokens of one request, the first of them at `session.kv_tokens`."""

    request: Request
    tokens: int

    @property
    def samples(self) -> bool:
        """Whether this reaches the end of the tokens, so that the next one can be chosen."""
        return self.tokens == self.request.session.pending_tokens


class StepBudget:
    """How many tokens a step may hold so that it takes about `target_s`.

    Steered by the last steps' time: it shrinks as contexts grow and attention gets dearer. One step
    that was disturbed from outside halves it at most, and the next ones bring it back.
    """

    LEAST, MOST = 16, 8192

    def __init__(self, target_s: float) -> None:
        self._target_s = target_s
        self._tokens = 64.0  # a first guess that even a slow machine can keep

    @property
    def tokens(self) -> int:
        return int(self._tokens) // 16 * 16

    def record(self, tokens: int, seconds: float) -> None:
        """Learn from a step with prefill.

        Args:
            tokens: rows of the step.
            seconds: what it took.
        """
        if tokens < self.LEAST or seconds <= 0:
            return
        change = min(max(self._target_s / seconds, 0.5), 1.5)
        if change < 1 or tokens >= self._tokens / 2:
            self._tokens = min(max(self._tokens * change, self.LEAST), self.MOST)

    def halve(self) -> None:
        """A step found too little memory."""
        self._tokens = max(self._tokens / 2, self.LEAST)


class Scheduler:
    """First come, first served, with decodes before prefill chunks.

    Every running request that decodes gets its token in every step; prefill chunks fill what is
    left of the token budget, in the order of arrival. When pages run out, idle sessions give theirs
    up first (see `KVCache`); then the newest running request goes back to the queue's head.

    Attributes:
        running, waiting: the requests that have not ended.
        preemptions: how often a running request was sent back to the queue.
    """

    def __init__(
        self, cache: KVCache, max_running: int, max_waiting: int, step_target_s: float
    ) -> None:
        self.cache = cache
        self.budget = StepBudget(step_target_s)
        self.running: list[Request] = []
        self.waiting: deque[Request] = deque()
        self.preemptions = 0
        self._max_running = max_running
        self._max_waiting = max_waiting
        self._hopeless: list[Request] = []

    @property
    def busy(self) -> bool:
        return bool(self.running or self.waiting)

    @property
    def requests(self) -> list[Request]:
        """All that have not ended."""
        return [*self.running, *self.waiting]

    def submit(self, request: Request) -> None:
        """Queue a request.

        Raises:
            QueueFull: too many are waiting.
        """
        if len(self.waiting) >= self._max_waiting:
            raise QueueFull(len(self.waiting))
        self.waiting.append(request)

    def take_hopeless(self) -> list[Request]:
        """Requests that ran out of pages while they had the pool for themselves; they have left."""
        taken, self._hopeless = self._hopeless, []
        return taken

    def put_first(self, request: Request) -> None:
        """Queue a request that has left before all others."""
        self.waiting.appendleft(request)

    def remove(self, request: Request) -> None:
        """Forget a request that has ended, wherever it is."""
        request.session.running = False
        if request in self.running:
            self.running.remove(request)
        elif request in self.waiting:
            self.waiting.remove(request)

    def plan(self) -> list[Work]:
        """The next step's work, with the pages for it reserved. Empty only when nothing can run."""
        self._admit()
        plan = self._plan_batch()
        for work in plan:
            if work.request.scheduled_s is None:
                work.request.mark_scheduled()
                if not work.request.kept_tokens:
                    self.cache.count_lookup(work.request.session)
        return plan

    def _plan_batch(self) -> list[Work]:
        plan: list[Work] = []
        decodes = sum(r.session.pending_tokens == 1 for r in self.running)
        budget = max(self.budget.tokens - decodes, StepBudget.LEAST)  # for prefill
        for request in sorted(
            self.running, key=lambda r: (r.session.pending_tokens > 1, r.arrival)
        ):
            pending = request.session.pending_tokens
            tokens = min(pending, budget) if pending > 1 else 1
            # An earlier reservation may have preempted this one.
            if tokens > 0 and request in self.running:
                tokens = self._reserve(request, tokens)
            if tokens > 0 and request in self.running:
                plan.append(Work(request, tokens))
                budget -= tokens if pending > 1 else 0
        # A later reservation may have preempted one that had its place in the plan already.
        return [work for work in plan if work.request in self.running]

    def _admit(self) -> None:
        """Let waiting requests run, in order, while there are pages for all who run and for them.

        Counted are the tokens that are there and some that are still to come: twice as many for
        every time that the request was preempted, so that two answers that do not fit the pool
        together soon come one after the other.
        """
        while self.waiting and len(self.running) < self._max_running:
            request = self.waiting[0]
            session = request.session
            self.cache.attach(session)
            ahead = HEADROOM_PAGES * self.cache.page_size << request.preemptions
            missing = sum(
                self.cache.missing_slots(
                    r.session, len(r.session.tokens) + min(r.tokens_left, ahead)
                )
                for r in (*self.running, request)
            )
            if self.running and missing > self.cache.obtainable_slots(session):
                return
            self.running.append(self.waiting.popleft())
            session.running = True

    def _reserve(self, request: Request, tokens: int) -> int:
        """Reserve pages for the next `tokens` tokens; preempts the newest until it works.

        With a codec a chunk's pages are in full precision for this step only: before anybody else
        is sent away, the chunk is made smaller.

        Returns:
            How many tokens there is room for; 0 when the request has left.
        """
        session, tried_all = request.session, False
        while True:
            try:
                self.cache.reserve(session, session.kv_tokens + tokens)
                return tokens
            except OutOfPages:
                if self.cache.layout.codec is not None and tokens > self.cache.page_size:
                    tokens = max(tokens // 2, self.cache.page_size)
                    continue
                newest = max(self.running, key=lambda r: r.arrival)
                if self.running == [request]:  # nobody is left to make room
                    if not tried_all:
                        self.cache.make_all_room(session)
                        tried_all = True
                        continue
                    self.remove(request)
                    self._hopeless.append(request)
                    return 0
                self._preempt(newest)
                if newest is request:
                    return 0

    def _preempt(self, request: Request) -> None:
        request.preemptions += 1
        self.preemptions += 1
        self.cache.drop(request.session)
        self.running.remove(request)
        request.session.running = False
        self.waiting.appendleft(request)
