"""A session's KV computed again exactly: the one mode that promises bits.

KV that was computed from coded KV is approximate, and what is computed from it is more so. A
refresh computes all of it from the tokens, in full precision throughout, and codes the outcome
once: the session is as if all its tokens had come at once, and nothing had ever been coded before.

It goes layer by layer: all rows pass one block before any passes the next. So only one layer's KV
has to be there in full precision beside the pages,

    rows     |--128--|--128--|--128--|- T |pad|      hidden states of all tokens
    layer l  keys and values of all tokens            scratch, taken over into the pages at its end

Rows run in batches of 128 on absolute boundaries, the last one padded, with one number of threads:
a row's result depends on the shape of the matrices that it is computed in and on nothing in the
other rows. So the pages depend on the tokens alone, bit for bit.
"""

import threading
from dataclasses import replace

import torch

from engine.attention.batch import Batch, Span
from engine.backend import Model
from engine.errors import EngineError
from engine.kv.pool import PagePool
from engine.kv.session import Session

ROWS = 128
"""Of every batch, which begins at multiples of it."""


class Refresh:
    """One session's refresh, in steps.

    Attributes:
        session: whose KV it will replace.
        shadow: holds the new pages meanwhile; the session keeps its own until the end.
        idle: nobody asked for it: it gives way to everything else.
        cancelled: set by any thread, seen before the next step.
        error: what ended it, if something did.
    """

    def __init__(self, model: Model, pool: PagePool, session: Session, idle: bool) -> None:
        self.session, self.idle = session, idle
        self.shadow = Session(session.owner, tokens=list(session.tokens), shadow=True)
        self.shadow.busy = self.shadow.running = True  # nobody may take its pages
        self.cancelled = False
        self.error: EngineError | None = None
        self._done = threading.Event()
        self._model, self._pool = model, pool
        self._layer = self._row = 0
        self._x: torch.Tensor | None = None
        self._scratch: PagePool | None = None

    @property
    def tokens(self) -> int:
        return len(self.shadow.tokens)

    @property
    def scratch_bytes(self) -> int:
        """Hidden states of all tokens, and one layer's keys and values of them."""
        hidden = 0 if self._x is None else self._x.numel() * self._x.element_size()
        return hidden + (0 if self._scratch is None else self._scratch.size_bytes)

    @property
    def computed(self) -> bool:
        """Whether every layer is in the shadow's pages."""
        return self._layer == self._model.config.layers

    def wait(self) -> None:
        """Block until it has ended.

        Raises:
            EngineError: it failed; the session is as before.
        """
        self._done.wait()
        if self.error is not None:
            raise self.error

    def end(self, error: EngineError | None = None) -> None:
        """Let go of the scratch, and tell who waits."""
        self.error, self._x, self._scratch = error, None, None
        self._done.set()

    @torch.inference_mode()
    def step(self, tokens: int) -> int:
        """Go on by as much as a batch of `tokens` tokens through all layers is.

        Returns:
            How many tokens through all layers it was, on average.
        """
        if self._x is None or self._scratch is None:
            self._x, self._scratch = self._begin()
        layers = self._model.config.layers
        wanted = max(tokens * layers // ROWS, 1)
        batches = 0
        while batches < wanted and not self.computed:
            self._run_batch(self._x, self._scratch)
            batches += 1
        return batches * ROWS // layers

    def _begin(self) -> tuple[torch.Tensor, PagePool]:
        layout = replace(self._pool.layout, layers=1)
        step = max(ROWS, layout.page_size)
        padded = -(-self.tokens // step) * step
        tokens = self.shadow.tokens + [0] * (padded - self.tokens)
        hidden = self._model.embed(torch.tensor(tokens, device=self._model.device))
        return hidden, self._model.make_pool(layout, padded // layout.page_size)

    def _run_batch(self, x: torch.Tensor, scratch: PagePool) -> None:
        first, stop = self._row, self._row + ROWS
        positions = torch.arange(first, stop, device=x.device)
        table = torch.arange(-(-stop // scratch.page_size), device=x.device)
        batch = Batch(
            tokens=positions.new_zeros(ROWS),
            positions=positions,
            pages=positions // scratch.page_size,
            offsets=positions % scratch.page_size,
            spans=(Span(0, ROWS, table, context=stop),),
            logit_rows=positions.new_zeros(0),
        )
        x[first:stop] = self._model.run_layer(self._layer, x[first:stop], batch, scratch)
        self._row = stop
        if stop >= self.tokens:
            self._end_layer(scratch)

    def _end_layer(self, scratch: PagePool) -> None:
        # Pages of the static prompt are everybody's, and exact already.
        shared = self.shadow.static_tokens // scratch.page_size
        self._pool.take_layer(self._layer, scratch, self.shadow.pages, first=shared)
        self._layer, self._row = self._layer + 1, 0
