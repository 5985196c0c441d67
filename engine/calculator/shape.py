"""The sizes of a model that decide how large its KV is, read from its configuration or given."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from engine.errors import ModelNotFound, SettingError, WeightsUnusable
from engine.gguf_file import sizes
from engine.weights import converted, only_gguf

# Names of the same size in the configurations of different families.
_NAMES = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "multi_query_group_num"),
    "head_dim": ("head_dim", "kv_channels"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
}
# Models that read pictures or sound hold the decoder's sizes one level down.
_DECODERS = ("text_config", "llm_config", "language_config")
_LAYER_KINDS = ("layer_types", "layers_block_type")
_SOME_LAYERS = (
    "full_attention_interval",
    "attn_layer_period",
    "attn_layer_indices",
    "hybrid_override_pattern",
    "linear_attn_config",
)
_SAID = {
    "layers": "The number of layers",
    "heads": "The number of query heads",
    "kv_heads": "The number of KV heads",
    "head_dim": "The size of a head",
}
MOST = {"layers": 10_000, "heads": 10_000, "kv_heads": 10_000, "head_dim": 1024}


class Latent(NamedTuple):
    """What MLA keeps of a token in a layer: one vector for keys and values, and a rotated part."""

    rank: int
    rotary: int


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder's attention, whether the engine runs it or not.

    Attributes:
        layers: those that keep KV of their own.
        latent: where the model has MLA.
        notes: sentences on what the sizes leave out.
    """

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    latent: Latent | None = None
    notes: tuple[str, ...] = ()

    @staticmethod
    def of(config: Mapping[str, Any], given: Mapping[str, int | None]) -> "Shape":
        """The sizes of a Hugging Face configuration, which may be empty.

        Args:
            config: what `config.json` holds.
            given: layers, heads, kv_heads, head_dim; what is not None wins over the configuration.

        Raises:
            SettingError: a size is missing, out of range or contradicts another.
        """
        config = _decoder(config)
        wanted = {name: value for name, value in given.items() if value is not None}
        notes: list[str] = []
        latent = _latent(config)
        heads = wanted.get("heads") or _number(config, "heads")
        found = {
            "layers": wanted.get("layers") or _layers(config, notes),
            "heads": heads,
            "kv_heads": wanted.get("kv_heads") or (heads if latent else _kv_heads(config, heads)),
            "head_dim": wanted.get("head_dim") or _head_dim(config, latent),
        }
        checked: dict[str, int] = {}
        for name, size in found.items():
            if name in wanted:
                size = wanted[name]  # 0 too, which is refused below
            option = f"--{name.replace('_', '-')}"
            if size is None:
                raise SettingError(f"{_SAID[name]} isn't known: add {option} N.")
            if not 1 <= size <= MOST[name]:
                raise SettingError(f"{option} must lie between 1 and {MOST[name]:,}, not {size:,}.")
            checked[name] = size
        if checked["heads"] % checked["kv_heads"]:
            raise SettingError(
                f"{checked['heads']} query heads cannot share {checked['kv_heads']} KV heads "
                "evenly: change --heads or --kv-heads."
            )
        _say_what_is_left_out(config, notes)
        return Shape(**checked, latent=latent, notes=tuple(notes))


def read_config(model: str, convert_dir: Path | None = None) -> dict[str, Any]:
    """A model's configuration, without its weights.

    Args:
        model: a configuration file, or what `EngineConfig.model` takes.
        convert_dir: see `EngineConfig`.

    Raises:
        ModelNotFound: nothing of that name is here.
        WeightsUnusable: there is no configuration, or it cannot be read.
    """
    path = Path(model).expanduser()
    if path.is_dir():
        path = path / "config.json" if (path / "config.json").is_file() else only_gguf(path)
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            return _json(path)
        folder = converted(path, convert_dir)
        return sizes(path) if folder is None else _json(folder / "config.json")
    if model.count("/") == 1 and not model.startswith((".", "/", "~")):
        from huggingface_hub import try_to_load_from_cache

        cached = try_to_load_from_cache(model, "config.json")
        if isinstance(cached, str):
            return _json(Path(cached))
    raise ModelNotFound(model)


def _json(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise WeightsUnusable(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(config, dict):
        raise WeightsUnusable(f"{path} is not a model's configuration.")
    return config


def _decoder(config: Mapping[str, Any]) -> Mapping[str, Any]:
    if _number(config, "layers") is None:
        for name in _DECODERS:
            if isinstance(config.get(name), Mapping):
                return _decoder(config[name])
    return config


def _number(config: Mapping[str, Any], size: str) -> int | None:
    """The size under whichever name it has; None too where it differs from layer to layer."""
    found = (config.get(name) for name in _NAMES[size])
    return next((value for value in found if isinstance(value, int) and value), None)


def _layers(config: Mapping[str, Any], notes: list[str]) -> int | None:
    layers = _number(config, "layers")
    if layers is None:
        return None
    shared = config.get("num_kv_shared_layers") or 0
    kinds = next((config[name] for name in _LAYER_KINDS if config.get(name)), None)
    if isinstance(kinds, Sequence) and len(kinds) == layers:
        own = sum(map(_keeps_kv, kinds[: layers - shared]))
    else:
        own = layers - shared
        notes.extend(
            f"By {name}, only some of the {layers} layers keep KV: all are counted; "
            "give their number with --layers."
            for name in _SOME_LAYERS
            if config.get(name)
        )
    if own < layers:
        notes.append(f"{own} of the {layers} layers keep KV of their own, and are counted.")
    return own


def _keeps_kv(kind: object) -> bool:
    return kind == "hybrid" or ("attention" in str(kind) and "linear" not in str(kind))


def _kv_heads(config: Mapping[str, Any], heads: int | None) -> int | None:
    if config.get("multi_query") and not config.get("new_decoder_architecture"):
        return 1  # Falcon and StarCoder, whatever their num_kv_heads says
    if any(isinstance(config.get(name), Sequence) for name in _NAMES["kv_heads"]):
        return None
    return _number(config, "kv_heads") or heads


def _head_dim(config: Mapping[str, Any], latent: Latent | None) -> int | None:
    if latent is not None:  # `head_dim` is the rotated part there
        value = config.get("v_head_dim")
        return int(value) if value else None
    own = _number(config, "head_dim")
    hidden, heads = _number(config, "hidden"), _number(config, "heads")
    return own or (hidden // heads if hidden and heads else None)


def _latent(config: Mapping[str, Any]) -> Latent | None:
    rank, rotary = config.get("kv_lora_rank"), config.get("qk_rope_head_dim")
    if not rank:
        return None
    if not (0 < int(rank) <= MOST["head_dim"] and 0 <= int(rotary or 0) <= MOST["head_dim"]):
        raise SettingError(f"A latent of {rank} and {rotary} numbers is out of range.")
    return Latent(int(rank), int(rotary or 0))


def _say_what_is_left_out(config: Mapping[str, Any], notes: list[str]) -> None:
    kinds = next((config[name] for name in _LAYER_KINDS if config.get(name)), ())
    windows = any("sliding" in str(kind) or "chunked" in str(kind) for kind in kinds)
    if windows or (config.get("sliding_window") and config.get("use_sliding_window", True)):
        notes.append(
            "Layers with a sliding window are counted in full, as this engine holds them; "
            "a cache that drops what has left the window needs less."
        )
    if config.get("global_head_dim"):
        notes.append(
            "Some layers have heads of another size (global_head_dim); "
            "all are counted with the ordinary one."
        )
