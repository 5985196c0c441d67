"""What happens to indexing when the process, the disk or the model goes away."""

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select

from retrieval import sentence_rows, store
from retrieval.database import Database, is_storage_full
from retrieval.embedder import Embedder
from retrieval.embedding import BATCH_PASSAGES
from retrieval.errors import EmbedderUnavailable, StorageFull
from retrieval.library import Library
from retrieval.vectors import VECTOR_DTYPE, stored_identity
from retrieval.views import DocumentView
from tests.retrieval.make_files import make_database, many_pages

OpenLibrary = Callable[..., Library]
SLOWLY = Path(__file__).with_name("index_slowly.py")
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retrieval.indexing.RETRY_S", 0.5)


def passages(folder: Path) -> tuple[list[Any], np.ndarray[Any, Any]]:
    """All passages of a data folder without their ids, and their vectors [passages, dim]."""
    database = Database(f"sqlite:///{folder}/pageturn.db")
    columns = (
        store.Document.name,
        store.Passage.page,
        store.Passage.char_start,
        store.Passage.char_end,
        store.Passage.text,
        store.Passage.heading,
    )
    query = select(*columns, store.Passage.vector).join(store.Document)
    with database.reading() as session:
        rows = [tuple(row) for row in session.execute(query.order_by(*columns[:3]))]
    database.close()
    vectors = np.frombuffer(b"".join(row[-1] for row in rows), dtype=VECTOR_DTYPE)
    return [row[:-1] for row in rows], vectors.reshape(len(rows), -1)


def documents(folder: Path) -> list[DocumentView]:
    database = Database(f"sqlite:///{folder}/pageturn.db")
    try:
        with database.reading() as session:
            return store.views(session, "local")
    finally:
        database.close()


def index_until(
    reached: Callable[[list[DocumentView]], bool], folder: Path, model: str, files: list[Path]
) -> None:
    """Index in another process and kill it, as `kill -9` does, once `reached` is true."""
    make_database(folder).close()
    command = [sys.executable, str(SLOWLY), str(folder), model, *map(str, files)]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    process = subprocess.Popen(command, env=environment)
    try:
        deadline = time.monotonic() + 120
        while not reached(documents(folder)):
            assert process.poll() is None, "the process ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def test_indexing_that_was_killed_goes_on_and_ends_the_same(
    tmp_path: Path, open_library: OpenLibrary, embedder_folder: str
) -> None:
    files = [tmp_path / "ponds.pdf", tmp_path / "note.md"]
    files[0].write_bytes(many_pages(100))
    files[1].write_text("# Note\n\nA heron.\n")
    undisturbed = open_library(tmp_path / "undisturbed")
    for file in files:
        undisturbed.wait(undisturbed.add(file).id, 120)
    undisturbed.close()

    killed = tmp_path / "killed"

    def in_the_middle(views: list[DocumentView]) -> bool:
        return any(0 < view.passages_done < view.passages for view in views)

    index_until(in_the_middle, killed, embedder_folder, files)
    before = {view.name: view for view in documents(killed)}
    assert before["ponds.pdf"].state == "embedding"
    done = before["ponds.pdf"].passages_done
    assert done % BATCH_PASSAGES == 0
    kept = {row[0] for row in _ids_with_vectors(killed)}

    resumed = open_library(killed)
    for view in before.values():
        assert resumed.wait(view.id, 120).state == "ready"
    assert resumed.search("pond number 8649").passages[0].page == 94
    assert resumed.check().ok
    resumed.close()
    # The work that was done is kept, not done again.
    assert kept <= {row[0] for row in _ids_with_vectors(killed)}
    texts, vectors = passages(killed)
    expected_texts, expected_vectors = passages(tmp_path / "undisturbed")
    assert texts == expected_texts
    np.testing.assert_allclose(vectors, expected_vectors, atol=1e-5)


def _ids_with_vectors(folder: Path) -> list[tuple[int]]:
    database = Database(f"sqlite:///{folder}/pageturn.db")
    with database.reading() as session:
        query = select(store.Passage.id).where(store.Passage.vector.is_not(None))
        rows = [(id,) for id in session.scalars(query)]
    database.close()
    return rows


def test_a_file_that_was_being_parsed_when_killed_is_parsed_again(
    tmp_path: Path, open_library: OpenLibrary, embedder_folder: str
) -> None:
    file = tmp_path / "book.txt"
    file.write_text("".join(f"Pond {n} is {n} m deep.\n" for n in range(20_000)))

    def parsing(views: list[DocumentView]) -> bool:
        return any(view.state == "parsing" for view in views)

    index_until(parsing, tmp_path / "killed", embedder_folder, [file])
    (view,) = documents(tmp_path / "killed")
    assert (view.state, view.passages, view.pages) == ("parsing", 0, 0)
    library = open_library(tmp_path / "killed")
    view = _until(lambda: library.get(view.id), lambda view: view.state == "embedding")
    assert view.passages > 1000
    library.remove(view.id)


