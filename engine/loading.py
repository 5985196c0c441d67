"""From a configuration to a model on its device with a pool that fits: what happens at start."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

from engine.backend import Backend, choose, make_executor
from engine.chat_format import ChatFormat
from engine.config import DTYPES, EngineConfig
from engine.device import choose_device, free_bytes, ram_limit_bytes
from engine.errors import PoolTooSmall
from engine.executor import Executor
from engine.kv.layout import PageLayout
from engine.kv.pool import PagePool
from engine.model_config import ModelConfig
from engine.native.build import cache_folder
from engine.native.executor import obstacle
from engine.reference.executor import ReferenceExecutor
from engine.reference.weights import read_weights
from engine.tokenizer import Tokenizer
from engine.weight_scheme import SchemedTensors
from engine.weights import Tensors, chat_template, model_folder, read_json, stop_tokens


class LoadedModel(NamedTuple):
    """A model that is ready.

    Attributes:
        step_tokens: that there is workspace for in a step.
        notices: what is not as it was asked for, in a sentence each.
    """

    name: str
    backend: str
    executor: Executor
    tokenizer: Tokenizer
    format: ChatFormat
    pool: PagePool
    step_tokens: int
    notices: tuple[str, ...]


def load(config: EngineConfig, progress: Callable[[str], None]) -> LoadedModel:
    """Read the model and allocate its KV pool.

    Raises:
        EngineError: of the kind that fits; its message says what to do.
    """
    device = choose_device(config.device)
    folder = model_folder(config.model, config.convert_dir, progress)
    model = ModelConfig.from_json(read_json(folder, "config.json"))
    tokenizer = Tokenizer(folder)
    template, variables = chat_template(folder)
    chat_format = ChatFormat(tokenizer, template, variables, stop_tokens(folder, tokenizer.special))
    for difference in chat_format.differences:
        progress(difference)
    backend = choose(config, model, device, progress)
    progress("Loading the weights")
    with Tensors(folder) as tensors:
        executor = make_executor(backend, config, model, tensors, device)
    try:
        layout, notices = _choose_layout(config, folder, executor, tokenizer, backend, progress)
        # No CPU computes more in the time that a step should take.
        step_tokens = 2048 if device.type == "cpu" else 8192
        workspace = executor.profile(step_tokens + config.max_sessions)
        frames = pool_frames(config, model, device, layout, workspace)
        pool = executor.make_pool(layout, frames, config.max_sessions)
    except BaseException:
        executor.shutdown()  # nobody else knows of its thread yet
        raise
    return LoadedModel(
        name=_name(config.model),
        backend=backend.description,
        executor=executor,
        tokenizer=tokenizer,
        format=chat_format,
        pool=pool,
        step_tokens=step_tokens,
        notices=notices,
    )


def _choose_layout(
    config: EngineConfig,
    folder: Path,
    executor: Executor,
    tokenizer: Tokenizer,
    backend: Backend,
    progress: Callable[[str], None],
) -> tuple[PageLayout, tuple[str, ...]]:
    """What the pool's pages are, and what has to be said about it."""
    model, device = executor.config, executor.device
    plain = plain_layout(config, model, executor.dtype)
    codec = codec_name(config, model, device, plain, backend.native is not None)
    if codec is None:
        return plain, ()
    from engine.coded.codec import Codec
    from engine.coded.gate import Gate
    from engine.coded.layout import CodedLayout

    gate = Gate(
        folder,
        executor,
        lambda: wide_executor(folder, model, device),
        tokenizer.encode,
        config.native_dir or cache_folder(),
        progress,
    )
    return gate.choose(CodedLayout.of(plain, Codec.of(codec, model.head_dim)))


def wide_executor(folder: Path, model: ModelConfig, device: torch.device) -> Executor:
    """The model in float32, whatever it is used in: what is measured against."""
    with Tensors(folder) as tensors:
        weights = read_weights(model, SchemedTensors(tensors, "auto"), device, torch.float32)
    return ReferenceExecutor(model, weights)


