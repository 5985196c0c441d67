"""What pages weigh where some of them are coded. Arithmetic only."""

from dataclasses import dataclass

from engine.coded.codec import Codec
from engine.kv.layout import PageLayout

WINDOW_TOKENS = 128


@dataclass(frozen=True)
class CodedLayout(PageLayout):
    """Pages of a pool that holds coded pages beside plain ones, which are in full precision.

    The pool is an array of slots, each of which holds one coded page. A plain page takes a frame:
    as many slots side by side as it needs. So memory goes to either kind as it is asked for. The
    price is the gap at the end of a frame, where slots do not fill it exactly.

        slots    | 0 | 1 | 2 | 3 | 4 | 5 | ...      int4 in bfloat16: 4 slots a frame
        frames   |       0       |     1 ...

    Attributes:
        dtype: of plain pages.
        codec: of coded pages.
        window_tokens: newest tokens of a sequence whose KV stays in full precision.
    """

    codec: Codec
    window_tokens: int = WINDOW_TOKENS

    @staticmethod
    def of(plain: PageLayout, codec: Codec, window_tokens: int = WINDOW_TOKENS) -> "CodedLayout":
        """The layout with a codec for pages that leave the window."""
        sizes = (plain.layers, plain.kv_heads, plain.head_dim, plain.page_size, plain.dtype)
        return CodedLayout(*sizes, codec, window_tokens)

    @property
    def plain(self) -> PageLayout:
        """The same pages without a codec."""
        return PageLayout(self.layers, self.kv_heads, self.head_dim, self.page_size, self.dtype)

    @property
    def name(self) -> str:
        """What KV before the window is held in: the codec."""
        return self.codec.name

    @property
    def slot_layer_bytes(self) -> int:
        """One layer's part of a slot."""
        return self.codec.page_bytes(self.kv_heads, self.page_size, self.head_dim)

    @property
    def slots_per_frame(self) -> int:
        return -(-self.page_layer_bytes // self.slot_layer_bytes)

    @property
    def page_bytes(self) -> int:
        """What the pool spends on a plain page: a frame."""
        return self.unit_bytes * self.slots_per_frame

    @property
    def unit_bytes(self) -> int:
        """What a slot weighs, all layers."""
        return self.layers * self.slot_layer_bytes

    @property
    def units_per_page(self) -> int:
        return self.slots_per_frame

    def coded_range(self, tokens: int, first: int = 1) -> range:
        """Which pages of a sequence of so many tokens are coded: those before the window.

        Args:
            tokens: of the sequence.
            first: pages at the beginning that are not: the first one, or the static prompt's. Much
                attention rests on the first tokens, whatever they are (StreamingLLM; Xiao et al.,
                2023).
        """
        return range(max(first, 1), max((tokens - self.window_tokens) // self.page_size, first, 1))

    def units(self, tokens: int, shared: int = 0) -> int:
        """Slots for a sequence of so many tokens beside `shared` pages that others pay for."""
        coded = len(self.coded_range(tokens, shared))
        plain = max(self.pages(tokens) - shared - coded, 0)
        return plain * self.slots_per_frame + coded