def _until(get: Callable[[], Any], reached: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + 60
    while not reached(value := get()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return value


def test_closing_stops_a_parser_and_the_file_stays_queued(
    tmp_path: Path, open_library: OpenLibrary
) -> None:
    file = tmp_path / "book.txt"
    file.write_text("The heron waits at the edge of the water. " * 100_000)
    library = open_library()
    view = library.add(file)
    _until(lambda: library.get(view.id), lambda view: view.state == "parsing")
    start = time.monotonic()
    library.close()
    assert time.monotonic() - start < 3
    assert library.get(view.id).state == "parsing"
    assert library.get(view.id).passages == 0


class SmallDisk:
    """A place to write to that can be made full and be given space again."""

    def __init__(self, folder: Path, mounted: bool) -> None:
        self.folder = folder
        self._mounted = mounted
        self._limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(self, left_bytes: int) -> None:
        if not self._mounted:
            used = max((f.stat().st_size for f in self.folder.glob("*.db*")), default=0)
            resource.setrlimit(resource.RLIMIT_FSIZE, (used + left_bytes, self._limits[1]))
            return
        status = os.statvfs(self.folder)
        filler = bytes(max(0, status.f_bavail * status.f_frsize - left_bytes))
        (self.folder / "filler").write_bytes(filler)

    def free(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self._limits)
        (self.folder / "filler").unlink(missing_ok=True)


def _can_mount() -> bool:
    if os.geteuid() != 0:
        return False
    probe = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(probe, capture_output=True).returncode == 0


# A real file system of a few megabytes where the tests may mount one, and everywhere a limit on
# the size of files, which fails the same writes with EFBIG.
@pytest.fixture(params=["limit", "tmpfs"] if _can_mount() else ["limit"])
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallDisk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = request.param == "tmpfs"
    if mounted:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], check=True)
    disk = SmallDisk(folder, mounted)
    try:
        yield disk
    finally:
        disk.free()
        if mounted:
            subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_file_whose_copy_does_not_fit_is_refused_whole(
    tmp_path: Path, small_disk: SmallDisk, open_library: OpenLibrary
) -> None:
    library = open_library(small_disk.folder)
    file = tmp_path / "book.txt"
    file.write_text("The heron waits. " * 60_000)
    small_disk.fill(left_bytes=200_000)
    with pytest.raises(StorageFull, match=r"is full\. Free some space"):
        library.add(file)
    assert library.documents() == []
    assert list((small_disk.folder / "files").iterdir()) == []
    small_disk.free()
    assert library.add(file).state in ("queued", "parsing")
    library.remove(library.documents()[0].id)


def test_indexing_waits_for_space_and_goes_on(
    tmp_path: Path, small_disk: SmallDisk, open_library: OpenLibrary
) -> None:
    library = open_library(small_disk.folder, start=False)
    file = tmp_path / "ponds.pdf"
    file.write_bytes(many_pages(300))
    view = library.add(file)
    small_disk.fill(left_bytes=20_000)
    library.start()
    with pytest.raises(StorageFull):
        library.wait(view.id, 60)
    waiting = library.get(view.id)
    assert not waiting.settled
    assert "is full" in (waiting.reason or "")
    assert (waiting.pages, waiting.passages) in ((0, 0), (300, 300))  # nothing half
    small_disk.free()
    ready = _until(lambda: library.get(view.id), lambda view: view.state == "ready")
    assert (ready.passages, ready.passages_done, ready.reason) == (300, 300, None)
    assert library.check().ok


def test_the_system_s_ways_to_say_full_are_understood() -> None:
    for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        assert is_storage_full(OSError(code, os.strerror(code)))


def test_without_an_embedding_model_documents_wait_and_say_why(
    tmp_path: Path, open_library: OpenLibrary, embedder_folder: str
) -> None:
    (tmp_path / "a.md").write_text("# Herons\n\nA heron.")
    model = tmp_path / "model"
    library = open_library(embedder=Embedder(str(model), "cpu"))
    view = library.add(tmp_path / "a.md")
    with pytest.raises(EmbedderUnavailable, match="fetch"):
        library.wait(view.id, 60)
    assert "fetch" in (library.documents()[0].reason or "")
    model.symlink_to(embedder_folder)
    ready = _until(lambda: library.get(view.id), lambda view: view.state == "ready")
    assert ready.reason is None


@pytest.fixture
def other_model(tmp_path: Path, embedder_folder: str) -> Path:
    """The same model with another fingerprint."""
    folder = tmp_path / "other-model"
    shutil.copytree(embedder_folder, folder)
    (folder / "note.json").write_text("{}")
    return folder


def by_meaning(library: Library) -> list[int | None]:
    # Not a word of it is in the document.
    return [found.dense_rank for found in library.search("wading birds").passages]


