"""Which numbers a model's weights are held in: the setting `weights`."""

from collections.abc import Mapping
from typing import Literal

import torch

from engine.quantised import GROUP, Bits, Quantised, quantise
from engine.weights import Tensors

Weights = Literal["auto", "bfloat16", "int8", "int4"]


class SchemedTensors:
    """A model's tensors in the numbers of a scheme.

    `bfloat16` keeps what the files hold; `int8` and `int4` hold every matrix in groups of 32, the
    file's own groups where it is quantised that way, and the embedding and the head never in less
    than 8 bits. `auto` takes a quantised file's own groups, and rounds others to 8 bits where
    matrices are asked for in groups.

    Attributes:
        prefix: of the decoder's tensors' names.
        embedding: name of the embedding, without `.weight`.
    """

    def __init__(self, tensors: Tensors, weights: Weights) -> None:
        self._tensors = tensors
        self._weights = weights
        self.prefix = "model." if "model.embed_tokens.weight" in tensors else ""
        self.embedding = f"{self.prefix}embed_tokens"

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def get(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """One tensor, with the scheme's rounding in it.

        Raises:
            WeightsUnusable: it is missing or has another shape.
        """
        if self._weights in ("int8", "int4") and len(shape) == 2 and not shape[1] % GROUP:
            return self._quantised(name, shape, self._bits(name)).dequantise()
        return self._tensors.get(name, shape)

    def matrices(self, shapes: Mapping[str, tuple[int, int]]) -> list[torch.Tensor | Quantised]:
        """Matrices in the scheme's form, all of one kind.

        Raises:
            WeightsUnusable: one is missing or has another shape.
        """
        if self._weights == "bfloat16":
            return [self._tensors.get(name, shape) for name, shape in shapes.items()]
        if self._weights == "auto":
            own = [self._tensors.quantised(name, shape) for name, shape in shapes.items()]
            kinds = {matrix.bits if matrix else None for matrix in own}
            if len(kinds) == 1 and None not in kinds:
                return [matrix for matrix in own if matrix]
            return [self._quantised(name, shape, 8) for name, shape in shapes.items()]
        return [self._quantised(name, shape, self._bits(name)) for name, shape in shapes.items()]

    def _bits(self, name: str) -> Bits:
        wide = self._weights == "int8" or name in (f"{self.embedding}.weight", "lm_head.weight")
        return 8 if wide else 4

    def _quantised(self, name: str, shape: tuple[int, ...], bits: Bits) -> Quantised:
        own = self._tensors.quantised(name, shape)
        if own is not None and own.bits == bits:
            return own
        return quantise(self._tensors.get(name, shape), bits)
