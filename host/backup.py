"""A data folder in one file, and back.

A backup is a zip: the database as one consistent copy, the stored copies of the documents that it
lists, and `manifest.json` with the length and SHA-256 of each. Models and the file of accounts are
not in it, nor is the vector index, which is made from the database.

It is made beside whatever works on the folder. The stored copies are named by their content and
never written to, so they are taken by hard links first, within milliseconds of the database's copy.
"""

import hashlib
import json
import os
import shutil
import sqlite3
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from chat.ui.figures import count
from host.errors import BackupFailed
from host.workspace import DATABASE_FILE
from retrieval import drafts, durable
from retrieval.database import is_storage_full, snapshot

FORMAT = 1
MANIFEST = "manifest.json"
FILES = "files"
_ATTEMPTS = 5
_UNFINISHED = ".backup-"
_ABANDONED_S = 86400


class Contents(NamedTuple):
    """What a backup holds."""

    documents: int
    conversations: int
    size_bytes: int

    @property
    def is_something(self) -> bool:
        return bool(self.documents or self.conversations)

    def __str__(self) -> str:
        parts = count(self.documents, "document"), count(self.conversations, "conversation")
        return ", ".join(parts)


def backup(data_dir: Path, target: Path) -> Contents:
    """Write a backup of `data_dir` to `target`, which appears whole or not at all.

    Raises BackupFailed.
    """
    database = data_dir / DATABASE_FILE
    if not database.is_file():
        raise BackupFailed(f"There is nothing to back up in {data_dir}: it holds no database.")
    if target.exists():
        raise BackupFailed(f"{target} exists already. Give another name, or move it away.")
    with (
        _explained(target),
        tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=data_dir) as folder,
    ):
        taken = Path(folder)
        missing = _take(data_dir, taken)
        _write(taken, missing, target)
        contents = contents_of(taken / DATABASE_FILE)
        return contents._replace(size_bytes=target.stat().st_size)


def _take(data_dir: Path, taken: Path) -> list[str]:
    """A consistent state of the folder, by a copy of the database and links to the rest.

    Returns the hashes of stored copies that the database lists and the folder lacks.
    """
    missing: list[str] = []
    wanted: set[str] = set()
    for _ in range(_ATTEMPTS):
        shutil.rmtree(taken / FILES, ignore_errors=True)
        (taken / FILES).mkdir()
        (taken / DATABASE_FILE).unlink(missing_ok=True)
        snapshot(data_dir / DATABASE_FILE, taken / DATABASE_FILE)
        wanted = stored_copies(taken / DATABASE_FILE)
        missing = [name for name in wanted if not _link(data_dir / FILES, taken / FILES, name)]
        if not missing:  # else a document was removed meanwhile: try again
            break
    for name in stored_copies(taken / DATABASE_FILE, refused=True) - wanted:  # where there is one
        _link(data_dir / FILES, taken / FILES, name)
    return missing


def _link(source: Path, target: Path, name: str) -> bool:
    """Have `name` of one folder in the other too; False if it is not there."""
    try:
        os.link(source / name, target / name)
    except FileNotFoundError:
        return False
    except OSError:  # a file system without hard links
        shutil.copyfile(source / name, target / name)
    return True


def _write(taken: Path, missing: list[str], target: Path) -> None:
    """The zip, for this user alone, under another name until it is complete and on the disk."""
    part = target.with_name(target.name + ".part")
    part.unlink(missing_ok=True)
    try:
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        with (
            os.fdopen(descriptor, "w+b") as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        ):
            listed = {}
            for path in sorted(path for path in taken.rglob("*") if path.is_file()):
                name = path.relative_to(taken).as_posix()
                archive.write(path, name)
                listed[name] = {"bytes": path.stat().st_size, "sha256": _digest(path)}
            made_at = datetime.now(UTC).isoformat(timespec="seconds")
            manifest = {"pageturn_backup": FORMAT, "made_at": made_at}
            manifest |= {"missing": missing, "files": listed}
            archive.writestr(MANIFEST, json.dumps(manifest, indent=1))
        durable.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def sweep(data_dir: Path) -> None:
    """Delete what a backup that was killed has left."""
    for folder in data_dir.glob(f"{_UNFINISHED}*"):
        if time.time() - folder.stat().st_mtime > _ABANDONED_S:
            shutil.rmtree(folder, ignore_errors=True)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def stored_copies(database: Path, *, refused: bool = False) -> set[str]:
    """The hashes of the contents that a database's documents need; or of those as well that were
    `refused`, of which there is a copy where there was something to keep."""
    query = "SELECT DISTINCT content_hash FROM documents"
    if not refused:
        query += " WHERE state != 'refused'"
    return {row[0] for row in _rows(database, query)}


def contents_of(database: Path) -> Contents:
    theirs = f"SELECT count(*) FROM documents WHERE owner NOT LIKE '{drafts.OWNERS}%'"
    query = f"SELECT ({theirs}), (SELECT count(*) FROM sessions)"
    [(documents, conversations)] = _rows(database, query)
    return Contents(documents, conversations, database.stat().st_size)


def _rows(database: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(query).fetchall()


@contextmanager
def _explained(target: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        if is_storage_full(error):
            raise BackupFailed(f"The disk is full. {target} was not written.") from error
        raise BackupFailed(f"{target} could not be written ({error}).") from error
