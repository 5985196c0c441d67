"""The engine: sessions in, answers out.

Callers' threads open, fork and close sessions and submit requests; the loop's thread runs the model
(see `Loop`). This file is what others call.
"""

from collections.abc import Callable, Sequence

from engine.answer_text import AnswerText
from engine.books import make_books
from engine.config import EngineConfig
from engine.errors import (
    ContextTooLong,
    EmptyMessage,
    EngineError,
    SessionBusy,
    SessionClosed,
    UnknownToken,
)
from engine.exact.job import RefreshJob
from engine.generation import Generation
from engine.kv.census import Census, PageKind
from engine.kv.check import check_cache
from engine.kv.prefix import PrefixStats
from engine.kv.session import Session
from engine.loading import load
from engine.loop import Loop
from engine.memory_report import memory_report
from engine.request import Request
from engine.sampling import Sampling
from engine.scheduler import Scheduler, StepBudget
from engine.stats import MemoryReport, SessionInfo


class Engine:
    """Runs one model for many sessions.

    Attributes:
        config: as given.
        model_name: the model's name without folder or ending.
        backend: what computes, for people: `native (avx512bf16)`, `PyTorch (reason)`.
        notices: what is not as it was asked for, for people: a codec that the gate refused.
        format: the chat template's fragments.
        static_tokens: the static system prompt that new sessions start with.
    """

    def __init__(
        self, config: EngineConfig, *, on_progress: Callable[[str], None] | None = None
    ) -> None:
        """Load the model, allocate the pool, start the loop.

        Args:
            config: see `EngineConfig`.
            on_progress: told of the stages of loading, in a few words each.

        Raises:
            EngineError: a subclass says what cannot be used and what to do.
        """
        loaded = load(config, on_progress or (lambda _: None))
        self.config = config
        self.model_name = loaded.name
        self.backend, self.notices = loaded.backend, loaded.notices
        self.format = loaded.format
        self.static_tokens: tuple[int, ...] = ()
        self._tokenizer = loaded.tokenizer
        self._executor, self._pool = loaded.executor, loaded.pool
        salt = (loaded.name, self.dtype, self.kv_dtype)
        self._fresh_pages = make_books(loaded.pool, salt, config.prefix_cache)
        self._cache = self._fresh_pages.cache
        self._census = Census(self._cache)
        budget = StepBudget(config.step_target_s, loaded.step_tokens)
        self._scheduler = Scheduler(self._cache, budget, config.max_sessions, config.max_waiting)
        self._loop = Loop(
            self._executor,
            self._pool,
            self._scheduler,
            self._cache,
            stop_tokens=self.format.stop_tokens,
            bytes_of=self._census.bytes,
            idle_job=self._idle_refresh,
        )
        self._lock = self._loop.lock

    # -- what it is --------------------------------------------------------------------------

    @property
    def context_tokens(self) -> int:
        """Tokens that a conversation can hold: the model's context, or less in a small pool."""
        with self._lock:
            return self._limit(self._cache.static.tokens)

    @property
    def parameters(self) -> int:
        """How large the model is, in weights."""
        return self._executor.config.parameters

    @property
    def device_kind(self) -> str:
        """Where the model runs: `cpu` or `cuda`."""
        return self._executor.device.type

    @property
    def dtype(self) -> str:
        """Name of the dtype of weights, KV and arithmetic."""
        return str(self._executor.dtype).removeprefix("torch.")

    @property
    def kv_dtype(self) -> str:
        """What pages before the recent window hold: a codec's name, or a dtype's."""
        return self._pool.layout.name

    # -- conversations -----------------------------------------------------------------------

    def set_system(self, text: str) -> None:
        """Compute the static system prompt's KV and pin it; later sessions are forks of it.

        Sessions opened before keep theirs. Blocks until it is computed.

        Raises:
            ContextTooLong: it leaves no room for a question.
        """
        before = self.format.system_text
        static = Session(owner=None, tokens=self.format.system(text))
        try:
            if len(static.tokens) >= self.context_tokens:
                raise ContextTooLong(len(static.tokens) + 1, self.context_tokens)
            with self._lock:
                self._cache.add(static)
            while not self._pin(static):  # others may take an idle session's pages in between
                self.recompute(static)
        except EngineError:
            self.format.system(before)
            self.close(static)
            raise

    def _pin(self, static: Session) -> bool:
        with self._lock:
            if static.pending_tokens:
                return False
            self._cache.pin_static(static)
            self.static_tokens = tuple(static.tokens)
            return True

    def open(self, tokens: Sequence[int] = (), owner: str = "local") -> Session:
        """Begin a session.

        Args:
            tokens: a stored session's tokens, the static part included; empty begins a new
                conversation with the static prompt. KV that the static prompt holds is shared, the
                rest is computed with the next request.
            owner: whose conversation it is.

        Raises:
            ContextTooLong: there are more tokens than a session can hold.
            UnknownToken: an id is not in the model's vocabulary.
        """
        session = Session(owner=owner, tokens=list(tokens or self.static_tokens))
        self._check_vocabulary(session.tokens)
        with self._lock:
            limit = self._limit(session.tokens)
            if len(session.tokens) > limit:
                raise ContextTooLong(len(session.tokens), limit)
            session.last_used = self._loop.clock
            self._cache.add(session)
        return session

    def fork(self, session: Session) -> Session:
        """A second session with the same tokens. Full pages are shared, the partial one copied.

        Raises:
            SessionBusy, SessionClosed: it is answering, or was closed.
        """
        with self._lock:
            _check_idle(session)
            return self._cache.fork(session)

    def truncate(self, session: Session, tokens: int) -> None:
        """Go back to the first `tokens` tokens; their KV is kept.

        Raises:
            SessionBusy, SessionClosed: it is answering, or was closed.
            ValueError: there are fewer tokens than that.
        """
        with self._lock:
            _check_idle(session)
            if not 0 <= tokens <= len(session.tokens):
                raise ValueError(f"{tokens} is not within 0..{len(session.tokens)} tokens")
            self._loop.jobs.give_way(session)
            self._cache.truncate(session, tokens)

    def drop_kv(self, session: Session) -> None:
        """Give an idle session's pages back. Its tokens stay, their KV is computed when needed.

        Raises:
            SessionBusy, SessionClosed: it is answering, or was closed.
        """
        with self._lock:
            _check_idle(session)
            self._loop.jobs.give_way(session)
            self._cache.drop(session)

    def close(self, session: Session, forget: bool = False) -> None:
        """Let go of a session. Closing twice is allowed.

        Args:
            session: idle.
            forget: also drop all that is cached for its owner, so that nothing of it stays in the
                pool unless another session holds it. Otherwise full pages stay findable until room
                is needed.

        Raises:
            SessionBusy: it is answering; cancel and wait first.
        """
        with self._lock:
            if session.closed:
                return
            _check_idle(session)
            self._loop.jobs.give_way(session)
            self._cache.close(session, forget)

    def recompute(self, session: Session) -> int:
        """Compute a session's whole KV again in the exact mode; blocks until it is done.

        It goes layer by layer, in batches of always 128 rows on absolute boundaries, into pages of
        its own (see `engine.exact`); the session keeps its KV meanwhile where there is room for
        both. So the result depends on the tokens alone: it equals, bit for bit, that of any other
        session with the same tokens and static prompt in this mode. Other sessions' steps go on in
        between.

        Returns:
            How many tokens were computed.

        Raises:
            SessionBusy, SessionClosed: it is answering, or was closed.
            ContextTooLong: the pool does not hold it.
            EngineStopped: it cannot begin now; the session keeps its KV.
            EngineError: the computation failed; the session keeps its KV.
        """
        with self._lock:
            _check_idle(session)
            if not session.tokens:
                return 0
            job = self._refresh(session, idle=False)
            self._loop.jobs.submit(job)
        job.wait()
        return job.tokens

    def _idle_refresh(self) -> RefreshJob | None:
        """The refresh that is due, while nobody waits. Called with the lock held."""
        least = self.config.refresh_tokens
        session = self._fresh_pages.stale(least) if least else None
        return self._refresh(session, idle=True) if session else None

    def _refresh(self, session: Session, idle: bool) -> RefreshJob:
        return RefreshJob(self._executor, self._pool, self._fresh_pages, session, idle)

    # -- answers -----------------------------------------------------------------------------

    def generate(
        self, session: Session, new_tokens: Sequence[int], sampling: Sampling
    ) -> Generation:
        """Append tokens to a session and answer. Returns at once; the answer streams.

        Only tokens without KV are computed: the new ones, the last token of the answer before,
        and those whose KV was given up in the meantime.

        Args:
            session: open and idle.
            new_tokens: appended to the session, usually a `format.user` fragment.
            sampling: see `Sampling`. `max_tokens` is cut to what the context holds.

        Raises:
            ContextTooLong, EmptyMessage, UnknownToken, QueueFull, SessionBusy, SessionClosed,
                EngineStopped: at once, with the session unchanged.
        """
        self._check_vocabulary(new_tokens)
        with self._lock:
            _check_idle(session)
            prompt = len(session.tokens) + len(new_tokens)
            if not prompt:
                raise EmptyMessage
            limit = self._limit([*session.tokens, *new_tokens])
            room = limit - prompt
            if room < min(sampling.max_tokens, 1):
                raise ContextTooLong(prompt + 1, limit)
            request = self._request(session, sampling, prompt, min(sampling.max_tokens, room))
            self._loop.submit(request)
            session.refreshed_tokens = 0
            session.tokens += new_tokens
            if not session.pending_tokens:  # logits come from computing at least one token
                self._cache.truncate_kv(session, prompt - 1)
        return request.generation

    def _request(
        self, session: Session, sampling: Sampling, prompt: int, max_tokens: int
    ) -> Request:
        def cancel() -> None:
            # Seen before the next step: the loop does not sleep while there is a request.
            request.cancelled = True

        request = Request(
            session=session,
            sampling=sampling,
            text=AnswerText(self._tokenizer, sampling.stop),
            generation=Generation(cancel, lambda: not self._loop.is_current_thread),
            prompt_tokens=prompt,
            max_tokens=max_tokens,
            kept_tokens=session.kv_tokens,
            refreshed_tokens=session.refreshed_tokens,
            device_bytes_before=self._executor.allocated_bytes(),
        )
        return request

    def _limit(self, tokens: list[int]) -> int:
        """How many tokens a session that begins with these can hold. Needs the lock."""
        return min(self._executor.config.context_tokens, self._cache.capacity_tokens(tokens))

    def _check_vocabulary(self, tokens: Sequence[int]) -> None:
        size = self._executor.config.vocabulary
        for token in tokens:
            if not 0 <= token < size:
                raise UnknownToken(token, size)

    # -- numbers -----------------------------------------------------------------------------

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller runs on the engine's thread, as a finaliser may: it must not wait."""
        return self._loop.is_current_thread

    def memory(self) -> MemoryReport:
        """Where the memory is now."""
        with self._lock:
            counts, scratch = self._census.counts(), self._loop.jobs.scratch_bytes
        return memory_report(self._executor, self._pool, counts, scratch)

    def session_list(self) -> tuple[SessionInfo, ...]:
        """The open sessions, the one used last first."""
        with self._lock:
            return tuple(self._census.sessions())

    def page_map(self) -> list[PageKind]:
        """What each page of the pool is used for: static, active, idle, cached or free."""
        with self._lock:
            return self._census.page_map()

    def prefix_stats(self) -> PrefixStats:
        """How much of what came without KV was found in the prefix cache."""
        with self._lock:
            return self._cache.stats()

    def check(self) -> None:
        """Hold the bookkeeping against its invariants.

        Raises:
            RuntimeError: names what does not hold.
        """
        with self._lock:
            check_cache(self._cache)

    def shutdown(self) -> None:
        """End what runs with `EngineStopped` and stop the loop. Calling it twice is allowed."""
        self._loop.shutdown()


def _check_idle(session: Session) -> None:
    if session.closed:
        raise SessionClosed
    if session.busy:
        raise SessionBusy
