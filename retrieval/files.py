"""The stored copies of documents, named by the SHA-256 of their content."""

import hashlib
import stat
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from retrieval import durable
from retrieval.database import is_storage_full
from retrieval.errors import DataFolderNotWritable, StorageFull, Unreadable

MAX_FILE_BYTES = 512 * 2**20
_CHUNK_BYTES = 2**20
_INCOMING = ".incoming-"


class Received(NamedTuple):
    """A file read to its end; `copy` is a temporary copy."""

    content_hash: str
    size_bytes: int
    copy: Path


class FileStore:
    """`folder`/<hash>, one copy of each content whoever owns it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with self._explained():
            if not folder.is_dir():
                folder.mkdir(parents=True)
                durable.sync_folder(folder.parent)
            probe = folder / f"{_INCOMING}{uuid.uuid4().hex}"
            probe.touch()
            probe.unlink()

    def path(self, content_hash: str) -> Path:
        return self.folder / content_hash

    @contextmanager
    def receive(self, source: Path) -> Iterator[Received]:
        """Read a file once: its hash and a copy, gone at the end unless accepted.

        Raises Unreadable if it cannot be read, StorageFull if the copy does not fit.
        """
        _check_kind(source)
        copy = self.folder / f"{_INCOMING}{uuid.uuid4().hex}"
        try:
            with self._explained():
                received = _read_through(source, copy)
            yield received
        finally:
            copy.unlink(missing_ok=True)

    def accept(self, received: Received) -> None:
        """Give a received copy its name for good: it is on the disk when this returns."""
        with self._explained():
            durable.replace(received.copy, self.path(received.content_hash))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if is_storage_full(error):
                raise StorageFull(self.folder.parent) from error
            raise DataFolderNotWritable(self.folder.parent, error) from error

    def is_whole(self, content_hash: str) -> bool:
        """Whether the copy is there, and what it was when it was stored. Raises OSError."""
        try:
            with self.path(content_hash).open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest() == content_hash
        except FileNotFoundError:
            return False

    def remove(self, content_hash: str) -> None:
        self.path(content_hash).unlink(missing_ok=True)

    def sweep(self, wanted: Iterable[str]) -> None:
        """Delete copies that no document has, e.g. after a kill between two steps."""
        keep = set(wanted)
        for path in self.folder.iterdir():
            if path.name not in keep:
                path.unlink(missing_ok=True)


def _check_kind(source: Path) -> None:
    try:
        status = source.stat()
    except FileNotFoundError:
        raise Unreadable(f"There is no file {source}. Check the path and try again.") from None
    except OSError as error:
        raise _unreadable(source, error) from error
    if stat.S_ISDIR(status.st_mode):
        raise Unreadable(f"{source} is a folder. Add the files in it.")
    if not stat.S_ISREG(status.st_mode):
        raise Unreadable(f"{source} is not a regular file. Copy its content to a file first.")
    if status.st_size > MAX_FILE_BYTES:
        raise Unreadable(
            f"{source.name} has {status.st_size / 2**20:,.0f} MB; up to "
            f"{MAX_FILE_BYTES // 2**20} MB are read. Split it and add the parts."
        )


def _read_through(source: Path, copy: Path) -> Received:
    digest, size = hashlib.sha256(), 0
    try:
        file = source.open("rb")
    except OSError as error:
        raise _unreadable(source, error) from error
    with file, copy.open("wb") as out:
        while chunk := _read(file, source):
            digest.update(chunk)
            size += len(chunk)
            out.write(chunk)
    return Received(digest.hexdigest(), size, copy)


def _read(file: BinaryIO, source: Path) -> bytes:
    try:
        return file.read(_CHUNK_BYTES)
    except OSError as error:
        raise _unreadable(source, error) from error


def _unreadable(source: Path, error: OSError) -> Unreadable:
    if isinstance(error, FileNotFoundError):
        return Unreadable(f"{source} vanished before it was read. Add it again when it is back.")
    if isinstance(error, PermissionError):
        return Unreadable(f"{source} may not be read by this user. Change its permissions.")
    return Unreadable(f"{source} cannot be read ({error.strerror or error}).")
