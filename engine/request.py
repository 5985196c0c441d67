"""One generation as the scheduler sees it, with the clock of its life."""

import time
from dataclasses import dataclass, field
from itertools import count
from random import Random

from engine.answer_text import AnswerText
from engine.errors import EngineError
from engine.generation import FinishReason, Generation, GenerationResult
from engine.kv.session import Session
from engine.sampling import Draw, Sampling
from engine.stats import EngineStats

_arrivals = count()


@dataclass(eq=False)
class Request:
    """Work on one session: compute the KV of its pending tokens, then generate.

    Attributes:
        prompt_tokens: tokens of the session before the first generated one.
        answer: ids generated so far; they are in `session.tokens` too.
        cached_tokens: of the prompt, found with KV when the request was first scheduled.
        reached_tokens: of the prompt, how far its KV has ever come.
        kept_tokens: with KV when the request came.
        refreshed_tokens: of the session, computed again exactly since its last request.
        preemptions: how often it lost its pages to others while it ran.
        cancelled: set by any thread, seen at the next step.
        outcome: how it ends, once that is known, while a step that it is part of still goes on.
    """

    session: Session
    sampling: Sampling
    text: AnswerText
    generation: Generation
    prompt_tokens: int
    device_bytes_before: int
    max_tokens: int
    refreshed_tokens: int = 0
    kept_tokens: int = 0
    preemptions: int = 0
    arrival: int = field(default_factory=lambda: next(_arrivals))
    answer: list[int] = field(default_factory=list)
    cached_tokens: int = 0
    reached_tokens: int = 0
    static_tokens: int = 0
    cancelled: bool = False
    outcome: FinishReason | EngineError | None = None
    device_bytes_peak: int = 0
    submitted_s: float = field(default_factory=time.perf_counter)
    scheduled_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float = 0.0
    _random: Random = field(init=False)
    _shares: list[float] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self._random = Random(self.sampling.seed)

    @property
    def tokens_left(self) -> int:
        """How many it may still generate."""
        return self.max_tokens - len(self.answer)

    def draw(self, ahead: int = 0) -> Draw:
        """How a token is chosen.

        Each place in the answer has a random number of its own: a step that fails, or that is
        planned and never runs, takes none away.

        Args:
            ahead: tokens that come before it and are not known yet.
        """
        place = len(self.answer) + ahead
        while len(self._shares) <= place:
            self._shares.append(self._random.random())
        seen = frozenset(self.answer) if self.sampling.repetition_penalty != 1.0 else frozenset()
        return Draw(self.sampling, self._shares[place], seen)

    def mark_scheduled(self) -> None:
        """Note that the request runs for the first time, and what it found."""
        self.scheduled_s = time.perf_counter()
        self.cached_tokens = self.reached_tokens = self.session.kv_tokens
        self.static_tokens = self.session.static_tokens

    def note_progress(self) -> None:
        """A step has computed some of the session's tokens."""
        reached = min(self.session.kv_tokens, self.prompt_tokens)
        self.reached_tokens = max(self.reached_tokens, reached)

    def note_token(self) -> None:
        self.last_token_s = time.perf_counter()
        self.first_token_s = self.first_token_s or self.last_token_s

    def note_memory(self, device_bytes: int) -> None:
        self.device_bytes_peak = max(self.device_bytes_peak, device_bytes)

    def result(
        self, reason: FinishReason, kv_bytes: int, device_bytes_after: int
    ) -> GenerationResult:
        """What became of the request, measured up to its last token, or up to now."""
        now = self.last_token_s if self.outcome in ("stop", "length") else time.perf_counter()
        scheduled = self.scheduled_s if self.scheduled_s is not None else now
        first = self.first_token_s
        decode_s = now - first if first is not None else 0.0
        later = len(self.answer) - 1
        stats = EngineStats(
            queue_s=scheduled - self.submitted_s,
            prefill_s=(now if first is None else first) - scheduled,
            ttft_s=0.0 if first is None else first - self.submitted_s,
            decode_s=decode_s,
            total_s=now - self.submitted_s,
            prompt_tokens=self.reached_tokens,
            cached_tokens=self.cached_tokens,
            static_tokens=self.static_tokens,
            computed_tokens=self.reached_tokens - self.cached_tokens,
            generated_tokens=len(self.answer),
            decode_tokens_per_s=later / decode_s if later > 0 and decode_s > 0 else 0.0,
            kv_pages=len(self.session.pages),
            kv_bytes=kv_bytes,
            refreshed_tokens=self.refreshed_tokens,
            device_bytes_before=self.device_bytes_before,
            device_bytes_after=device_bytes_after,
            device_bytes_peak=max(
                self.device_bytes_peak, self.device_bytes_before, device_bytes_after
            ),
        )
        return GenerationResult(tuple(self.answer), self.text.text, reason, stats)
