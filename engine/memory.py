"""Memory as a step meets it: what is in use, the peak, and what running out of it looks like."""

import mmap
import os
from functools import cache

import psutil
import torch


@cache
def _this_process() -> psutil.Process:
    return psutil.Process()  # looked up once: the loop asks it in every step


@cache
def _statm() -> int | None:
    """Linux' own file on this process's memory, kept open: a look at it takes microseconds."""
    try:
        return os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def process_rss_bytes() -> int:
    """Resident memory of this process."""
    file = _statm()
    if file is None:
        return int(_this_process().memory_info().rss)
    return int(os.pread(file, 100, 0).split()[1]) * mmap.PAGESIZE


def allocated_bytes(device: torch.device) -> int:
    """Memory in use that a request can be charged with: CUDA's allocated bytes, or our RSS."""
    if device.type == "cuda":
        return int(torch.cuda.memory_allocated(device))
    return process_rss_bytes()


def reset_peak(device: torch.device) -> None:
    """Let `peak_bytes` look for its peak from now on."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_bytes(device: torch.device) -> int:
    """The most that was allocated since `reset_peak`; a CPU only knows what is in use now."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return process_rss_bytes()


def synchronize(device: torch.device) -> None:
    """Wait for what was launched, and raise the errors that a device tells late."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a computation may succeed with less memory in use, or with a smaller batch."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    # What PyTorch's CPU allocator raises has no type of its own.
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def free_caches(device: torch.device) -> None:
    """Give back what PyTorch's allocator holds and nothing uses."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
