"""A data folder saved in one file, and brought back."""

import hashlib
import json
import os
import shutil
import sqlite3
import stat
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app import main
from chat.context import Context
from chat.errors import DatabaseTooNew
from chat.store import ConversationStore
from host import restore as restoring
from host.backup import FILES, MANIFEST, backup
from host.datafolder import DataFolder
from host.errors import BackupFailed, DataFolderBusy
from host.restore import finish, restore_into
from host.settings import Settings
from host.workspace import DATABASE_FILE, Workspace
from tests.disk import watched_disk

HERON = "The heron stands in the northern pond and waits for frogs."
BREAD = "Dough rises for twelve hours before the bread is baked."

Open = Callable[[Path], Workspace]


@pytest.fixture(scope="module")
def open_folder(models_dir: Path) -> Open:
    def open_it(folder: Path) -> Workspace:
        folder.mkdir(exist_ok=True)
        workspace = Workspace(Settings(data_dir=folder, models_dir=models_dir, device="cpu"))
        workspace.migrate()
        return workspace

    return open_it


def fill(workspace: Workspace, name: str, text: str) -> None:
    """A document that is ready, and a conversation about it."""
    path = workspace.settings.data_dir.parent / name
    path.write_text(text)
    workspace.start_indexing()
    assert [event["outcome"] for event in workspace.add([path]) if "outcome" in event] == [
        "indexed"
    ]
    opening = Context("a model", (1, 2, 3), (), None)
    ConversationStore(workspace.database).begin(f"about-{name}", "local", f"{name}?", opening)


def holds(workspace: Workspace) -> tuple[list[str], list[str]]:
    """Names of documents that can be found, and titles of conversations."""
    assert workspace.library.check().ok, workspace.library.check().problems
    names = [view.name for view in workspace.library.documents()]
    for name, word in (("heron.md", "heron"), ("bread.md", "dough")):
        found = {passage.name for passage in workspace.library.search(word).passages}
        assert (name in found) == (name in names)
    titles = [view.title for view in ConversationStore(workspace.database).sessions("local")]
    return names, titles


HERONS = (["heron.md"], ["heron.md?"])
BREADS = (["bread.md"], ["bread.md?"])


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, open_folder: Open) -> Path:
    """A backup of a folder with the heron."""
    folder = tmp_path_factory.mktemp("saved")
    workspace = open_folder(folder / "var")
    fill(workspace, "heron.md", HERON)
    (folder / "var/models").mkdir()
    (folder / "var/models/weights").write_text("large")
    backup(folder / "var", folder / "heron.zip")  # while the folder is open
    workspace.close()
    return folder / "heron.zip"


@pytest.fixture(scope="module")
def bread(tmp_path_factory: pytest.TempPathFactory, open_folder: Open) -> Path:
    """A closed data folder with the bread, to be copied."""
    folder = tmp_path_factory.mktemp("bread")
    workspace = open_folder(folder / "var")
    fill(workspace, "bread.md", BREAD)
    workspace.close()
    return folder / "var"


@pytest.fixture
def other(bread: Path, tmp_path: Path) -> Path:
    """A data folder with the bread in it."""
    shutil.copytree(bread, tmp_path / "var")
    return tmp_path / "var"


@pytest.fixture
def opened(open_folder: Open) -> Iterator[Open]:
    """Opens folders and closes them again."""
    workspaces: list[Workspace] = []

    def open_it(folder: Path) -> Workspace:
        workspaces.append(open_folder(folder))
        return workspaces[-1]

    yield open_it
    for workspace in workspaces:
        workspace.close()


def test_a_backup_comes_back_in_an_empty_folder(saved: Path, tmp_path: Path, opened: Open) -> None:
    restore_into(tmp_path / "new", saved, replace=False)
    assert holds(opened(tmp_path / "new")) == HERONS


def test_a_backup_takes_the_place_of_what_is_there(saved: Path, other: Path, opened: Open) -> None:
    (other / "models").mkdir()
    restore_into(other, saved, replace=True)
    assert holds(opened(other)) == HERONS
    assert (other / "models").is_dir()
    left = b"".join(path.read_bytes() for path in other.rglob("*") if path.is_file())
    assert b"Dough" not in left


def test_what_is_there_is_not_given_up_unasked(saved: Path, other: Path, opened: Open) -> None:
    with pytest.raises(BackupFailed, match=r"1 document, 1 conversation.*--replace"):
        restore_into(other, saved, replace=False)
    assert holds(opened(other)) == BREADS


def test_a_folder_in_use_is_left_alone(saved: Path, other: Path, opened: Open) -> None:
    with DataFolder(other) as folder:
        assert folder.acquire()
        with pytest.raises(DataFolderBusy):
            restore_into(other, saved, replace=True)
    assert holds(opened(other)) == BREADS


