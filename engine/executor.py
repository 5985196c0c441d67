"""What computes steps. One protocol for every device and for our own code as for PyTorch's."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from engine.errors import EngineStopped
from engine.kv.layout import PageLayout
from engine.kv.pool import PagePool
from engine.memory import allocated_bytes, free_caches, peak_bytes, reset_peak, synchronize
from engine.model_config import ModelConfig
from engine.sampler import NO_TOKEN, choose
from engine.step import KNOWN, Ints, Step

T = TypeVar("T")


class Outcome(NamedTuple):
    """What a step came to.

    Attributes:
        tokens: one for each of its draws, or `NO_TOKEN`.
        logits: [logits, vocabulary], float32, or float64 of a model in that dtype.
    """

    tokens: list[int]
    logits: torch.Tensor


class Pending:
    """A step on its way."""

    def __init__(self, outcome: "Future[Outcome]") -> None:
        self._outcome = outcome

    @staticmethod
    def failed(error: Exception) -> "Pending":
        """A step that never set out."""
        outcome: Future[Outcome] = Future()
        outcome.set_exception(error)
        return Pending(outcome)

    def tokens(self) -> list[int]:
        """Wait for the tokens that the step draws; `NO_TOKEN` where the logits are not finite.

        Raises:
            Exception: whatever went wrong in the computation.
        """
        return self._outcome.result().tokens

    def logits(self) -> torch.Tensor:
        """Wait for the logits; see `Outcome`.

        Raises:
            Exception: whatever went wrong in the computation.
        """
        return self._outcome.result().logits


class Executor(ABC):
    """A model with its weights on a device, and the thread that its steps run on.

    Steps are computed in the order in which they were launched, and jobs among them.

    Attributes:
        config: of the model.
        device: where weights, KV and arithmetic are.
        dtype: of keys and values, and of arithmetic where it is PyTorch's.
    """

    config: ModelConfig
    device: torch.device
    dtype: torch.dtype

    def __init__(self, threads: int) -> None:
        """
        Args:
            threads: PyTorch's own, for what runs here. The exact mode is exact for one number.
        """
        self._worker = _Worker()
        self._drawn: list[int] = []  # by the step before
        others = torch.get_num_threads()
        self.call(lambda: torch.set_num_threads(threads))
        # The last call decides for threads to come: theirs is not this number.
        torch.set_num_threads(others)

    # -- steps -------------------------------------------------------------------------------

    def launch(self, step: Step, pool: PagePool) -> Pending:
        """Begin a step, or queue it behind those that go on. Its faults are told by `Pending`.

        Keys and values of its rows are written to the pool. Tokens that are not known yet are
        taken from what the step before draws; where that failed, this one fails too.
        """
        return Pending(self._worker.submit(lambda: self._compute(step, pool)))

    def call(self, job: Callable[[], T]) -> T:
        """Run a job where steps run, behind those that were launched, and wait for it."""
        return self._worker.submit(job).result()

    @property
    def is_current_thread(self) -> bool:
        """Whether the caller runs on the thread that computes, as a finaliser may."""
        return self._worker.is_current

    def shutdown(self) -> None:
        """End the thread, behind what was launched."""
        self._worker.end()

    @torch.inference_mode()
    def _compute(self, step: Step, pool: PagePool) -> Outcome:
        before, self._drawn = self._drawn, []
        waited = np.flatnonzero(step.sources != KNOWN)
        tokens = step.tokens
        latest = [NO_TOKEN] * len(step.draws)
        if len(waited):
            sources = step.sources[waited].tolist()
            if max(sources) >= len(before):
                raise RuntimeError("the step before failed, and this one goes on from its tokens")
            tokens = tokens.copy()
            # What follows a row without a token is computed, and read by nobody.
            tokens[waited] = [max(before[source], 0) for source in sources]
            row_of = {row: i for i, row in enumerate(step.logit_rows.tolist())}
            for row, source in zip(waited.tolist(), sources, strict=True):
                if row in row_of:
                    latest[row_of[row]] = before[source]
        pool.apply(step.changes)
        logits = self.forward(step, tokens, pool)
        synchronize(self.device)
        if step.draws:
            self._drawn = choose(logits.cpu().numpy(), step.draws, latest)
        return Outcome(self._drawn, logits)

    @abstractmethod
    def forward(self, step: Step, tokens: Ints, pool: PagePool) -> torch.Tensor:
        """Compute a step's rows and write their keys and values to the pool.

        Args:
            step: whose page tables the pool has.
            tokens: of its rows, all of them known.
            pool: one of `make_pool`.

        Returns:
            Logits of `step.logit_rows`; see `Outcome`.
        """

    # -- the exact mode (see `engine.exact`) ---------------------------------------------------

    @abstractmethod
    def embed(self, tokens: Sequence[int]) -> torch.Tensor:
        """The residual stream of tokens before the first layer: [rows, hidden]."""

    @abstractmethod
    def run_layer(self, layer: int, x: torch.Tensor, step: Step, pool: PagePool) -> torch.Tensor:
        """One layer on a step's rows, with keys and values in layer 0 of a pool of one layer.

        Args:
            layer: index.
            x: the residual stream before it: [rows, hidden].
            step: whose rows these are.
            pool: holds this layer's earlier keys and values.

        Returns:
            The residual stream after it: the bits that `forward` has for the same rows.
        """

    # -- memory ------------------------------------------------------------------------------

    @abstractmethod
    def make_pool(self, layout: PageLayout, frames: int, rows: int = 1) -> PagePool:
        """A pool in the order that this executor reads.

        Args:
            layout: of its pages.
            frames: how many plain pages it holds.
            rows: sequences that are computed at once.
        """

    @property
    @abstractmethod
    def weights_bytes(self) -> int:
        """Bytes of all weights; what is stored once counts once."""

    @abstractmethod
    def profile(self, max_rows: int) -> int:
        """Bytes of workspace that a step of so many rows takes beside weights and pool: measured,
        on as few rows as will do."""

    def allocated_bytes(self) -> int:
        """Memory in use now that a request can be charged with; on a CPU the process's."""
        return allocated_bytes(self.device)

    def mark_peak(self) -> None:
        """Begin to look for the peak."""
        reset_peak(self.device)

    def peak_bytes(self) -> int:
        """The most memory in use since `mark_peak`; on a CPU what is in use now."""
        return peak_bytes(self.device)

    def free_caches(self) -> None:
        """Give back what PyTorch's allocator holds and nothing uses."""
        free_caches(self.device)

    def synchronize(self) -> None:
        """Wait for what was launched on the device, and raise the errors that it tells late."""
        synchronize(self.device)


class _Worker:
    """A thread that does what it is given, in order."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="executor", daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def submit(self, job: Callable[[], T]) -> "Future[T]":
        if self._ended:
            raise EngineStopped
        future: Future[T] = Future()
        self._jobs.put((future, job))
        return future

    def end(self) -> None:
        self._ended = True
        self._jobs.put(None)
        if not self.is_current:
            self._thread.join()

    def _run(self) -> None:
        while (next_job := self._jobs.get()) is not None:
            future, job = next_job
            try:
                future.set_result(job())
            except BaseException as error:
                future.set_exception(error)
            del next_job, future, job  # nothing of a job is held while there is none
