"""What a page weighs, and how many pages a sequence needs. Arithmetic only."""

from dataclasses import dataclass

import torch

from engine.kv.codec import Codec
from engine.model_config import ModelConfig

WINDOW_TOKENS = 128


@dataclass(frozen=True)
class PageLayout:
    """Pages of one pool.

    The pool is an array of slots, each of which holds one coded page. A page in full precision
    takes a frame: as many slots side by side as it needs. So memory goes to either kind as it is
    asked for, and what a frame is too large for its page by is the price of that.

        slots    | 0 | 1 | 2 | 3 | 4 | 5 | ...      int4 in bfloat16: 4 slots a frame
        frames   |       0       |     1 ...

    A pool without a codec has frames of one slot.

    Attributes:
        dtype: of pages in full precision.
        codec: of the others; None where there are none.
        window_tokens: newest tokens of a sequence whose KV stays in full precision.
    """

    layers: int
    kv_heads: int
    head_dim: int
    page_size: int
    dtype: torch.dtype
    codec: Codec | None = None
    window_tokens: int = WINDOW_TOKENS

    @staticmethod
    def of(
        model: ModelConfig, page_size: int, dtype: torch.dtype, codec: Codec | None = None
    ) -> "PageLayout":
        return PageLayout(model.layers, model.kv_heads, model.head_dim, page_size, dtype, codec)

    @property
    def plain_layer_bytes(self) -> int:
        """Keys and values of one layer's page in full precision."""
        return 2 * self.kv_heads * self.page_size * self.head_dim * self.dtype.itemsize

    @property
    def slot_layer_bytes(self) -> int:
        """One layer's part of a slot."""
        if self.codec is None:
            return self.plain_layer_bytes
        return self.codec.page_bytes(self.kv_heads, self.page_size, self.head_dim)

    @property
    def slots_per_frame(self) -> int:
        return -(-self.plain_layer_bytes // self.slot_layer_bytes)

    @property
    def slot_bytes(self) -> int:
        return self.layers * self.slot_layer_bytes

    @property
    def frame_bytes(self) -> int:
        return self.slot_bytes * self.slots_per_frame

    def pages(self, tokens: int) -> int:
        return -(-tokens // self.page_size)

    def coded_range(self, tokens: int, first: int = 1) -> range:
        """Which pages of a sequence of so many tokens are coded: those before the window.

        Args:
            tokens: of the sequence.
            first: pages at the beginning that are not: the first one, or the static prompt's. Much
                attention rests on the first tokens, whatever they are (StreamingLLM; Xiao et al.,
                2023).
        """
        if self.codec is None:
            return range(0)
        return range(max(first, 1), max((tokens - self.window_tokens) // self.page_size, first, 1))

    def slots(self, tokens: int, shared: int = 0) -> int:
        """Slots for a sequence of so many tokens beside `shared` pages that it need not pay for."""
        coded = len(self.coded_range(tokens, shared))
        plain = max(self.pages(tokens) - shared - coded, 0)
        return plain * self.slots_per_frame + coded
