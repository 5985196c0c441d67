"""A disk that is full, at every write: refused or waited for, and never half done."""

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chat.conversation import Conversations
from chat.store import migrate
from engine import Engine
from host.backup import backup
from host.errors import BackupFailed, explain
from host.workspace import DATABASE_FILE
from retrieval.database import Database
from retrieval.embedder import Embedder
from retrieval.library import Library
from tests.campaign.test_faults import ACTS, Act, attempted, prepared, settle, state
from tests.chat.conftest import World

SIZE_BYTES = 16 * 2**20
# What is left for the act: nothing, a page or two, a little more than each write in turn.
LEFT_BYTES = [0, 4_096, 12_288, 32_768, 65_536, 131_072]


def _mounted(folder: Path) -> bool:
    if os.geteuid() != 0:
        return False
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "tmpfs", str(folder)]
    return subprocess.run(mount, capture_output=True).returncode == 0


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A real file system of a few megabytes, where the tests may mount one."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if not _mounted(folder):
            pytest.skip("only root may mount a small disk")
        try:
            yield folder
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def make_small_world(
    small_disk: Path, engine: Engine, embedder: Embedder
) -> Iterator[Callable[[], World]]:
    """Makes worlds on the small disk, one after the other."""
    worlds: list[World] = []

    def close() -> None:
        for world in worlds:
            world.conversations.close()
            world.library.close()
            world.database.close()
            subprocess.run(["rm", "-rf", world.folder], check=True)
        worlds.clear()

    def make() -> World:
        close()
        folder = Path(tempfile.mkdtemp(dir=small_disk))
        database = Database(f"sqlite:///{folder / DATABASE_FILE}")
        migrate(database)
        library = Library(database, folder, embedder)
        library.start()
        talks = Conversations(database, library, engine)
        worlds.append(World(folder, database, library, engine, talks))
        return worlds[-1]

    yield make
    close()


def fill(disk: Path, left_bytes: int) -> Path:
    status = os.statvfs(disk)
    filler = disk / "filler"
    filler.write_bytes(bytes(max(0, status.f_bavail * status.f_frsize - left_bytes)))
    return filler


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
def test_a_full_disk_leaves_all_as_it_was_or_as_it_should_be(
    act: Act,
    small_disk: Path,
    make_small_world: Callable[[], World],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("retrieval.indexing.RETRY_S", 0.05)
    world, session = prepared(make_small_world)
    before = state(world)
    act(world, session)
    done = state(world)
    for left_bytes in LEFT_BYTES:
        world, session = prepared(make_small_world)
        filler = fill(small_disk, left_bytes)
        error = attempted(act, world, session)
        assert error is None or explain(error) is not None, error
        filler.unlink()
        settle(world)
        seen = state(world)
        if seen not in (before, done):
            assert act.__name__ in ("ask", "ask_again", "begin"), f"{left_bytes} left: {seen}"
            assert [turn[:2] for turn in seen.turns] == [turn[:2] for turn in done.turns]
        assert world.library.check().ok


def test_a_backup_that_does_not_fit_leaves_nothing_behind(
    small_disk: Path, make_small_world: Callable[[], World]
) -> None:
    world, _ = prepared(make_small_world)
    target = small_disk / "saved.zip"
    there = sorted(path.name for path in world.folder.iterdir())
    for left_bytes in LEFT_BYTES:
        filler = fill(small_disk, left_bytes)
        with pytest.raises(BackupFailed, match="The disk is full"):
            backup(world.folder, target)
        assert not target.exists()
        filler.unlink()
        assert sorted(path.name for path in world.folder.iterdir()) == there
