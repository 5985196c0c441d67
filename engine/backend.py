"""Which code computes: the native decoder where it can be had, PyTorch everywhere else."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch

from engine.attention.batch import Batch
from engine.attention.reference import ReferenceAttention
from engine.config import EngineConfig
from engine.device import choose_dtype
from engine.errors import SettingError
from engine.kv.codec import CODECS
from engine.kv.layout import PageLayout
from engine.kv.pool import PagePool
from engine.model import Decoder
from engine.model_config import ModelConfig
from engine.native import build
from engine.native.build import NativeLibrary, NativeUnavailable
from engine.native.decoder import NativeDecoder, obstacle
from engine.weight_scheme import SchemedTensors
from engine.weights import Tensors


class Model(Protocol):
    """A decoder with its weights, whatever computes it.

    Attributes:
        torch_threads: how many threads PyTorch uses for a step. One beside the native decoder: for
            the little that is left, more would only wait in a native thread's place.
    """

    config: ModelConfig
    device: torch.device
    dtype: torch.dtype
    torch_threads: int

    @property
    def weights_bytes(self) -> int: ...

    def forward(self, batch: Batch, pool: PagePool) -> torch.Tensor:
        """Logits of a batch; writes keys and values to the pool. See `Decoder.forward`."""
        ...

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """See `Decoder.embed`."""
        ...

    def run_layer(self, layer: int, x: torch.Tensor, batch: Batch, pool: PagePool) -> torch.Tensor:
        """See `Decoder.run_layer`."""
        ...

    def make_pool(self, layout: PageLayout, frames: int) -> PagePool:
        """See `Decoder.make_pool`."""
        ...


class Backend(NamedTuple):
    """What computes.

    Attributes:
        native: the library; None means PyTorch.
        dtype: of keys and values, and of PyTorch's weights and arithmetic.
        description: for people, with the reason where it is not native.
    """

    native: NativeLibrary | None
    dtype: torch.dtype
    description: str


def choose(
    config: EngineConfig,
    model: ModelConfig,
    device: torch.device,
    progress: Callable[[str], None],
) -> Backend:
    """The backend for the settings.

    Raises:
        SettingError: native was asked for and cannot be had, or the settings contradict each other.
    """
    if device.type == "cuda" and config.weights in ("int8", "int4"):
        raise SettingError(
            f"--weights {config.weights} is for a CPU: leave it out, or use --device cpu."
        )
    reason = _obstacle(config, model, device)
    if reason is None:
        try:
            library = build.load(folder=config.native_dir, progress=progress)
            return Backend(library, torch.bfloat16, f"native ({library.variant})")
        except NativeUnavailable as unavailable:
            reason = str(unavailable)
    if config.backend == "native":
        raise SettingError(f"The native backend cannot be used: {reason}")
    return Backend(None, choose_dtype(config.dtype, device), f"PyTorch ({reason})")


def _obstacle(config: EngineConfig, model: ModelConfig, device: torch.device) -> str | None:
    if config.backend == "torch":
        return "as set"
    if device.type != "cpu":
        return "on a GPU"
    if config.dtype not in ("auto", "bfloat16"):
        return f"the native kernels keep KV in bfloat16, not {config.dtype}"
    if config.kv_dtype not in ("auto", "bfloat16", *CODECS):
        return f"the native kernels keep KV in bfloat16 or a codec, not {config.kv_dtype}"
    return obstacle(model, config.page_size, config.kv_dtype if config.kv_dtype in CODECS else None)


def make_model(
    backend: Backend,
    config: EngineConfig,
    model: ModelConfig,
    tensors: Tensors,
    device: torch.device,
) -> Model:
    """Read the weights.

    Raises:
        WeightsUnusable: a tensor is missing or has the wrong shape.
    """
    schemed = SchemedTensors(tensors, config.weights)
    if backend.native is not None:
        return NativeDecoder(backend.native, model, schemed, torch.get_num_threads())
    attention = ReferenceAttention(model.sliding_window)
    return Decoder(model, schemed, device, backend.dtype, attention)
