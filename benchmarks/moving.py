"""Keys that are moved again and again: what keeps an error from staying that of one rounding."""

from dataclasses import dataclass, field, replace

import torch

from engine.coded.codec import Codec, Codes, Coding
from engine.coded.pool import CodedPool
from engine.coded.teacher_forcing import TeacherForcing
from engine.model_config import ModelConfig
from engine.reference.model import rotate


@dataclass
class _Frame:
    """How far keys are rotated where they lie: cosines and sines, [1, head_dim]."""

    cos: torch.Tensor
    sin: torch.Tensor


@dataclass(frozen=True)
class _MovedCoding(Coding):
    """Codes of keys as they are in a frame, given and taken as they are outside of it.

    An engine that moves its keys rotates its queries alike; here the keys are rotated back when
    they are read, without rounding, which gives the same scores.
    """

    frame: _Frame = field(kw_only=True)

    def encode(self, x: torch.Tensor) -> Codes:
        return super().encode(rotate(x.float(), self.frame.cos, self.frame.sin))

    def decode(self, codes: Codes) -> torch.Tensor:
        return rotate(super().decode(codes), self.frame.cos, -self.frame.sin)


class MovingKeys:
    """A codec whose keys are all moved to other positions from time to time.

    Attributes:
        codec: for the layout of a sequence.
    """

    def __init__(self, codec: Codec, config: ModelConfig) -> None:
        self._frequencies = torch.tensor(config.rope.inverse_frequencies(config.head_dim))
        self._frame = _Frame(*self._rotation(0))
        self._moved = 0
        self.codec = replace(
            codec, keys=_MovedCoding(codec.keys.name, codec.keys.signed, frame=self._frame)
        )

    @torch.inference_mode()
    def move(self, forced: TeacherForcing, positions: int) -> None:
        """Decode a sequence's coded pages, move the keys on, and code all of it again."""
        pool, pages = forced.pool, forced.coded_pages
        assert isinstance(pool, CodedPool)
        tokens = len(pages) * pool.page_size
        table, place = torch.tensor(pages, dtype=torch.int64), torch.arange(tokens)
        decoded = [pool.read(layer, table, tokens) for layer in range(pool.layout.layers)]
        self._moved += positions
        self._frame.cos, self._frame.sin = self._rotation(self._moved)
        if not pages:
            return
        scratch = forced.executor.make_pool(replace(pool.layout, layers=1), len(pages))
        for layer, halves in enumerate(decoded):
            keys, values = (half.transpose(0, 1) for half in halves)
            scratch.write(0, place, keys, values)
            pool.take_layer(layer, scratch, pages)

    def _rotation(self, positions: int) -> tuple[torch.Tensor, torch.Tensor]:
        angles = (positions * self._frequencies.double()).repeat(2)[None]
        return angles.cos().float(), angles.sin().float()
