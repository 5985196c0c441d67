"""From a configuration to a model on its device with a pool that fits: what happens at start."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

from engine.backend import Model, choose, make_model
from engine.chat_format import ChatFormat
from engine.config import EngineConfig
from engine.device import choose_device, free_bytes, ram_limit_bytes
from engine.errors import PoolTooSmall
from engine.kv.pool import PagePool
from engine.model_config import ModelConfig
from engine.tokenizer import Tokenizer
from engine.weights import Tensors, chat_template, model_folder, read_json, stop_tokens


class LoadedModel(NamedTuple):
    name: str
    backend: str
    model: Model
    tokenizer: Tokenizer
    format: ChatFormat
    pool: PagePool


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
    pages = pool_pages(config, model_config, device, model.dtype)
    pool = PagePool(
        model_config, pages, config.page_size, device, model.dtype,
        lanes=backend.native is not None,
    )  # fmt: skip
    return LoadedModel(
        _name(config.model), backend.description, model, tokenizer, chat_format, pool
    )


def pool_pages(
    config: EngineConfig, model: ModelConfig, device: torch.device, dtype: torch.dtype
) -> int:
    """How many pages the pool gets, after the weights are loaded.

    Raises:
        PoolTooSmall: what was asked for does not fit the device, or fits less than two pages.
    """
    page_bytes = PagePool.bytes_per_page(model, config.page_size, dtype)
    free = free_bytes(device)
    contexts = -(-model.context_tokens // config.page_size) * config.max_sessions + 1
    if config.kv.size_bytes is not None:
        wanted = config.kv.size_bytes
    elif config.kv.fraction is not None:
        wanted = int(free * config.kv.fraction)
    else:
        share = ram_limit_bytes() // 4 if device.type == "cpu" else int(free * 0.9)
        wanted = min(share, contexts * page_bytes, int(free * 0.9))
    if wanted > free:
        raise PoolTooSmall(
            f"A KV pool of {_size(wanted)} does not fit: {_size(free)} of memory are free. "
            f"Use --kv-memory {free // 2**21}MiB or less."
        )
    pages = wanted // page_bytes
    if pages < 2:
        raise PoolTooSmall(
            f"A KV pool of {_size(wanted)} holds {pages} pages of {_size(page_bytes)}; "
            f"at least two are needed, and {_size(contexts * page_bytes)} hold "
            f"{config.max_sessions} full contexts."
        )
    return int(pages)


def _name(model: str) -> str:
    path = Path(model).expanduser()
    return path.stem if path.is_file() else path.name if path.is_dir() else model


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}"
        count /= 1024
    return f"{count:,.1f} GiB"
