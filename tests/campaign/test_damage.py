"""A byte that flips in any kind of file is found, said in a sentence, and costs what it must."""

import random
import shutil
import sqlite3
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from host.backup import backup
from host.errors import BackupFailed, explain
from host.restore import restore_into
from host.workspace import DATABASE_FILE, OWNER, Workspace
from tests.campaign.acting import content_hash, document_text, settings
from tests.host.conftest import run

__all__ = ["run"]

WORD = "krebsschere"
WAIT_S = 120


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory, models_dir: Path) -> Path:
    """A folder with one document that is ready, and beside it a backup of it."""
    folder = tmp_path_factory.mktemp("intact") / "data"
    folder.mkdir()
    file = folder.parent / f"{WORD}.md"
    file.write_text(document_text(WORD))
    workspace = Workspace(settings(folder, models_dir))
    workspace.migrate()
    workspace.start_indexing()
    view = workspace.library.wait(workspace.library.add(file).id, WAIT_S)
    assert view.state == "ready"
    workspace.close()
    with closing(sqlite3.connect(folder / DATABASE_FILE)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    backup(folder, folder.parent / "saved.zip")
    return folder


@pytest.fixture
def folder(intact: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(intact, tmp_path / "data"))


@pytest.fixture
def opened(models_dir: Path) -> Iterator[Callable[[Path], Workspace]]:
    workspaces = []

    def open_it(folder: Path) -> Workspace:
        workspaces.append(Workspace(settings(folder, models_dir)))
        workspaces[-1].migrate()
        workspaces[-1].start_indexing()
        return workspaces[-1]

    yield open_it
    for workspace in workspaces:
        workspace.close()


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 0xFF
    file.write_bytes(data)


def finds_it(workspace: Workspace) -> bool:
    [best] = workspace.library.search(WORD).passages
    return WORD in best.text


# In the magic string, the page size, the schema's root, the table of revisions.
@pytest.mark.parametrize("at", [5, 30, 100, 4100])
def test_a_damaged_database_is_said_in_a_sentence_and_a_backup_takes_its_place(
    at: int, folder: Path, intact: Path, run: Callable[..., CompletedProcess[str]]
) -> None:
    flip(folder / DATABASE_FILE, at)
    damaged = (folder / DATABASE_FILE).read_bytes()
    said = run("documents", "--data-dir", folder)
    assert said.returncode == 1
    assert "Traceback" not in said.stderr
    assert "damaged" in said.stderr
    assert "restore FILE.zip --replace" in said.stderr
    assert (folder / DATABASE_FILE).read_bytes() == damaged
    saved = intact.parent / "saved.zip"
    refused = run("restore", saved, "--data-dir", folder)
    assert refused.returncode == 1
    assert "--replace" in refused.stderr
    assert run("restore", saved, "--replace", "--data-dir", folder).returncode == 0
    assert f"{WORD}.md" in run("documents", "--data-dir", folder).stdout


def test_a_database_with_a_byte_flipped_anywhere_works_or_says_what_is_wrong(
    folder: Path, intact: Path, models_dir: Path
) -> None:
    draw = random.Random(1)
    size = (intact / DATABASE_FILE).stat().st_size
    for at in sorted(draw.sample(range(size), 40)):
        shutil.copyfile(intact / DATABASE_FILE, folder / DATABASE_FILE)
        flip(folder / DATABASE_FILE, at)
        error = listed(folder, models_dir)
        assert error is None or explain(error) is not None, f"byte {at}: {error!r}"
    assert (folder / "files" / content_hash(WORD)).is_file()


def listed(folder: Path, models_dir: Path) -> Exception | None:
    """What opening the folder and listing its documents raises."""
    workspace = Workspace(settings(folder, models_dir))
    try:
        workspace.migrate()
        workspace.documents(OWNER)
    except Exception as error:
        return error
    finally:
        workspace.close()
    return None


@pytest.mark.parametrize("part", [0.0, 0.2, 0.5, 0.8, 0.999])
@pytest.mark.parametrize("name", ["index.faiss", "index.json"])
def test_a_damaged_index_is_made_anew(
    name: str, part: float, folder: Path, opened: Callable[[Path], Workspace]
) -> None:
    file = folder / name
    whole = file.read_bytes()
    flip(file, int(part * len(whole)))
    workspace = opened(folder)
    assert finds_it(workspace)
    assert workspace.library.check().ok
    workspace.close()
    assert (folder / name).read_bytes() == whole


def test_a_damaged_copy_of_a_document_is_told_and_what_was_read_of_it_stays(
    folder: Path, opened: Callable[[Path], Workspace]
) -> None:
    flip(folder / "files" / content_hash(WORD), 20)
    workspace = opened(folder)
    assert "damaged" in " ".join(workspace.library.check().problems)
    [view] = workspace.library.documents()
    workspace.library.reindex(view.id)
    after = workspace.library.wait(view.id, WAIT_S)
    assert after.state == "ready"
    assert "damaged" in (after.reason or "")
    assert finds_it(workspace)
    # The file itself, added again, takes the place of the damaged copy.
    file = folder.parent / f"{WORD}.md"
    file.write_text(document_text(WORD))
    assert workspace.library.add(file).duplicate
    assert workspace.library.check().ok
    workspace.library.reindex(view.id)
    assert workspace.library.wait(view.id, WAIT_S).reason is None


def test_a_backup_with_a_byte_flipped_is_refused_or_restores_all(
    intact: Path, tmp_path: Path, models_dir: Path
) -> None:
    saved = intact.parent / "saved.zip"
    draw, refused = random.Random(2), 0
    for number, at in enumerate(draw.sample(range(saved.stat().st_size), 40)):
        archive = tmp_path / f"{number}.zip"
        shutil.copyfile(saved, archive)
        flip(archive, at)
        target = tmp_path / str(number)
        try:
            restore_into(target, archive, replace=False)
        except BackupFailed:
            refused += 1
            assert not (target / DATABASE_FILE).exists()
            continue
        assert (target / "files" / content_hash(WORD)).read_text() == document_text(WORD)
        with zipfile.ZipFile(saved) as whole:
            assert (target / DATABASE_FILE).read_bytes() == whole.read(DATABASE_FILE)
    assert refused > 20
