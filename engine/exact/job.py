"""A refresh beside the requests: its pages, its turn, and who waits for it."""

import threading

from engine.errors import ContextTooLong, EngineError, OutOfPages
from engine.exact.pages import FreshPages
from engine.exact.refresh import Refresh
from engine.executor import Executor
from engine.kv.pool import PagePool
from engine.kv.session import Session


class RefreshJob:
    """Computes one session's KV again, in steps (see `engine.jobs.Job`).

    The session keeps its KV until the new one is complete, where there is room for both.

    Attributes:
        session: whose KV it is.
        idle: nobody asked for it: it gives way to everything else.
        tokens: how many are computed.
        cancelled: set with the lock held, seen before the next step.
    """

    def __init__(
        self,
        executor: Executor,
        pool: PagePool,
        pages: FreshPages,
        session: Session,
        idle: bool,
    ) -> None:
        """
        Args:
            executor: computes.
            pool: holds the pages.
            pages: gives them out for this, and knows whose they are.
            session: idle.
            idle: whether nobody waits for it.
        """
        self.session, self.idle = session, idle
        self.tokens = len(session.tokens)
        self.cancelled = False
        self._executor, self._pool = executor, pool
        self._pages, self._cache = pages, pages.cache
        self._shadow = Session(session.owner, tokens=list(session.tokens), shadow=True)
        self._shadow.busy = self._shadow.running = True  # nobody may take its pages
        self._refresh: Refresh | None = None
        self._error: EngineError | None = None
        self._done = threading.Event()

    @property
    def holds_pages(self) -> bool:
        """Whether it holds pages, which come free when it ends. Needs the lock."""
        return bool(self._shadow.pages)

    @property
    def computed(self) -> bool:
        return self._refresh is not None and self._refresh.computed

    @property
    def scratch_bytes(self) -> int:
        """What it holds beside the pool."""
        return self._refresh.scratch_bytes if self._refresh else 0

    def prepare(self, alone: bool) -> bool:
        """Whether a step can run now. Needs the lock.

        Args:
            alone: no request runs, whose pages might come free.

        Raises:
            EngineError: it cannot go on, or never begin; `end` must follow.
        """
        shadow = self._shadow
        if shadow.pages:
            shadow.running = True  # nobody may take its pages during a step
            return True
        if self._refresh is not None:  # it has begun: a request has taken its pages
            self.cancelled = True
            return False
        self._cache.add(shadow)
        try:
            self._pages.reserve(shadow, self.idle)
            return True
        except OutOfPages:
            if self.idle:
                raise
            if self.session.pages:
                self._cache.drop(self.session)  # there is not room for both
                return self.prepare(alone)
            if alone:
                capacity = self._cache.capacity_tokens(self.session.tokens)
                raise ContextTooLong(self.tokens, capacity) from None
        return False

    def step(self, tokens: int) -> int:
        """Go on by about `tokens` tokens; returns how many it was."""
        return self._executor.call(lambda: self._run(tokens))

    def _run(self, tokens: int) -> int:
        if self._refresh is None:
            static = self._shadow.static_tokens
            self._refresh = Refresh(
                self._executor, self._pool, self._shadow.tokens, list(self._shadow.pages), static
            )
        done = self._refresh.run(tokens)
        self._executor.synchronize()
        return done

    def rest(self) -> None:
        """Between steps the pages of an idle job may be taken away. Needs the lock."""
        self._shadow.running = not self.idle

    def end(self, error: EngineError | None = None) -> None:
        """Take the pages over if it came to its end, or give them back. Needs the lock.

        Raises:
            Exception: the books could not be kept; whoever waits has been told.
        """
        session, shadow = self.session, self._shadow
        shadow.busy = shadow.running = False
        if not self.idle:
            session.busy = False
        self._error = error
        try:
            if error is None and self.computed and not self.cancelled:
                if session.kv_tokens:  # otherwise it is computed for the first time
                    session.refreshed_tokens += self.tokens
                self._pages.hand_over(session, shadow)
            else:
                self._cache.close(shadow)
        except Exception as fault:
            self._error = EngineError(f"The refreshed KV could not be taken over: {fault}")
            raise
        finally:
            self._refresh = None
            self._done.set()

    def wait(self) -> None:
        """Until it has ended.

        Raises:
            EngineError: it failed.
        """
        self._done.wait()
        if self._error is not None:
            raise self._error
