"""How much memory KV takes, worked out from a model's sizes: by attention, by codec.

Sessions share nothing here, and every page is counted whole: what a pool that holds nothing else
would need. Arithmetic over `PageLayout` only; no model and no weights.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from engine.calculator.shape import Latent, Shape
from engine.coded.codec import ALIGNMENT, CODECS, Codec
from engine.coded.layout import CodedLayout
from engine.errors import SettingError
from engine.kv.layout import PageLayout

PLAIN = ("float32", "bfloat16", "float16")
KV_DTYPES = (*PLAIN, "fp8", "int8", "k8v4", "int4")
MOST_TOKENS = 10**9
MOST_SESSIONS = 10**6

_EXAMPLE_GROUP = 4  # in the example of GQA so many query heads share KV, as 32 share 8


@dataclass(frozen=True)
class Need:
    """What is asked for.

    Attributes:
        tokens: how many each session has.
        memory_bytes: how much memory KV may take.
        dtype: what pages are held in that stay in full precision where the others are coded.
    """

    tokens: int
    sessions: int
    memory_bytes: int
    page_size: int = 16
    dtype: str = "bfloat16"

    def __post_init__(self) -> None:
        for name, size, most in (
            ("tokens", self.tokens, MOST_TOKENS),
            ("sessions", self.sessions, MOST_SESSIONS),
        ):
            if not 1 <= size <= most:
                raise SettingError(f"--{name} must lie between 1 and {most:,}, not {size:,}.")
        if self.dtype not in PLAIN:
            raise SettingError(f"--dtype must be one of {', '.join(PLAIN)}, not {self.dtype!r}.")


@dataclass(frozen=True)
class Attention:
    """One way in which heads share keys and values.

    Attributes:
        own: whether the model is like that; the others are the same model with other heads.
    """

    name: str
    kv_heads: int
    own: bool


@dataclass(frozen=True)
class Size:
    """KV in one dtype.

    Attributes:
        token_bytes: what one token takes, scales included; on a coded page where pages are coded.
        session_bytes: what one session takes. Its first page and its recent window stay in full
            precision.
        longest_tokens: how long one session can get if it has all the memory.
        sessions_that_fit: how many sessions of that length the memory holds.
    """

    token_bytes: float
    session_bytes: int
    total_bytes: int
    longest_tokens: int
    sessions_that_fit: int


@dataclass(frozen=True)
class Row:
    """A size, or the reason why there is none."""

    kv_dtype: str
    size: Size | None
    refused: str = ""


@dataclass(frozen=True)
class LatentLayout(PageLayout):
    """Pages of MLA: one latent of `head_dim` numbers for keys and values, and a rotated part.

    No engine of ours runs it. Assumed is that the latent is coded as a head's keys are, and that
    the rotated part stays in full precision.
    """

    rotary: int = 0

    @property
    def page_layer_bytes(self) -> int:
        return self.page_size * (self.head_dim + self.rotary) * self.dtype.itemsize


@dataclass(frozen=True)
class CodedLatentLayout(CodedLayout):
    """The same with a codec."""

    rotary: int = 0

    @property
    def page_layer_bytes(self) -> int:
        return self.page_size * (self.head_dim + self.rotary) * self.dtype.itemsize

    @property
    def slot_layer_bytes(self) -> int:
        size = self.codec.keys.bytes(self.page_size, self.head_dim)
        size += self.page_size * self.rotary * self.dtype.itemsize
        return -(-size // ALIGNMENT) * ALIGNMENT


def attentions(shape: Shape) -> list[Attention]:
    """The model's own and the others to compare it with: MHA, GQA, MQA, and MLA where it has it."""
    own = 0 if shape.latent else shape.kv_heads
    shared = shape.kv_heads
    if not 1 < shared < shape.heads:  # the model is no GQA: the usual one stands for it
        shared = shape.heads // _EXAMPLE_GROUP if shape.heads % _EXAMPLE_GROUP == 0 else 0
    counts = [("MHA", shape.heads), ("GQA", shared if shared > 1 else 0), ("MQA", 1)]
    if shape.heads == 1:
        counts = counts[:1]
    found = [Attention(name, count, count == own) for name, count in counts if count]
    return [*found, Attention("MLA", 1, True)] if shape.latent else found


def rows(shape: Shape, attention: Attention, need: Need) -> Iterator[Row]:
    """A row for each dtype in which pages can be held."""
    latent = shape.latent if attention.name == "MLA" else None
    for name in KV_DTYPES:
        try:
            yield Row(name, _size(_layout(shape, attention, latent, name, need), need))
        except SettingError as error:
            yield Row(name, None, str(error))


def _layout(
    shape: Shape, attention: Attention, latent: Latent | None, kv_dtype: str, need: Need
) -> PageLayout:
    head_dim = latent.rank if latent else shape.head_dim
    plain = kv_dtype if kv_dtype in PLAIN else need.dtype
    codec = Codec.of(kv_dtype, head_dim) if kv_dtype in CODECS else None
    if latent and codec and codec.keys.name != codec.values.name:
        raise SettingError("MLA keeps one latent for both: there are no values to code apart.")
    sizes = (shape.layers, attention.kv_heads, head_dim, need.page_size, getattr(torch, plain))
    if codec is None:
        return LatentLayout(*sizes, latent.rotary) if latent else PageLayout(*sizes)
    if latent:
        return CodedLatentLayout(*sizes, codec, rotary=latent.rotary)
    return CodedLayout(*sizes, codec)


def _size(layout: PageLayout, need: Need) -> Size:
    session = layout.units(need.tokens)
    # A pool is made of whole frames.
    slots = need.memory_bytes // layout.page_bytes * layout.units_per_page
    pages = bisect_right(
        range(1, slots + 1), slots, key=lambda pages: layout.units(pages * layout.page_size)
    )
    return Size(
        token_bytes=layout.unit_bytes / layout.page_size,
        session_bytes=session * layout.unit_bytes,
        total_bytes=need.sessions * session * layout.unit_bytes,
        longest_tokens=pages * layout.page_size,
        sessions_that_fit=slots // session,
    )
