"""What is acknowledged is on the disk, and not only in the system's memory."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text

from retrieval import durable
from retrieval.database import Database
from retrieval.library import Library
from tests.disk import watched_disk

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="paths are read from /proc")


def test_a_commit_waits_for_the_disk(database: Database) -> None:
    for transaction in (database.session, database.reading):
        with transaction() as session:
            assert session.scalar(text("PRAGMA synchronous")) == 2  # FULL


@needs_proc
def test_a_document_is_acknowledged_when_its_copy_and_the_name_of_it_are_on_the_disk(
    open_library: Callable[..., Library], tmp_path: Path
) -> None:
    library = open_library(start=False)
    file = tmp_path / "heron.md"
    file.write_text("The heron waits.")
    with watched_disk() as asked:
        view = library.add(file)
    copy = tmp_path / "data" / "files" / view.content_hash
    [renamed] = [n for n, one in enumerate(asked) if one.path == copy]
    before, after = asked[:renamed], asked[renamed + 1 :]
    assert [one.what for one in before if one.path.name.startswith(".incoming-")] == ["sync"]
    assert ("sync", copy.parent) in after


@needs_proc
def test_a_file_takes_anothers_place_whole(tmp_path: Path) -> None:
    new, old = tmp_path / "new", tmp_path / "old"
    new.write_text("new")
    old.write_text("old")
    with watched_disk() as asked:
        durable.replace(new, old)
    assert asked == [("sync", new), ("rename", old), ("sync", tmp_path)]
    assert old.read_text() == "new"
    assert not new.exists()


def test_what_is_not_there_cannot_take_a_place(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    with pytest.raises(FileNotFoundError):
        durable.replace(tmp_path / "new", tmp_path / "old")
    assert (tmp_path / "old").read_text() == "old"
