"""What survives a power cut: bytes that were sent to the disk, under a name that was.

A rename takes the place of another file at once, but a file system may write the new name before
the bytes that it names, or neither until later. So the file is synchronised, then renamed, then
its folder is synchronised; only after that may anybody be told that something is kept.
"""

import os
from pathlib import Path


def sync_file(path: Path) -> None:
    """Wait until a file's content is on the disk. Raises OSError."""
    # Windows synchronises only what is open for writing.
    descriptor = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk. Raises OSError.

    Windows keeps names by itself and opens no folder.
    """
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(source: Path, target: Path) -> None:
    """Rename a file, so that after a power cut `target` is the old file or the whole new one, and
    the new one once this has returned. Raises OSError."""
    sync_file(source)
    os.replace(source, target)
    sync_folder(target.parent)
