"""A document is indexed again from its stored copy, and nothing is lost if that fails."""

import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import TimeoutError as NoConnection

from retrieval.errors import CopyNotKept, DocumentNotFound
from retrieval.library import Library
from retrieval.parsers.process import ParseLimits


def test_a_document_is_read_again_and_found_again(library: Library, tmp_path: Path) -> None:
    file = tmp_path / "pond.md"
    file.write_text("# Ponds\n\nThe heron stands in the northern pond.\n", encoding="utf-8")
    before = library.wait(library.add(file).id, 60)
    file.unlink()  # the stored copy is what is read
    assert library.reindex(before.id).id == before.id
    after = library.wait(before.id, 60)
    assert replace(after, seconds=before.seconds) == before
    found = library.search("Where does the heron stand?").passages
    assert [passage.document_id for passage in found] == [before.id]
    assert library.check().ok


def test_one_that_is_on_its_way_is_left_alone(library: Library, tmp_path: Path) -> None:
    file = tmp_path / "pond.md"
    file.write_text("# Ponds\n\n" + "The heron stands there. " * 400, encoding="utf-8")
    view = library.add(file)
    library.reindex(view.id)
    library.reindex(view.id)
    assert library.wait(view.id, 60).state == "ready"
    assert library.check().ok


def test_a_refused_one_says_to_add_the_file_again(library: Library, tmp_path: Path) -> None:
    (tmp_path / "empty.md").touch()
    view = library.add(tmp_path / "empty.md")
    assert not view.kept
    with pytest.raises(CopyNotKept, match="Add the file again"):
        library.reindex(view.id)


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retrieval.retries.PAUSE_S", 0.05)


def limit(library: Library, wall_s: float) -> None:
    library._indexer._limits = ParseLimits(wall_s=wall_s)


def herons(path: Path) -> Path:
    path.write_text("# Ponds\n\nThe heron stands in the northern pond.\n", encoding="utf-8")
    return path


def found(library: Library, owner: str = "local") -> list[str]:
    passages = library.search("Where does the heron stand?", owner=owner).passages
    return [passage.document_id for passage in passages]


@pytest.mark.usefixtures("_impatient")
def test_a_time_limit_while_a_document_is_read_again_costs_neither_copy_nor_content(
    library: Library, tmp_path: Path
) -> None:
    before = library.wait(library.add(herons(tmp_path / "pond.md")).id, 60)
    limit(library, 0.01)
    assert library.reindex(before.id).again is not None
    after = library.wait(before.id, 60)
    assert after.state == "ready"
    assert "took longer than 0.01 s" in (after.reason or "")
    assert "It was tried 4 times. What was read before stays." in (after.reason or "")
    assert (tmp_path / "data/files" / before.content_hash).is_file()
    assert found(library) == [before.id]
    assert library.check().ok
    limit(library, 60)
    library.reindex(before.id)
    assert library.wait(before.id, 60) == replace(before, seconds=library.get(before.id).seconds)


@pytest.mark.usefixtures("_impatient")
def test_a_document_that_took_too_long_is_kept_and_tried_again(
    library: Library, tmp_path: Path
) -> None:
    limit(library, 0.01)
    view = library.wait(library.add(herons(tmp_path / "pond.md")).id, 60)
    assert (view.state, view.kept) == ("refused", True)
    assert "It was tried 4 times." in (view.reason or "")
    limit(library, 60)
    assert library.reindex(view.id).state in ("queued", "parsing", "embedding", "ready")
    assert library.wait(view.id, 60).state == "ready"
    assert found(library) == [view.id]


def held_while_read_again(
    library: Library, document: str, monkeypatch: pytest.MonkeyPatch
) -> threading.Event:
    """Have a document indexed again, up to its vectors; set what is returned to let it go on."""
    held, go_on = threading.Event(), threading.Event()
    step = library._indexer._embedding.step

    def wait_then_step(document_id: str) -> object:
        held.set()
        assert go_on.wait(60)
        return step(document_id)

    monkeypatch.setattr(library._indexer._embedding, "step", wait_then_step)
    library.reindex(document)
    assert held.wait(60)
    return go_on


