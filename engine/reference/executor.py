"""Steps computed by PyTorch, on any device that it knows."""

from collections.abc import Sequence

import torch

from engine.executor import Executor
from engine.kv.layout import PageLayout
from engine.kv.pool import PagePool
from engine.kv.session import Session
from engine.model_config import ModelConfig
from engine.reference.attention import PagedAttention
from engine.reference.model import Transformer
from engine.reference.weights import Weights
from engine.step import Ints, Part, Step

_PROBE_ROWS = 128


class ReferenceExecutor(Executor):
    """See `Executor`; all arithmetic is in the dtype of the weights."""

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        super().__init__(torch.get_num_threads())
        self.config = config
        self.device, self.dtype = weights.norm.device, weights.norm.dtype
        self._model = Transformer(config, weights)

    def forward(self, step: Step, tokens: Ints, pool: PagePool) -> torch.Tensor:
        """See `Executor.forward`."""
        attention = PagedAttention(step, pool, self.config.sliding_window)
        logits = self._model.forward(
            self._on_device(tokens), self._on_device(step.logit_rows), attention
        )
        return logits if logits.dtype == torch.float64 else logits.float()

    @torch.inference_mode()
    def embed(self, tokens: Sequence[int]) -> torch.Tensor:
        """See `Executor.embed`."""
        return self._model.embed(torch.tensor(tokens, device=self.device))

    @torch.inference_mode()
    def run_layer(self, layer: int, x: torch.Tensor, step: Step, pool: PagePool) -> torch.Tensor:
        """See `Executor.run_layer`."""
        pool.apply(step.changes)
        attention = PagedAttention(step, pool, self.config.sliding_window)
        rotation = self._model.rotation(attention.positions)
        return self._model.layer(layer, 0, x, rotation, attention)

    def make_pool(self, layout: PageLayout, frames: int, rows: int = 1) -> PagePool:
        """See `Executor.make_pool`."""
        if type(layout) is PageLayout:
            return PagePool(layout, frames, self.device, rows)
        from engine.coded.layout import CodedLayout
        from engine.coded.pool import CodedPool

        assert isinstance(layout, CodedLayout)
        return CodedPool(layout, frames, self.device, rows)

    @property
    def weights_bytes(self) -> int:
        """See `Executor.weights_bytes`."""
        return self._model.weights.bytes

    def profile(self, max_rows: int) -> int:
        """See `Executor.profile`. One layer is run on a few rows; all take the same space in turn.

        Their number is taken as proportional: what attention makes of longer contexts comes on top.
        """
        from engine.reference.workspace import PeakBytes  # nothing else needs it

        rows = min(max_rows, _PROBE_ROWS)
        layout = PageLayout(1, self.config.kv_heads, self.config.head_dim, _PROBE_ROWS, self.dtype)
        session = Session(owner=None, tokens=[0] * rows)
        session.pages.append(0)
        session.pages.take_row(0)
        step = Step.of([Part(session, 0, rows)], layout.page_size)
        counter = PeakBytes()

        def probe() -> None:
            pool = self.make_pool(layout, 1)
            with counter:
                self.run_layer(0, self.embed(session.tokens), step, pool)

        self.call(probe)
        return counter.peak * -(-max_rows // rows)

    def _on_device(self, numbers: Ints) -> torch.Tensor:
        return torch.from_numpy(numbers).to(self.device, torch.int64)
