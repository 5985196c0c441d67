"""The device: which one, which dtype suits it, and what it says of its memory."""

import platform
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import torch

from engine.errors import SettingError
from engine.memory import process_rss_bytes

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}


class DeviceMemory(NamedTuple):
    """What a device reports of itself; on a CPU it speaks of this process (see MemoryReport)."""

    name: str
    allocated_bytes: int
    reserved_bytes: int
    used_bytes: int
    total_bytes: int


def choose_device(name: str) -> torch.device:
    """The device for a setting.

    Raises:
        SettingError: CUDA was asked for and there is none.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise SettingError(
            "device cuda was asked for, but PyTorch finds no CUDA device here: "
            "use --device cpu, or install a CUDA build of PyTorch and a driver."
        )
    return torch.device(name)


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """The dtype for a setting; `auto` is 16 bit wherever the device multiplies it natively."""
    if name != "auto":
        return _DTYPES[name]
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    built_in = hasattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported")
    native = built_in and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return torch.bfloat16 if native else torch.float32


def ram_limit_bytes() -> int:
    """RAM that this process may use: the machine's, or less where a cgroup says so."""
    limits = [psutil.virtual_memory().total]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        if text.isdigit():  # "max" means no limit; version 1 writes a huge number for it
            limits.append(int(text))
    return int(min(limits))


@cache
def cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def free_bytes(device: torch.device) -> int:
    """Bytes that could still be allocated on the device now."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return min(int(psutil.virtual_memory().available), ram_limit_bytes() - process_rss_bytes())


def device_memory(device: torch.device, tensor_bytes: int, nvml: Any = None) -> DeviceMemory:
    """Ask the device for its memory.

    Args:
        device: CPU or CUDA.
        tensor_bytes: what our own tensors hold, which on a CPU nobody else counts.
        nvml: the NVML bindings; None imports `pynvml`. NVML sees every process on the card; where
            it cannot be asked, the CUDA runtime's own figures stand in.
    """
    if device.type != "cuda":
        return DeviceMemory(
            name=f"RAM ({cpu_name()})",
            allocated_bytes=tensor_bytes,
            reserved_bytes=tensor_bytes,
            used_bytes=process_rss_bytes(),
            total_bytes=ram_limit_bytes(),
        )
    used, total = _card_bytes(device, nvml)
    return DeviceMemory(
        name=f"VRAM ({torch.cuda.get_device_name(device)})",
        allocated_bytes=int(torch.cuda.memory_allocated(device)),
        reserved_bytes=int(torch.cuda.memory_reserved(device)),
        used_bytes=used,
        total_bytes=total,
    )


def _card_bytes(device: torch.device, nvml: Any) -> tuple[int, int]:
    try:
        if nvml is None:
            nvml = import_module("pynvml")
        nvml.nvmlInit()
        # By UUID: CUDA's numbering and NVML's differ under CUDA_VISIBLE_DEVICES.
        uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
        info = nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByUUID(uuid))
        return int(info.used), int(info.total)
    except Exception:  # no NVML, no permission, a virtual card: the runtime knows enough
        free, total = torch.cuda.mem_get_info(device)
        return int(total - free), int(total)
