"""Which tokens of which requests run in the next step. Plain Python without tensors."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from engine.errors import OutOfPages, QueueFull
from engine.kv.books import PageBooks
from engine.request import Request
from engine.step import KNOWN, Part

HEADROOM_PAGES = 2  # of every request, for tokens to come, before another is let in


class Chunk(NamedTuple):
    """Tokens of one request that run in one step."""

    request: Request
    part: Part

    @property
    def tokens(self) -> int:
        return self.part.rows

    @property
    def draws(self) -> bool:
        """Whether the request gets a token by it."""
        return self.part.draw is not None


class StepBudget:
    """How many tokens a step may hold so that it takes about `target_s`.

    Steered by the last steps' time: it shrinks as contexts grow and attention gets dearer. One step
    that was disturbed from outside halves it at most, and the next ones bring it back.
    """

    LEAST = 16

    def __init__(self, target_s: float, most: int = 8192) -> None:
        """
        Args:
            target_s: what a step should take.
            most: tokens that a step may hold, however quick it is: there is workspace for so many.
        """
        self._target_s, self._most = target_s, most
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
            self._tokens = min(max(self._tokens * change, self.LEAST), self._most)

    def halve(self) -> None:
        """A step found too little memory."""
        self._tokens = max(self._tokens / 2, self.LEAST)


class Scheduler:
    """First come, first served, with decodes before prefill chunks.

    Every running request that decodes gets its token in every step; prefill chunks fill what is
    left of the token budget, in the order of arrival. When pages run out, idle sessions give theirs
    up first (see `PageBooks`); then the newest running request goes back to the queue's head.

    Attributes:
        running, waiting: the requests that have not ended.
        preemptions: how often a running request was sent back to the queue.
    """

    def __init__(
        self, cache: PageBooks, budget: StepBudget, max_running: int, max_waiting: int
    ) -> None:
        self.cache, self.budget = cache, budget
        self.running: list[Request] = []
        self.waiting: deque[Request] = deque()
        self.preemptions = 0
        self._max_waiting = max_waiting
        self._free_rows = list(range(max_running - 1, -1, -1))  # of the page table
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
        if request in self.running:
            self._leave(request)
        elif request in self.waiting:
            self.waiting.remove(request)

    # -- plans -------------------------------------------------------------------------------

    def plan(self) -> list[Chunk]:
        """The next step, with the pages for it reserved. Empty only when nothing can run."""
        self._admit()
        plan = self._plan_batch()
        for chunk in plan:
            if chunk.request.scheduled_s is None:
                chunk.request.mark_scheduled()
                if not chunk.request.kept_tokens:
                    self.cache.count_lookup(chunk.request.session)
        return plan

    def plan_ahead(self, plan: Sequence[Chunk]) -> list[Chunk]:
        """The step after one that still goes on, as far as it is certain already.

        It continues the requests that get a token by that step, whichever it is. There is none
        where there is more to decide than that: a prompt to compute, a request to let in or to end,
        a page to find by sending somebody away.

        Args:
            plan: the step that goes on.
        """
        let_in = self.waiting and self._free_rows
        if let_in or any(request.cancelled for request in self.requests):
            return []
        if len(plan) != len(self.running) or not all(chunk.draws for chunk in plan):
            return []
        if not all(self.cache.may_run_ahead(c.request.session, c.tokens) for c in plan):
            return []
        ahead = [
            (source, request)
            for source, (request, _) in enumerate(plan)
            if request.outcome is None and request.tokens_left > 1
        ]
        try:
            for _, request in ahead:
                self.cache.reserve(request.session, len(request.session.tokens) + 1)
        except OutOfPages:
            return []
        # The token that is being drawn will stand where the session's tokens end now.
        parts = (
            Part(request.session, len(request.session.tokens), 1, request.draw(ahead=1), source)
            for source, request in ahead
        )
        return [Chunk(request, part) for (_, request), part in zip(ahead, parts, strict=True)]

    def _plan_batch(self) -> list[Chunk]:
        plan: list[Chunk] = []
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
                plan.append(Chunk(request, self._part(request, tokens)))
                budget -= tokens if pending > 1 else 0
        # A later reservation may have preempted one that had its place in the plan already.
        return [chunk for chunk in plan if chunk.request in self.running]

    @staticmethod
    def _part(request: Request, tokens: int) -> Part:
        session = request.session
        last = tokens == session.pending_tokens and request.tokens_left > 0
        return Part(session, session.kv_tokens, tokens, request.draw() if last else None, KNOWN)

    def _admit(self) -> None:
        """Let waiting requests run, in order, while there are pages for all who run and for them.

        Counted are the tokens that are there and some that are still to come: twice as many for
        every time that the request was preempted, so that two answers that do not fit the pool
        together soon come one after the other.
        """
        while self.waiting and self._free_rows:
            request = self.waiting[0]
            session = request.session
            self.cache.attach(session)
            ahead = HEADROOM_PAGES * self.cache.page_size << request.preemptions
            missing = sum(
                self.cache.missing(r.session, len(r.session.tokens) + min(r.tokens_left, ahead))
                for r in (*self.running, request)
            )
            if self.running and missing > self.cache.obtainable(session):
                return
            self.running.append(self.waiting.popleft())
            session.running = True
            session.pages.take_row(self._free_rows.pop())

    def _reserve(self, request: Request, tokens: int) -> int:
        """Reserve pages for the next `tokens` tokens; preempts the newest until it works.

        Returns:
            How many tokens there is room for; 0 when the request has left.
        """
        while True:
            alone = self.running == [request]
            try:
                return self.cache.reserve_chunk(request.session, tokens, alone)
            except OutOfPages:
                if alone:  # nobody is left to make room
                    self._leave(request)
                    self._hopeless.append(request)
                    return 0
                newest = max(self.running, key=lambda r: r.arrival)
                self._preempt(newest)
                if newest is request:
                    return 0

    def _preempt(self, request: Request) -> None:
        request.preemptions += 1
        self.preemptions += 1
        self.cache.drop(request.session)
        self._leave(request)
        self.waiting.appendleft(request)

    def _leave(self, request: Request) -> None:
        """The request runs no longer."""
        session = request.session
        self.running.remove(request)
        session.running = False
        assert session.pages.row is not None
        self._free_rows.append(session.pages.row)
        session.pages.take_row(None)
