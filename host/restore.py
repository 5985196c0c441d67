"""A backup put in the place of what a data folder holds.

    checked into .restore-new/  ->  renamed to restored/  ->  old parts moved to replaced/
    (the old data is in use)        (from here on it is      ->  `old is away` is written
                                    finished, by whoever     ->  new parts moved into place
                                    opens the folder next)   ->  both folders deleted

Until the rename, nothing of the old data has been touched; after it, the new is complete. A kill
or a power cut at any moment leaves one of the two, and `finish` goes on where it stopped: each
arrow waits until what stands before it is on the disk.
"""

import hashlib
import json
import os
import re
import shutil
import sqlite3
import zipfile
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

from chat.migrations import require_known
from host.backup import FILES, FORMAT, MANIFEST, Contents, contents_of, stored_copies
from host.datafolder import DataFolder
from host.errors import BackupFailed
from host.workspace import DATABASE_FILE
from retrieval import durable
from retrieval.database import is_storage_full

_NEW, _RESTORED, _REPLACED = ".restore-new", "restored", "replaced"
_AWAY = "old is away"
# What reading an archive raises when it is none, or was changed.
_DAMAGED = (EOFError, ValueError, KeyError, TypeError, AttributeError, RuntimeError)
# The vector index is made again from the restored database: backups of earlier versions hold one,
# and native code is not handed what came from elsewhere.
_INDEX = ("index.faiss", "index.json")
_NAME = re.compile(rf"{re.escape(DATABASE_FILE)}|{FILES}/[0-9a-f]{{64}}")
_CHUNK_BYTES = 2**20


def restore_into(data_dir: Path, archive: Path, *, replace: bool) -> Contents:
    """`restore`, for a folder that nobody holds and that is empty, unless `replace` is given.

    Raises BackupFailed, DataFolderBusy, DataFolderUnusable.
    """
    if not archive.is_file():
        raise BackupFailed(f"There is no file {archive}.")
    with DataFolder(data_dir) as folder:
        folder.prepare()
        folder.acquire_to_serve()
        finish(data_dir)
        if (there := _there(data_dir / DATABASE_FILE)) and not replace:
            raise BackupFailed(
                f"{data_dir} holds {there}, which a restore replaces. Say --replace if you can do "
                "without them, or choose another --data-dir."
            )
        return restore(data_dir, archive)


def _there(database: Path) -> str:
    """What a restore would replace, in words; "" if that is nothing."""
    if not database.exists():
        return ""
    try:
        contents = contents_of(database)
    except sqlite3.DatabaseError as error:
        return f"a database that cannot be read ({error})"
    return str(contents) if contents.is_something else ""


def restore(data_dir: Path, archive: Path) -> Contents:
    """Replace the data in `data_dir`, which this process must hold, by that of a backup.

    Raises BackupFailed, with nothing changed, if the archive is no whole backup or does not fit.
    """
    finish(data_dir)
    new = data_dir / _NEW
    shutil.rmtree(new, ignore_errors=True)
    try:
        new.mkdir()
        missing = _unpack(archive, new)
        contents = _check_database(new, missing)
        for folder in (new / FILES, new):
            durable.sync_folder(folder)
        os.replace(new, data_dir / _RESTORED)
        durable.sync_folder(data_dir)
    except BackupFailed:
        raise
    except (zipfile.BadZipFile, zlib.error, *_DAMAGED) as error:
        raise _broken(archive, str(error)) from error
    except sqlite3.Error as error:
        raise _broken(archive, f"its database: {error}") from error
    except OSError as error:
        if is_storage_full(error):
            raise BackupFailed(
                f"The disk that holds {data_dir} has no room for the backup beside what is there. "
                "Free some space and try again; nothing was changed."
            ) from error
        raise BackupFailed(f"{archive} cannot be restored ({error}).") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)
    finish(data_dir)
    return contents


def is_pending(data_dir: Path) -> bool:
    """Whether a restore was cut off after its commit: `finish` is to be called."""
    return (data_dir / _RESTORED).is_dir()