def test_a_backup_holds_what_is_needed_and_is_for_its_owner_alone(saved: Path) -> None:
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    names = zipfile.ZipFile(saved).namelist()
    assert {DATABASE_FILE, MANIFEST} <= {*names}
    assert len([name for name in names if name.startswith("files/")]) == 1
    assert len(names) == 3


def test_the_index_of_an_older_backup_is_made_anew_and_never_read(
    saved: Path, other: Path, opened: Open
) -> None:
    planted = b"IwFl is what native code would read"
    with zipfile.ZipFile(saved, "a") as archive:
        manifest = json.loads(archive.read(MANIFEST))
        for name in ("index.faiss", "index.json"):
            archive.writestr(name, planted)
            digest = hashlib.sha256(planted).hexdigest()
            manifest["files"][name] = {"bytes": len(planted), "sha256": digest}
    rewritten = saved.with_name("older.zip")
    with zipfile.ZipFile(saved) as source, zipfile.ZipFile(rewritten, "w") as target:
        for name in source.namelist():
            if name != MANIFEST:
                target.writestr(name, source.read(name))
        target.writestr(MANIFEST, json.dumps(manifest))
    restore_into(other, rewritten, replace=True)
    assert not list(other.glob("index.*"))
    assert holds(opened(other)) == HERONS


