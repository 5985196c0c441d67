"""What a program asks of the disk, in order: a power cut can't be had in a test, but what would
survive one follows from when files and folders were synchronised."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest


class Asked(NamedTuple):
    """A "sync" of a file or folder, or "rename" to it."""

    what: str
    path: Path


@contextmanager
def watched_disk() -> Iterator[list[Asked]]:
    """Every fsync and rename that this process makes meanwhile, by the path it had then."""
    asked: list[Asked] = []
    fsync, replace = os.fsync, os.replace

    def seen_fsync(descriptor: int) -> None:
        fsync(descriptor)
        asked.append(Asked("sync", Path(os.readlink(f"/proc/self/fd/{descriptor}"))))

    def seen_replace(source: Any, target: Any, **how: Any) -> None:
        replace(source, target, **how)
        asked.append(Asked("rename", Path(target)))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", seen_fsync)
        patched.setattr(os, "replace", seen_replace)
        yield asked