def finish(data_dir: Path) -> None:
    """Put a checked backup into place; nothing happens where there is none. Hold the folder."""
    restored, replaced = data_dir / _RESTORED, data_dir / _REPLACED
    if not is_pending(data_dir):
        shutil.rmtree(replaced, ignore_errors=True)
        return
    if not (restored / _AWAY).exists():
        replaced.mkdir(exist_ok=True)
        for part in _parts(data_dir):  # they are all old
            os.replace(part, replaced / part.name)
        for folder in (replaced, data_dir):
            durable.sync_folder(folder)
        (restored / _AWAY).touch()
        durable.sync_folder(restored)
    for part in _parts(restored):
        if part.name not in _INDEX:  # a restore that an earlier version began
            os.replace(part, data_dir / part.name)
    durable.sync_folder(data_dir)
    shutil.rmtree(restored)
    shutil.rmtree(replaced, ignore_errors=True)


def _parts(folder: Path) -> list[Path]:
    """What a restore puts in place, and what gives way to it: the database with log and copies."""
    names = {FILES, *_INDEX}
    return [
        path
        for path in folder.iterdir()
        if path.name in names or path.name.startswith(DATABASE_FILE)
    ]


def _unpack(source: Path, new: Path) -> list[str]:
    """Every file of the manifest, checked; nothing else. Returns what was missing before."""
    with zipfile.ZipFile(source) as archive:
        manifest = _manifest(archive, source)
        listed: dict[str, Any] = manifest["files"]
        if DATABASE_FILE not in listed:
            raise _broken(source, "it holds no database")
        (new / FILES).mkdir()
        for name, about in listed.items():
            if name in _INDEX:
                continue
            if not _NAME.fullmatch(name):
                raise _broken(source, f"{name!r} is no part of a data folder")
            digest = _extract(archive, name, new / name, about["bytes"])
            is_stored_copy = name.startswith(FILES)
            if digest != about["sha256"] or (is_stored_copy and digest != Path(name).name):
                raise _broken(source, f"{name} is damaged")
        return [str(name) for name in manifest["missing"]]


def _manifest(archive: zipfile.ZipFile, source: Path) -> dict[str, Any]:
    if MANIFEST not in archive.namelist():
        raise _broken(source, f"it has no {MANIFEST}")
    manifest: dict[str, Any] = json.loads(archive.read(MANIFEST))
    version = manifest["pageturn_backup"]
    if version != FORMAT:
        raise BackupFailed(
            f"{source} was written by a later version of Pageturn (format {version}). "
            "Update Pageturn, then restore it."
        )
    return manifest


def _extract(archive: zipfile.ZipFile, name: str, target: Path, size: int) -> str:
    """Unpack one file, no further than its stated length; returns its SHA-256."""
    digest, left = hashlib.sha256(), size
    with archive.open(name) as packed, target.open("xb") as file:
        while chunk := packed.read(_CHUNK_BYTES):
            left -= len(chunk)
            if left < 0:
                raise ValueError(f"{name} is longer than it says")
            digest.update(chunk)
            file.write(chunk)
    durable.sync_file(target)
    return digest.hexdigest()


def _check_database(new: Path, known_missing: list[str]) -> Contents:
    """Raises BackupFailed, or an error of SQLite, if it is damaged or lacks a document's copy."""
    database = new / DATABASE_FILE
    with closing(sqlite3.connect(database)) as connection:
        [state] = connection.execute("PRAGMA quick_check(1)").fetchone()
        if state != "ok":
            raise BackupFailed(f"The database in the backup is damaged ({state}).")
        [revision] = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    require_known(revision)
    lacking = stored_copies(database) - {path.name for path in (new / FILES).iterdir()}
    missing = lacking.difference(known_missing)
    if missing:
        raise BackupFailed(f"The backup lacks the stored copies of {len(missing)} documents.")
    return contents_of(database)


def _broken(archive: Path, why: str) -> BackupFailed:
    return BackupFailed(f"{archive} is no whole backup of Pageturn ({why}). Nothing was changed.")
