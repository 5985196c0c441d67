"""From a configuration to a model on its device with a pool that fits: what happens at start."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from engine.backend import Model, choose, make_model
from engine.chat_format import ChatFormat
from engine.config import EngineConfig
from engine.device import choose_device, free_bytes, ram_limit_bytes
from engine.errors import PoolTooSmall
from engine.gate import Gate
from engine.kv.codec import CODECS, Codec
from engine.kv.layout import PageLayout
from engine.kv.pool import PagePool
from engine.model_config import ModelConfig
from engine.native.build import cache_folder
from engine.native.decoder import obstacle
from engine.tokenizer import Tokenizer
from engine.weights import Tensors, chat_template, model_folder, read_json, stop_tokens


class LoadedModel(NamedTuple):
    """A model that is ready.

    Attributes:
        notices: what is not as it was asked for, in a sentence each.
    """

    name: str
    backend: str
    model: Model
    tokenizer: Tokenizer
    format: ChatFormat
    pool: PagePool
    notices: tuple[str, ...]


def load(config: EngineConfig, progress: Callable[[str], None]) -> LoadedModel:
    """Read the model and allocate its KV pool.

    Raises:
        EngineError: of the kind that fits; its message says what to do.
    """
    device = choose_device(config.device)
    folder = model_folder(config.model, config.convert_dir, progress)
    model_config = ModelConfig.from_json(read_json(folder, "config.json"))
    tokenizer = Tokenizer(folder)
    template, variables = chat_template(folder)
    chat_format = ChatFormat(tokenizer, template, variables, stop_tokens(folder, tokenizer.special))
    for difference in chat_format.differences:
        progress(difference)
    backend = choose(config, model_config, device, progress)
    progress("Loading the weights")
    with Tensors(folder) as tensors:
        model = make_model(backend, config, model_config, tensors, device)
    wanted = kv_layout(config, model_config, device, model.dtype, backend.native is not None)
    gate = Gate(folder, model, tokenizer.encode, config.native_dir or cache_folder(), progress)
    layout, notices = gate.choose(wanted)
    pool = model.make_pool(layout, pool_frames(config, model_config, device, layout))
    return LoadedModel(
        _name(config.model), backend.description, model, tokenizer, chat_format, pool, notices
    )


def kv_layout(
    config: EngineConfig,
    model: ModelConfig,
    device: torch.device,
    dtype: torch.dtype,
    native: bool = False,
) -> PageLayout:
    """What the pool's pages are.

    Args:
        config: says which codec, or leaves it to what the device holds.
        model: whose KV it is.
        device: where the pool lies.
        dtype: of the arithmetic.
        native: whether the native kernels read it, which don't take all heads in codes.

    Raises:
        SettingError: the codec cannot take the model's heads.
    """
    name = config.kv_dtype
    plain = PageLayout.of(model, config.page_size, dtype)
    if name == "auto":
        wanted = _contexts(config, model) * plain.frame_bytes
        fits = wanted <= _device_share(device)
        unread = native and obstacle(model, config.page_size, "int8") is not None
        name = "auto" if fits or unread else "int8"
    if name in CODECS:
        return replace(plain, codec=Codec.of(name, model.head_dim))
    return plain if name == "auto" else replace(plain, dtype=getattr(torch, name))


def pool_frames(
    config: EngineConfig, model: ModelConfig, device: torch.device, layout: PageLayout
) -> int:
    """How many frames the pool gets, after the weights are loaded.

    Raises:
        PoolTooSmall: what was asked for does not fit the device, or fits less than two pages.
    """
    free = free_bytes(device)
    contexts = _contexts(config, model)
    if layout.codec is not None:
        contexts = config.max_sessions * layout.slots(model.context_tokens)
        contexts = -(-contexts // layout.slots_per_frame) + 1
    if config.kv.size_bytes is None and config.kv.fraction is None:
        wanted = min(_share(config, device), contexts * layout.frame_bytes, int(free * 0.9))
    else:
        wanted = _share(config, device)
    if wanted > free:
        raise PoolTooSmall(
            f"A KV pool of {_size(wanted)} does not fit: {_size(free)} of memory are free. "
            f"Use --kv-memory {free // 2**21}MiB or less."
        )
    frames = wanted // layout.frame_bytes
    if frames < 2:
        raise PoolTooSmall(
            f"A KV pool of {_size(wanted)} holds {frames} pages of {_size(layout.frame_bytes)}; "
            f"at least two are needed, and {_size(contexts * layout.frame_bytes)} hold "
            f"{config.max_sessions} full contexts."
        )
    return int(frames)


def _contexts(config: EngineConfig, model: ModelConfig) -> int:
    """Plain pages of `max_sessions` full contexts."""
    return -(-model.context_tokens // config.page_size) * config.max_sessions + 1


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
