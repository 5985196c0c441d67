"""`kv-size`: how much memory a model's KV takes, from its sizes alone. No weights are read."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from engine.config import KVMemory
from engine.errors import SettingError
from host.errors import SettingRefused
from host.models import resolve
from host.settings import Settings


def kv_size(
    settings: Settings,
    *,
    model: str | None,
    sizes: Mapping[str, int | None],
    tokens: int,
    sessions: int,
    dtype: str,
    memory: str,
) -> dict[str, Any]:
    """The sizes, and what KV takes by attention and dtype, as the command prints it.

    Args:
        model: whose configuration is read; None where all sizes are given.
        sizes: layers, heads, kv_heads, head_dim; they win over the configuration's.
        dtype: of pages in full precision where the others are coded.
        memory: in the notation of --kv-memory; auto is all that the device has.
    """
    from engine.calculator.shape import Shape, read_config
    from engine.calculator.size import Need, attentions, rows
    from engine.coded.layout import WINDOW_TOKENS

    config = read_config(resolve(model, settings.models_dir)) if model is not None else {}
    shape = Shape.of(config, sizes)
    memory_bytes, memory_name = _memory(memory, settings.device)
    need = Need(tokens, sessions, memory_bytes, settings.page_size, dtype)
    return {
        "model": model,
        "shape": asdict(shape) | {"latent": shape.latent and shape.latent._asdict()},
        **asdict(need),
        "memory": memory_name,
        "window_tokens": WINDOW_TOKENS,
        "attentions": [
            asdict(attention) | {"rows": [asdict(row) for row in rows(shape, attention, need)]}
            for attention in attentions(shape)
        ],
    }


def _memory(text: str, device_name: str) -> tuple[int, str]:
    from engine.device import choose_device, device_memory, free_bytes

    try:
        wanted = KVMemory.parse(text)
    except SettingError as error:
        raise SettingRefused(str(error).replace("kv-memory", "--memory", 1)) from None
    if wanted.size_bytes is not None:
        return wanted.size_bytes, "as given"
    device = choose_device(device_name)
    found = device_memory(device, 0)
    if wanted.fraction is None:
        return found.total_bytes, f"all of the {found.name}"
    share = int(wanted.fraction * free_bytes(device))
    return share, f"{wanted.fraction:.0%} of what is free of the {found.name}"
