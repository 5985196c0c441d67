"""How the engine is set up. Frozen and checked when it is made; no torch in here."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine.errors import SettingError

DEVICES = ("auto", "cpu", "cuda")
BACKENDS = ("auto", "torch", "native")
WEIGHTS = ("auto", "bfloat16", "int8", "int4")
KV_DTYPES = (
    "auto", "float32", "bfloat16", "float16", "float64", "fp8", "int8", "k8v4", "int4",
)  # fmt: skip
DTYPES = ("auto", "float32", "bfloat16", "float16", "float64")

_UNITS = {
    "": 1, "B": 1,
    "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40,
}  # fmt: skip


@dataclass(frozen=True)
class KVMemory:
    """Size of the KV pool: bytes, or a fraction of the device's free memory, or neither (auto)."""

    size_bytes: int | None = None
    fraction: float | None = None

    @staticmethod
    def parse(text: str) -> "KVMemory":
        """Read `auto`, a size such as `2GiB` or `512MB`, or a fraction such as `0.5`.

        A bare number with a decimal point is a fraction, one without is bytes.

        Raises:
            SettingError: the text is none of these, or the amount is not positive.
        """
        text = text.strip()
        if text == "auto":
            return KVMemory()
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text)
        if match is None or match[2].upper() not in _UNITS:
            raise SettingError(
                f"kv-memory {text!r} is not understood: write auto, a size such as 2GiB or 512MB, "
                "or a fraction of the free memory such as 0.5."
            )
        if not match[2] and "." in match[1]:
            fraction = float(match[1])
            if not 0 < fraction <= 1:
                raise SettingError(f"kv-memory {text} is a fraction: it must lie in 0 < x <= 1.")
            return KVMemory(fraction=fraction)
        size = int(float(match[1]) * _UNITS[match[2].upper()])
        if size <= 0:
            raise SettingError("kv-memory must be more than nothing.")
        return KVMemory(size_bytes=size)


@dataclass(frozen=True)
class EngineConfig:
    """Settings of one engine.

    Attributes:
        model: a folder with safetensors, a .gguf file, or a Hub id in the local cache.
        device: where weights, KV and arithmetic live; `auto` takes CUDA where there is one.
        dtype: of weights, KV and arithmetic; `auto` takes what the device computes fastest;
            float64 is for comparisons.
        backend: what computes: `native` is our own code for x86 CPUs in bfloat16, built at first
            use; `torch` runs everywhere. `auto` takes native where it can be had and says why not
            where it cannot (`Engine.backend`).
        weights: what matrices are held in: `bfloat16` (the dtype, on the torch backend), or groups
            of 32 in 8 or 4 bits with a scale. `auto` takes a quantised GGUF file's own groups; of
            other models the native backend rounds to int8, the torch backend rounds nothing.
        kv_memory: see `KVMemory.parse`. `auto` on a CPU is the smaller of a quarter of the RAM
            that the process may use and what `max_sessions` full contexts need.
        kv_dtype: what keys and values are held in: a dtype, or a codec (`engine.coded.codec`) for
            all but the first page and the recent window. `auto` is the dtype of the arithmetic,
            unless the device's memory holds fewer than `max_sessions` full contexts of it: then
            int8. A codec is used only if the model passes its gate (`engine.coded.gate`); otherwise
            the next better one is.
        refresh_tokens: a session is refreshed exactly in idle time when so many of its tokens were
            computed from coded KV; 0 never does.
        page_size: token positions in a page; a power of two.
        max_sessions: requests that run at once; others wait, first come, first served.
        max_waiting: requests that may wait; one more is refused with `QueueFull`.
        step_target_s: the token budget is steered so that a step takes about this long.
        prefix_cache: find pages again by content; off, only the static prompt is shared.
        convert_dir: where a .gguf file is converted to; None means beside the file.
        native_dir: where the native kernels and the gate's verdicts are kept; None means the user's
            cache folder.

    Raises:
        SettingError: on construction, for a value that cannot be used.
    """

    model: str
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16", "float64"] = "auto"
    backend: Literal["auto", "torch", "native"] = "auto"
    weights: Literal["auto", "bfloat16", "int8", "int4"] = "auto"
    kv_memory: str = "auto"
    kv_dtype: Literal[
        "auto", "float32", "bfloat16", "float16", "float64", "fp8", "int8", "k8v4", "int4"
    ] = "auto"
    refresh_tokens: int = 512
    page_size: int = 16
    max_sessions: int = 8
    max_waiting: int = 64
    step_target_s: float = 0.15
    prefix_cache: bool = True
    convert_dir: Path | None = None
    native_dir: Path | None = None

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            raise SettingError(f"device {self.device!r} is not one of {', '.join(DEVICES)}.")
        if self.dtype not in DTYPES:
            raise SettingError(f"dtype {self.dtype!r} is not one of {', '.join(DTYPES)}.")
        if self.backend not in BACKENDS:
            raise SettingError(f"backend {self.backend!r} is not one of {', '.join(BACKENDS)}.")
        if self.weights not in WEIGHTS:
            raise SettingError(f"weights {self.weights!r} is not one of {', '.join(WEIGHTS)}.")
        if self.kv_dtype not in KV_DTYPES:
            raise SettingError(f"kv-dtype {self.kv_dtype!r} is not one of {', '.join(KV_DTYPES)}.")
        if self.refresh_tokens < 0:
            raise SettingError("refresh-tokens must not be negative; 0 never refreshes.")
        if not 1 <= self.page_size <= 1024 or self.page_size & (self.page_size - 1):
            raise SettingError(
                f"page-size {self.page_size} is not a power of two between 1 and 1,024."
            )
        if self.max_sessions < 1:
            raise SettingError("max-sessions must be at least 1.")
        if self.max_waiting < 1 or self.step_target_s <= 0:
            raise SettingError("max_waiting and step_target_s must be positive.")
        KVMemory.parse(self.kv_memory)

    @property
    def kv(self) -> KVMemory:
        return KVMemory.parse(self.kv_memory)