def test_while_a_document_is_read_again_it_is_found_as_it_was(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = library.wait(library.add(herons(tmp_path / "pond.md")).id, 60)
    go_on = held_while_read_again(library, view.id, monkeypatch)
    try:
        now = library.get(view.id)
        assert (now.state, now.again, now.passages, now.settled) == ("ready", "embedding", 1, False)
        assert found(library) == [view.id]
        assert [one.id for one in library.documents()] == [view.id]
        assert library.page_text(view.id, 1).startswith("# Ponds")
    finally:
        go_on.set()
    assert library.wait(view.id, 60).again is None
    assert library.check().ok


def test_removing_a_document_that_is_read_again_removes_all_of_it(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = library.wait(library.add(herons(tmp_path / "pond.md")).id, 60)
    go_on = held_while_read_again(library, view.id, monkeypatch)
    library.remove(view.id)
    go_on.set()
    check = library.check()
    assert (check.ok, check.documents, check.passages, check.lexical) == (True, 0, 0, 0)
    assert library.documents() == []
    assert list((tmp_path / "data/files").iterdir()) == []


def test_two_owners_of_one_content_index_it_again_at_once(library: Library, tmp_path: Path) -> None:
    file = herons(tmp_path / "pond.md")
    views = [library.wait(library.add(file, owner=owner).id, 60) for owner in ("ada", "bob")]
    for view in views:
        library.reindex(view.id, view.owner)
    for view in views:
        assert library.wait(view.id, 60).state == "ready"
        assert found(library, view.owner) == [view.id]
    assert library.check().ok


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_too_little_memory_is_waited_for_and_told(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    encode, failures = library.embedder.encode, iter(range(3))

    def short_of_memory(texts: list[str]) -> object:
        if next(failures, None) is not None:
            raise error
        return encode(texts)

    monkeypatch.setattr(library.embedder, "encode", short_of_memory)
    view = library.wait(library.add(herons(tmp_path / "pond.md")).id, 60)
    assert (view.state, view.reason) == ("ready", None)
    failures = iter(range(4))
    library.reindex(view.id)
    again = library.wait(view.id, 60)
    assert (again.state, again.passages) == ("ready", 1)
    assert (again.reason or "").startswith("There was too little memory")
    failures = iter(range(4))
    other = library.wait(library.add(herons(tmp_path / "other.txt"), owner="bob").id, 60)
    assert (other.state, other.kept) == ("refused", True)


@pytest.mark.usefixtures("_impatient")
def test_a_database_without_a_free_connection_is_waited_for(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retrieval.indexing.RETRY_S", 0.05)
    encode, failures = library.embedder.encode, iter(range(8))

    def no_connection(texts: list[str]) -> object:
        if next(failures, None) is not None:
            raise NoConnection("QueuePool limit of size 5 overflow 10 reached")
        return encode(texts)

    monkeypatch.setattr(library.embedder, "encode", no_connection)
    view = library.add(herons(tmp_path / "pond.md"))
    deadline = time.monotonic() + 60
    while not (now := library.get(view.id)).settled:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert (now.state, now.reason) == ("ready", None)


def test_a_parser_that_was_killed_may_do_better_another_time(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retrieval.retries.PAUSE_S", 0.05)
    popen, started = subprocess.Popen, []

    def killed_at_first(*args: Any, **more: Any) -> Any:
        child = popen(*args, **more)
        if not started:
            child.kill()
        started.append(child)
        return child

    monkeypatch.setattr("retrieval.parsers.process.subprocess.Popen", killed_at_first)
    view = library.wait(library.add(herons(tmp_path / "pond.md")).id, 60)
    assert (view.state, len(started)) == ("ready", 2)


def test_one_that_waits_to_be_tried_again_keeps_nobody_waiting(
    library: Library, tmp_path: Path
) -> None:
    limit(library, 0.01)
    waits = library.add(herons(tmp_path / "pond.md"))
    deadline = time.monotonic() + 60
    while "It is tried again soon." not in (library.get(waits.id).reason or ""):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    library._indexer.retries.again(waits.id, "not before another minute")
    limit(library, 60)
    (tmp_path / "note.txt").write_text("A bittern.", encoding="utf-8")
    assert library.wait(library.add(tmp_path / "note.txt").id, 60).state == "ready"
    assert not library.get(waits.id).settled


def test_another_owners_document_is_not_found(library: Library, tmp_path: Path) -> None:
    file = tmp_path / "pond.md"
    file.write_text("# Ponds\n\nThe heron stands.\n", encoding="utf-8")
    view = library.wait(library.add(file, owner="ada").id, 60)
    with pytest.raises(DocumentNotFound):
        library.reindex(view.id, owner="bob")
    assert library.get(view.id, "ada").state == "ready"
