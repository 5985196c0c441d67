"""The native library: which variant this machine can run, and how it is built, once.

The sources are compiled with the machine's own C++ compiler at first use and kept in a cache folder
under a name that changes with the sources, the compiler and its options.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from filelock import FileLock

from engine.errors import EngineError

SOURCES = Path(__file__).with_name("source")
COMPILERS = ("c++", "g++", "clang++")
BUILD_LIMIT_S = 300

Variant = Literal["avx512bf16", "avx512", "avx2"]


class _Target(NamedTuple):
    needs: frozenset[str]  # as /proc/cpuinfo spells them
    options: tuple[str, ...]


_AVX2 = frozenset({"avx2", "fma", "f16c", "bmi2"})
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512cd"}
TARGETS: dict[Variant, _Target] = {
    "avx512bf16": _Target(
        _AVX512 | {"avx512_bf16", "avx512_vnni"},
        ("-march=x86-64-v4", "-mavx512bf16", "-mavx512vnni"),
    ),
    "avx512": _Target(_AVX512, ("-march=x86-64-v4",)),
    "avx2": _Target(_AVX2, ("-march=x86-64-v3",)),
}


class NativeUnavailable(EngineError):
    """The native library cannot be had here; the message says why."""


class NativeLibrary(NamedTuple):
    variant: Variant
    functions: ctypes.CDLL


def cpu_flags() -> frozenset[str]:
    """What this CPU can do, as Linux names it; empty where that is not known."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("flags"):
                return frozenset(line.split(":", 1)[1].split())
    except OSError:
        pass
    return frozenset()


def variants(flags: frozenset[str] | None = None) -> list[Variant]:
    """The variants that a CPU with these flags (this one) runs, the best first."""
    have = cpu_flags() if flags is None else flags
    return [variant for variant, target in TARGETS.items() if target.needs <= have]


def compiler() -> str | None:
    """The C++ compiler: `CXX`, or the first that is found."""
    return next(
        (
            path
            for name in (os.environ.get("CXX", ""), *COMPILERS)
            if name and (path := shutil.which(name))
        ),
        None,
    )


def cache_folder() -> Path:
    """Where built libraries are kept: `XDG_CACHE_HOME`, or ~/.cache."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "pageturn"


def load(
    variant: Variant | None = None,
    folder: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> NativeLibrary:
    """The library, built if it is not there yet.

    Args:
        variant: None takes the best that this CPU runs.
        folder: where it is kept; None is `cache_folder()`.
        progress: told that a build begins.

    Raises:
        NativeUnavailable: no such CPU, no compiler, or the build failed.
    """
    possible = variants()
    if not possible:
        raise NativeUnavailable(
            f"there are no native kernels for this CPU ({platform.machine()}; they need AVX2)."
        )
    if variant is not None and variant not in possible:
        raise NativeUnavailable(f"this CPU does not run the {variant} kernels.")
    chosen = variant or possible[0]
    tool = compiler()
    if tool is None:
        raise NativeUnavailable(
            "no C++ compiler was found: install g++ or clang++ to get the native kernels."
        )
    try:
        file = _built(chosen, tool, folder or cache_folder(), progress)
        return NativeLibrary(chosen, ctypes.CDLL(str(file)))
    except (OSError, subprocess.SubprocessError) as error:
        raise NativeUnavailable(f"the native kernels could not be built: {error}") from error


def _built(variant: Variant, tool: str, folder: Path, progress: Callable[[str], None]) -> Path:
    command = [tool, "-std=c++20", "-O3", "-fPIC", "-shared", "-pthread", *TARGETS[variant].options]
    version = subprocess.run([tool, "--version"], capture_output=True, timeout=30).stdout
    content = hashlib.blake2b(version + " ".join(command).encode(), digest_size=8)
    for source in sorted(SOURCES.iterdir()):
        content.update(source.read_bytes())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        usable = os.access(folder, os.W_OK)
    except OSError:
        usable = False
    if not usable:  # a home that cannot be written: built again by every process
        folder = Path(tempfile.mkdtemp(prefix="pageturn-"))
    target = folder / f"kernels-{variant}-{content.hexdigest()}.so"
    if target.is_file():
        return target
    with FileLock(folder / "kernels.lock"):
        if target.is_file():
            return target  # another process has built it in the meantime
        progress(f"Building the {variant} kernels, once")
        part = target.with_suffix(f".{os.getpid()}.part")
        try:
            subprocess.run(
                [*command, *map(str, sorted(SOURCES.glob("*.cpp"))), "-o", str(part)],
                check=True,
                capture_output=True,
                timeout=BUILD_LIMIT_S,
            )
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    return target
