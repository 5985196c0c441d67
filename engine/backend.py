"""Which code computes: the native kernels where they can be had, PyTorch everywhere else."""

from collections.abc import Callable
from typing import NamedTuple

import torch

from engine.config import DTYPES, EngineConfig
from engine.device import choose_dtype
from engine.errors import SettingError
from engine.executor import Executor
from engine.model_config import ModelConfig
from engine.native import build
from engine.native.build import NativeLibrary, NativeUnavailable
from engine.native.executor import NativeExecutor, obstacle
from engine.native.weights import NativeWeights
from engine.reference.executor import ReferenceExecutor
from engine.reference.weights import read_weights
from engine.weight_scheme import SchemedTensors
from engine.weights import Tensors


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
    if config.kv_dtype in DTYPES and config.kv_dtype not in ("auto", "bfloat16"):
        return f"the native kernels keep KV in bfloat16 or a codec, not {config.kv_dtype}"
    codec = None if config.kv_dtype in DTYPES else config.kv_dtype
    return obstacle(model, config.page_size, codec)


def make_executor(
    backend: Backend,
    config: EngineConfig,
    model: ModelConfig,
    tensors: Tensors,
    device: torch.device,
) -> Executor:
    """Read the weights.

    Raises:
        WeightsUnusable: a tensor is missing or has the wrong shape.
    """
    schemed = SchemedTensors(tensors, config.weights)
    if backend.native is not None:
        weights = NativeWeights(model, schemed)
        return NativeExecutor(backend.native, model, weights, torch.get_num_threads())
    return ReferenceExecutor(model, read_weights(model, schemed, device, backend.dtype))
