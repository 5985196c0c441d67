"""A session's KV computed again exactly: the one mode that promises bits.

It goes layer by layer: all rows pass one layer before any passes the next. So only one layer's KV
has to be there in full precision beside the pages,

    rows     |--128--|--128--|--128--|- T |pad|      hidden states of all tokens
    layer l  keys and values of all tokens            scratch, taken over into the pages at its end

Rows run in batches of 128 on absolute boundaries, the last one padded, with one number of threads:
a row's result depends on the shape of the matrices that it is computed in and on nothing in the
other rows. So the pages depend on the tokens alone, bit for bit.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from engine.executor import Executor
from engine.kv.pool import PagePool
from engine.kv.session import Session
from engine.step import Part, Step

ROWS = 128
"""Rows of every batch; batches begin at multiples of it."""


class Refresh:
    """All tokens of a session, computed in batches into pages that it has already.

    Attributes:
        computed: whether all batches have run.
    """

    def __init__(
        self, executor: Executor, pool: PagePool, tokens: Sequence[int], pages: Sequence[int],
        static_tokens: int,
    ) -> None:  # fmt: skip
        """
        Args:
            executor: computes.
            pool: holds the pages.
            tokens: all of them.
            pages: where their KV goes.
            static_tokens: leading ones on pages of the static prompt, which are exact already and
                everybody's: they are computed, since later ones need them, and not written.
        """
        self._executor, self._pool, self._pages = executor, pool, pages
        self._tokens = len(tokens)
        self._first_page = static_tokens // pool.page_size
        # One layer in plain pages, and a sequence that stands on them one after the other.
        layout = replace(pool.layout, layers=1)
        step = max(ROWS, layout.page_size)
        padded = -(-len(tokens) // step) * step
        self._scratch = executor.make_pool(layout, padded // layout.page_size)
        self._sequence = Session(owner=None, tokens=[*tokens, *[0] * (padded - len(tokens))])
        self._sequence.pages.extend(range(self._scratch.frames))
        self._sequence.pages.take_row(0)
        self._x = executor.embed(self._sequence.tokens)
        self._layer = self._row = 0

    @property
    def computed(self) -> bool:
        return self._layer == self._executor.config.layers

    @property
    def scratch_bytes(self) -> int:
        """What it holds beside the pages."""
        return self._x.nbytes + self._scratch.size_bytes

    @torch.inference_mode()
    def run(self, tokens: int) -> int:
        """Go on by as many batches as `tokens` tokens through all layers would be.

        Returns:
            How many tokens through all layers it was, on average.
        """
        layers = self._executor.config.layers
        wanted = max(tokens * layers // ROWS, 1)
        batches = 0
        while batches < wanted and not self.computed:
            self._run_batch()
            batches += 1
        return batches * ROWS // layers

    def _run_batch(self) -> None:
        rows = slice(self._row, self._row + ROWS)
        step = Step.of([Part(self._sequence, self._row, ROWS)], self._scratch.page_size)
        self._x[rows] = self._executor.run_layer(self._layer, self._x[rows], step, self._scratch)
        self._row += ROWS
        if self._row >= self._tokens:
            self._pool.take_layer(self._layer, self._scratch, self._pages, self._first_page)
            self._layer, self._row = self._layer + 1, 0