def test_after_a_change_of_model_the_old_index_answers_until_all_is_embedded_anew(
    tmp_path: Path, open_library: OpenLibrary, embedder: Embedder, other_model: Path
) -> None:
    (tmp_path / "a.md").write_text("# Herons\n\nA heron stands. It waits.")
    library = open_library(embedder=Embedder(str(other_model), "cpu"))
    view = library.wait(library.add(tmp_path / "a.md").id, 120)
    library.close()
    now = open_library(start=False)
    (problem,) = now.check().problems
    assert problem.startswith("1 passages are not embedded by this model")
    assert "rebuild-index" in problem
    assert by_meaning(now) == [1]
    now.start()
    assert now.wait(view.id, 120).state == "ready"
    _until(now.check, lambda check: check.ok)
    _until(now._indexes.dense, lambda dense: dense.embedder is embedder)
    assert by_meaning(now) == [1]
    now.close()
    assert stored_identity(tmp_path / "data").fingerprint == embedder.fingerprint


def test_if_the_old_model_is_gone_words_are_found_until_all_is_embedded_anew(
    tmp_path: Path, open_library: OpenLibrary, other_model: Path
) -> None:
    (tmp_path / "a.md").write_text("# Herons\n\nA heron stands. It waits.")
    library = open_library(embedder=Embedder(str(other_model), "cpu"))
    library.wait(library.add(tmp_path / "a.md").id, 120)
    library.close()
    shutil.rmtree(other_model)
    now = open_library(start=False)
    assert by_meaning(now) == []
    assert [found.lexical_rank for found in now.search("heron").passages] == [1]
    now.start()
    _until(now.check, lambda check: check.ok)
    assert by_meaning(now) == [1]


def test_passages_that_another_model_would_not_read_to_their_end_are_cut_anew(
    tmp_path: Path, open_library: OpenLibrary, other_model: Path
) -> None:
    (tmp_path / "a.txt").write_text("The heron waits at the edge of the water. " * 60)
    library = open_library()
    view = library.wait(library.add(tmp_path / "a.txt").id, 120)
    library.close()
    (other_model / "sentence_bert_config.json").write_text('{"max_seq_length": 128}')
    now = open_library(embedder=Embedder(str(other_model), "cpu"))
    _until(
        lambda: now.get(view.id),
        lambda again: again.state == "ready" and again.passages > view.passages,
    )
    assert now.check().ok


def test_passages_that_cannot_be_cut_anew_stay_and_are_embedded_as_they_are(
    tmp_path: Path, open_library: OpenLibrary, other_model: Path
) -> None:
    (tmp_path / "a.txt").write_text("The heron waits at the edge of the water. " * 60)
    library = open_library()
    view = library.wait(library.add(tmp_path / "a.txt").id, 120)
    library.close()
    (tmp_path / "data/files" / view.content_hash).unlink()
    (other_model / "sentence_bert_config.json").write_text('{"max_seq_length": 128}')
    now = open_library(embedder=Embedder(str(other_model), "cpu"))
    _until(lambda: now.passages_left(), lambda left: left == 0)
    after = now.get(view.id)
    assert (after.state, after.passages) == ("ready", view.passages)
    assert (after.reason or "").endswith("What was read before stays.")
    ranks = by_meaning(now)
    assert ranks
    assert None not in ranks


def test_documents_of_a_version_without_sentences_get_them(
    tmp_path: Path, open_library: OpenLibrary
) -> None:
    (tmp_path / "a.md").write_text("# Herons\n\nA heron stands. It waits.")
    library = open_library()
    view = library.wait(library.add(tmp_path / "a.md").id, 120)
    library.close()
    with library._database.session() as session:
        (passage,) = store.passage_ids(session, view.id)
        sentence_rows.forget(session, view.id)
    now = open_library(start=False)
    assert now.get(view.id).state == "ready"
    now.start()

    def sentences() -> dict[int, sentence_rows.StoredSentences]:
        with now._database.reading() as session:
            return sentence_rows.of_passages(session, [passage], now.embedder.fingerprint)

    (stored,) = _until(sentences, bool).values()
    assert stored.texts == ("# Herons", "A heron stands.", "It waits.")
    assert by_meaning(now) == [1]
    assert now.check().ok


def test_a_small_file_is_not_kept_waiting_by_a_book(
    tmp_path: Path, open_library: OpenLibrary
) -> None:
    (tmp_path / "book.txt").write_text("The heron waits at the water's edge. " * 6_000)
    (tmp_path / "note.md").write_text("# Note\n\nA heron.")
    library = open_library()
    book = library.add(tmp_path / "book.txt")
    _until(lambda: library.get(book.id), lambda view: view.passages_done > 0)
    note = library.wait(library.add(tmp_path / "note.md").id, 60)
    assert note.state == "ready"
    on_its_way = library.get(book.id)
    assert not on_its_way.settled
    assert on_its_way.seconds_left
    assert note.seconds_left is None
    assert library.search("heron").passages[0].document_id == note.id
    library.remove(book.id)