def plain_layout(config: EngineConfig, model: ModelConfig, dtype: torch.dtype) -> PageLayout:
    """What the pool's pages in full precision are.

    Args:
        config: says in which dtype, or leaves it to the arithmetic.
        model: whose KV it is.
        dtype: of the arithmetic.
    """
    if config.kv_dtype in DTYPES and config.kv_dtype != "auto":
        dtype = getattr(torch, config.kv_dtype)
    return PageLayout(model.layers, model.kv_heads, model.head_dim, config.page_size, dtype)


def codec_name(
    config: EngineConfig,
    model: ModelConfig,
    device: torch.device,
    plain: PageLayout,
    native: bool = False,
) -> str | None:
    """The codec that is wanted for older pages, if any.

    Args:
        config: says which, or leaves it to what the device holds.
        model: whose KV it is.
        device: where the pool lies.
        plain: the layout without a codec.
        native: whether the native kernels read it, which don't take all heads in codes.
    """
    if config.kv_dtype != "auto":
        return None if config.kv_dtype in DTYPES else config.kv_dtype
    fits = _contexts(config, model, plain) * plain.page_bytes <= _device_share(device)
    unread = native and obstacle(model, config.page_size, "int8") is not None
    return None if fits or unread else "int8"


def pool_frames(
    config: EngineConfig,
    model: ModelConfig,
    device: torch.device,
    layout: PageLayout,
    workspace: int = 0,
) -> int:
    """How many plain pages the pool has room for, after the weights are loaded.

    Args:
        config: says how much memory it may take, or leaves it to the device.
        model: whose KV it is.
        device: where the pool lies.
        layout: of its pages.
        workspace: bytes that steps take beside it.

    Raises:
        PoolTooSmall: what was asked for does not fit the device, or fits less than two pages.
    """
    free = free_bytes(device) - workspace
    contexts = _contexts(config, model, layout)
    if config.kv.size_bytes is None and config.kv.fraction is None:
        wanted = min(_share(config, device), contexts * layout.page_bytes, int(free * 0.9))
    else:
        wanted = _share(config, device)
    if wanted > free:
        raise PoolTooSmall(
            f"A KV pool of {_size(wanted)} does not fit: {_size(max(free, 0))} of memory are free "
            f"beside {_size(workspace)} to compute in. Use --kv-memory "
            f"{max(free, 0) // 2**21}MiB or less."
        )
    frames = wanted // layout.page_bytes
    if frames < 2:
        raise PoolTooSmall(
            f"A KV pool of {_size(wanted)} holds {frames} pages of {_size(layout.page_bytes)}; "
            f"at least two are needed, and {_size(contexts * layout.page_bytes)} hold "
            f"{config.max_sessions} full contexts."
        )
    return int(frames)


def _contexts(config: EngineConfig, model: ModelConfig, layout: PageLayout) -> int:
    """Room for `max_sessions` full contexts, in plain pages."""
    units = config.max_sessions * layout.units(model.context_tokens)
    return -(-units // layout.units_per_page) + 1


def _share(config: EngineConfig, device: torch.device) -> int:
    """Bytes that the KV pool may have."""
    if config.kv.size_bytes is not None:
        return config.kv.size_bytes
    if config.kv.fraction is not None:
        return int(free_bytes(device) * config.kv.fraction)
    return _device_share(device)


def _device_share(device: torch.device) -> int:
    """What the pool gets of a device at most, where nothing else is said."""
    return ram_limit_bytes() // 4 if device.type == "cpu" else int(free_bytes(device) * 0.9)


def _name(model: str) -> str:
    path = Path(model).expanduser()
    return path.stem if path.is_file() else path.name if path.is_dir() else model


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}"
        count /= 1024
    return f"{count:,.1f} GiB"
