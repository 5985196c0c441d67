"""The engine: sessions in, answers out, one loop thread between them.

Callers' threads open, fork and close sessions and submit requests; the loop thread alone runs the
model and touches the KV of sessions with a request. One lock guards the bookkeeping; it is not held
while the model computes.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence

import torch

from engine.answer_text import AnswerText
from engine.attention.reference import ReferenceAttention
from engine.config import EngineConfig
from engine.device import device_bytes, device_memory, process_rss_bytes
from engine.errors import (
    ContextTooLong,
    EmptyMessage,
    EngineError,
    EngineStopped,
    SessionBusy,
    SessionClosed,
    StepFailed,
)
from engine.generation import FinishReason, Generation
from engine.kv.cache import KVCache
from engine.kv.session import Session
from engine.loading import LoadedModel, load
from engine.request import Request
from engine.runner import Runner
from engine.sampling import Sampler, Sampling
from engine.scheduler import Scheduler, Work
from engine.stats import MemoryReport

log = logging.getLogger(__name__)


class Engine:
    """Runs one model for many sessions.

    Attributes:
        config: as given.
        model_name: the model's name without folder or ending.
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
        self._start(config, load(config, on_progress or (lambda _: None)))

    def _start(self, config: EngineConfig, loaded: LoadedModel) -> None:
        self.config = config
        self.model_name = loaded.name
        self.format = loaded.format
        self.static_tokens: tuple[int, ...] = ()
        self._tokenizer = loaded.tokenizer
        self._model = loaded.decoder
        self._pool = loaded.pool
        attention = ReferenceAttention(loaded.decoder.config.sliding_window)
        self._runner = Runner(loaded.decoder, loaded.pool, attention)
        self._pages_total = loaded.pool.keys.shape[1]
        self._cache = KVCache(self._pages_total, config.page_size, loaded.pool.copy_page)
        self._scheduler = Scheduler(
            self._cache, config.max_sessions, config.max_waiting, config.step_target_s
        )
        self._steps = 0
        self._stopping = False
        self._lock = threading.Lock()
        self._work_or_stop = threading.Condition(self._lock)
        self._loop = threading.Thread(target=self._run, name="engine", daemon=True)
        self._loop.start()

    # -- what it is --------------------------------------------------------------------------

    @property
    def context_tokens(self) -> int:
        """Tokens that one session can hold: the model's context, or less if the pool is smaller."""
        # One page is left out: the static prompt's partial page, which no session shares.
        in_pool = (self._pages_total - 1) * self.config.page_size
        return min(self._model.config.context_tokens, in_pool)

    @property
    def device_kind(self) -> str:
        """ "cpu" or "cuda"."""
        return self._model.device.type

    @property
    def dtype(self) -> str:
        """Name of the dtype of weights, KV and arithmetic."""
        return str(self._model.dtype).removeprefix("torch.")

    # -- conversations -----------------------------------------------------------------------

    def set_system(self, text: str) -> None:
        """Compute the static system prompt's KV and pin it; later sessions are forks of it.

        Sessions opened before keep theirs. Blocks until it is computed.

        Raises:
            ContextTooLong: it leaves no room for a question.
        """
        tokens = self.format.system(text)
        static = Session(owner="static", tokens=tokens)
        with self._lock:
            self._cache.unpin_static()
            self._cache.add(static)
        try:
            self.generate(static, (), Sampling(max_tokens=0)).result()
        except EngineError:
            self.close(static)
            raise
        with self._lock:
            self._cache.pin_static(static)
            self.static_tokens = tuple(tokens)

    def open(self, tokens: Sequence[int] = (), owner: str = "local") -> Session:
        """Begin a session.

        Args:
            tokens: a stored session's tokens, the static part included; empty begins a new
                conversation with the static prompt. KV that the static prompt holds is shared, the
                rest is computed with the next request.
            owner: whose conversation it is.

        Raises:
            ContextTooLong: there are more tokens than a session can hold.
        """
        session = Session(owner=owner, tokens=list(tokens or self.static_tokens))
        if len(session.tokens) >= self.context_tokens:
            raise ContextTooLong(len(session.tokens) + 1, self.context_tokens)
        with self._lock:
            session.last_used = self._steps
            self._cache.add(session)
        return session

    def fork(self, session: Session) -> Session:
        """A second session with the same tokens. Full pages are shared, the partial one copied.

        Raises:
            SessionBusy, SessionClosed: it is answering, or was closed.
            OutOfPages: there is no page for the copy.
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
            self._cache.truncate(session, tokens)

    def drop_kv(self, session: Session) -> None:
        """Give an idle session's pages back. Its tokens stay, their KV is computed when needed.

        Raises:
            SessionBusy, SessionClosed: it is answering, or was closed.
        """
        with self._lock:
            _check_idle(session)
            self._cache.drop(session)

    def close(self, session: Session) -> None:
        """Forget a session. Closing twice is allowed.

        Raises:
            SessionBusy: it is answering; cancel and wait first.
        """
        with self._lock:
            if session.closed:
                return
            _check_idle(session)
            self._cache.close(session)

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
            ContextTooLong, EmptyMessage, QueueFull, SessionBusy, SessionClosed, EngineStopped: at
                once, with the session unchanged.
        """
        with self._lock:
            if self._stopping:
                raise EngineStopped
            _check_idle(session)
            prompt = len(session.tokens) + len(new_tokens)
            if not prompt:
                raise EmptyMessage
            room = self.context_tokens - prompt
            if room < min(sampling.max_tokens, 1):
                raise ContextTooLong(prompt + 1, self.context_tokens)
            request = self._request(session, sampling, prompt, min(sampling.max_tokens, room))
            self._scheduler.submit(request)
            session.tokens += new_tokens
            if not session.pending_tokens:  # logits come from computing at least one token
                self._cache.truncate_kv(session, prompt - 1)
            session.busy = True
            self._work_or_stop.notify()
        return request.generation

    def _request(
        self, session: Session, sampling: Sampling, prompt: int, max_tokens: int
    ) -> Request:
        def cancel() -> None:
            request.cancelled = True
            with self._lock:
                self._work_or_stop.notify()

        request = Request(
            session=session,
            sampler=Sampler(sampling),
            text=AnswerText(self._tokenizer, sampling.stop),
            generation=Generation(cancel),
            prompt_tokens=prompt,
            max_tokens=max_tokens,
            device_bytes_before=device_bytes(self._model.device),
        )
        return request

    # -- numbers -----------------------------------------------------------------------------

    def memory(self) -> MemoryReport:
        """Where the memory is now."""
        weights, pool = self._model.weights_bytes, self._pool.size_bytes
        with self._lock:
            counts = self._cache.counts()
        device = device_memory(self._model.device, weights + pool)
        return MemoryReport(
            weights_bytes=weights,
            kv_pool_bytes=pool,
            kv_page_bytes=self._pool.page_bytes,
            pages_total=counts.total,
            pages_static=counts.static,
            pages_sessions=counts.sessions,
            pages_cached=counts.cached,
            pages_free=counts.free,
            device_name=device.name,
            device_allocated_bytes=device.allocated_bytes,
            device_reserved_bytes=device.reserved_bytes,
            device_used_bytes=device.used_bytes,
            device_total_bytes=device.total_bytes,
            process_rss_bytes=process_rss_bytes(),
        )

    def check(self) -> None:
        """Hold the bookkeeping against its invariants.

        Raises:
            RuntimeError: names what does not hold.
        """
        with self._lock:
            self._cache.check()

    def shutdown(self) -> None:
        """Cancel what runs, stop the loop, free the pool. Calling it twice is allowed."""
        with self._lock:
            self._stopping = True
            self._work_or_stop.notify()
        self._loop.join()

    # -- the loop ----------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._scheduler.busy and not self._stopping:
                    self._work_or_stop.wait()
                if self._stopping:
                    self._end_all(EngineStopped())
                    return
                try:
                    self._end_cancelled()
                    plan = self._scheduler.plan()
                except Exception as error:  # a fault of ours: say so, and go on with new requests
                    log.exception("planning a step failed")
                    self._end_all(_as_engine_error(error))
                    continue
            if plan:
                self._step(plan)

    def _step(self, plan: list[Work]) -> None:
        started = time.perf_counter()
        for work, logits in self._compute(plan):
            if isinstance(logits, Exception):
                log.error("a request failed", exc_info=logits)
                with self._lock:
                    self._end(work.request, _as_engine_error(logits))
                continue
            try:
                self._advance(work, logits)
            except Exception as error:
                log.exception("a request failed")
                with self._lock:
                    self._end(work.request, _as_engine_error(error))
        self._scheduler.budget.record(
            sum(work.tokens for work in plan), time.perf_counter() - started
        )

    def _compute(self, plan: list[Work]) -> list[tuple[Work, torch.Tensor | Exception]]:
        """Logits for each piece of work; when the batch fails, each runs alone to find whose fault.

        Running work again is harmless: it writes the same keys and values to the same places.
        """
        try:
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
        with self._lock:
            session.kv_tokens += work.tokens
            self._steps += 1
            session.last_used = self._steps
            request.device_bytes_peak = max(
                request.device_bytes_peak, device_bytes(self._model.device)
            )
            if samples and request.first_token_s is None:
                request.first_token_s = time.perf_counter()
            if token is not None:
                session.tokens.append(token)
                request.answer.append(token)
                request.generation.push(request.text.push(token))
                if token in self.format.stop_tokens or request.text.stopped:
                    reason = "stop"
            if reason is None and samples and len(request.answer) >= request.max_tokens:
                reason = "length"
            if reason is not None:
                self._end(request, reason)

    def _end_cancelled(self) -> None:
        for request in [*self._scheduler.running, *self._scheduler.waiting]:
            if request.cancelled:
                self._end(request, "cancelled")

    def _end_all(self, error: EngineError) -> None:
        for request in [*self._scheduler.running, *self._scheduler.waiting]:
            self._end(request, error)

    def _end(self, request: Request, outcome: FinishReason | EngineError) -> None:
        """End a request; its session is idle again, with what it has. Needs the lock."""
        self._scheduler.remove(request)
        session = request.session
        self._cache.trim(session)
        session.busy = False
        if isinstance(outcome, EngineError):
            request.generation.fail(outcome)
            return
        request.generation.push(request.text.flush())
        after = device_bytes(self._model.device)
        request.generation.finish(request.result(outcome, self._pool.page_bytes, after))


def _check_idle(session: Session) -> None:
    if session.closed:
        raise SessionClosed
    if session.busy:
        raise SessionBusy


def _as_engine_error(error: Exception) -> EngineError:
    if isinstance(error, EngineError):
        return error
    failed = StepFailed(
        f"The engine could not compute this answer ({type(error).__name__}: {error}). "
        "Other conversations are not affected; ask again."
    )
    failed.__cause__ = error
    return failed