def test_an_index_in_a_restore_that_an_older_version_began_is_left_behind(
    saved: Path, other: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as cut_off:
        cut_off.setattr(restoring, "finish", lambda folder: None)
        restore_into(other, saved, replace=True)
    (other / "restored" / "index.faiss").write_bytes(b"IwFl")
    finish(other)
    assert not list(other.glob("index.*"))
    assert holds(opened(other)) == HERONS


@pytest.mark.skipif(sys.platform != "linux", reason="paths are read from /proc")
def test_each_step_of_a_restore_is_on_the_disk_before_the_next(saved: Path, other: Path) -> None:
    with watched_disk() as asked:
        restore_into(other, saved, replace=True)
    new, restored = other / ".restore-new", other / "restored"
    committed = asked.index(("rename", restored))
    before, after = asked[:committed], asked[committed + 1 :]
    for path in (new / DATABASE_FILE, new / FILES, new):
        assert ("sync", path) in before
    assert after[0] == ("sync", other)
    away = after.index(("sync", restored))  # the note that the old data is away
    moved = [n for n, one in enumerate(after) if one.what == "rename"]
    out = [n for n in moved if after[n].path.parent == other / "replaced"]
    back = [n for n in moved if after[n].path.parent == other]
    assert out
    assert back
    assert ("sync", other) in after[max(out) : away]
    assert max(out) < away < min(back)
    assert ("sync", other) in after[max(back) :]


def test_a_backup_overwrites_nothing(saved: Path, other: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.zip").write_text("precious")
    with pytest.raises(BackupFailed, match="exists already"):
        backup(other, tmp_path / "mine.zip")
    assert (tmp_path / "mine.zip").read_text() == "precious"
    with pytest.raises(BackupFailed, match="nothing to back up"):
        backup(tmp_path / "none", tmp_path / "none.zip")
    assert not (tmp_path / "none.zip").exists()


def test_a_backup_beside_a_busy_library_is_consistent(
    other: Path, tmp_path: Path, opened: Open
) -> None:
    workspace = opened(other)
    workspace.start_indexing()
    done = threading.Event()

    def come_and_go() -> None:
        number = 0
        while not done.is_set():
            number += 1
            (tmp_path / f"{number}.md").write_text(f"{HERON} It is number {number}.")
            added = workspace.library.add(tmp_path / f"{number}.md")
            if number % 2:
                workspace.library.remove(added.id)

    writer = threading.Thread(target=come_and_go)
    writer.start()
    try:
        for number in range(5):
            backup(other, tmp_path / f"backup-{number}.zip")
    finally:
        done.set()
        writer.join()
    assert not list(other.glob(".backup-*"))
    for number in range(5):
        archive = tmp_path / f"backup-{number}.zip"
        assert json.loads(zipfile.ZipFile(archive).read(MANIFEST))["missing"] == []
        restore_into(tmp_path / f"new-{number}", archive, replace=False)


def test_a_document_without_its_copy_does_not_keep_the_rest_from_being_saved(
    other: Path, tmp_path: Path, opened: Open
) -> None:
    [copy] = (other / "files").iterdir()
    copy.unlink()
    backup(other, tmp_path / "rest.zip")
    restore_into(tmp_path / "new", tmp_path / "rest.zip", replace=False)
    [view] = opened(tmp_path / "new").library.documents()
    assert view.name == "bread.md"


def rewritten(saved: Path, target: Path, **changes: bytes | None) -> Path:
    """The backup with other contents under some names (None leaves one out)."""
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(target, "w") as new:
        contents: dict[str, bytes | None] = {name: old.read(name) for name in old.namelist()}
        for name, content in (contents | changes).items():
            if content is not None:
                new.writestr(name, content)
    return target


def manifest(saved: Path, **changes: object) -> bytes:
    with zipfile.ZipFile(saved) as archive:
        return json.dumps(json.loads(archive.read(MANIFEST)) | changes).encode()


def broken_archives(saved: Path, folder: Path) -> Iterator[Path]:
    whole = saved.read_bytes()
    for name, data in (
        ("empty", b""),
        ("text", b"no archive"),
        ("cut", whole[: len(whole) // 2]),
        ("flipped", whole[:2000] + bytes([whole[2000] ^ 255]) + whole[2001:]),
    ):
        (folder / name).write_bytes(data)
        yield folder / name
    with zipfile.ZipFile(saved) as archive:
        [copy] = [name for name in archive.namelist() if name.startswith("files/")]
        files = json.loads(archive.read(MANIFEST))["files"]
    for name, changes in {
        "no-manifest": {MANIFEST: None},
        "odd-manifest": {MANIFEST: b"[1]"},
        "later": {MANIFEST: manifest(saved, pageturn_backup=99)},
        "no-database": {MANIFEST: manifest(saved, files={copy: files[copy]})},
        "no-copy": {MANIFEST: manifest(saved, files={n: f for n, f in files.items() if n != copy})},
        "outside": {
            MANIFEST: manifest(saved, files=files | {"../x": files[copy]}),
            "../x": b"x",
        },
        "changed-copy": {copy: b"something else"},
        "changed-database": {DATABASE_FILE: b"SQLite format 3\0" + bytes(4000)},
    }.items():
        yield rewritten(saved, folder / name, **changes)


def test_a_broken_archive_changes_nothing(
    saved: Path, other: Path, tmp_path: Path, opened: Open
) -> None:
    (other / "lock").touch()
    before = {path: path.read_bytes() for path in other.rglob("*") if path.is_file()}
    for archive in broken_archives(saved, tmp_path):
        with pytest.raises(BackupFailed):
            restore_into(other, archive, replace=True)
        after = {path: path.read_bytes() for path in other.rglob("*") if path.is_file()}
        assert after == before, archive.name
    assert not (tmp_path / "x").exists()
    assert not (tmp_path.parent / "x").exists()


def test_a_backup_of_a_later_version_is_refused(other: Path, tmp_path: Path, opened: Open) -> None:
    shutil.copytree(other, tmp_path / "later")
    with sqlite3.connect(tmp_path / "later" / DATABASE_FILE) as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    database.close()
    backup(tmp_path / "later", tmp_path / "later.zip")
    with pytest.raises(DatabaseTooNew):
        restore_into(other, tmp_path / "later.zip", replace=True)
    assert holds(opened(other)) == BREADS


class Killed(BaseException):
    """The process ends here."""


def test_a_kill_at_any_moment_leaves_the_old_data_or_the_new(
    saved: Path, bread: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Open
) -> None:
    """Killed before each of the moves in turn, until there is none left to be killed before."""
    outcomes = []
    for moves in range(30):
        folder = tmp_path / f"killed-{moves}"
        shutil.copytree(bread, folder)
        left = [moves]

        def move(source: Path, target: Path, left: list[int] = left) -> None:
            if not left[0]:
                raise Killed
            left[0] -= 1
            os.rename(source, target)

        with monkeypatch.context() as patch:
            patch.setattr(restoring.os, "replace", move)
            try:
                restore_into(folder, saved, replace=True)
                killed = False
            except Killed:
                killed = True
        finish(folder)  # what the next process does first
        left_over = {path.name for path in folder.iterdir()} & {"restored", "replaced"}
        assert not left_over
        outcomes.append(holds(opened(folder)))
        if not killed:
            break
    assert outcomes[0] == BREADS
    assert outcomes[1:] == [HERONS] * (len(outcomes) - 1)
    assert len(outcomes) > 6


def test_the_commands_save_and_bring_back(
    other: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive, folder = str(tmp_path / "b.zip"), str(tmp_path / "new")
    assert main(["backup", archive, "--data-dir", str(other)]) == 0
    assert main(["restore", archive, "--data-dir", folder]) == 0
    out = capsys.readouterr().out
    assert f"saved  {archive}  (1 document, 1 conversation" in out
    assert "restored  1 document, 1 conversation\n" in out
    assert main(["restore", archive, "--data-dir", folder]) == 1
    assert "--replace" in capsys.readouterr().err
