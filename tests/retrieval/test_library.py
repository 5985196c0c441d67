import json
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest
from sqlalchemy import text

from retrieval.embedder import Embedder
from retrieval.errors import DataFolderNotWritable, DocumentNotFound, RetrievalError, Unreadable
from retrieval.lexical import indexed
from retrieval.library import Library
from tests.retrieval.make_files import pdf, word_file

OpenLibrary = Callable[..., Library]
SECRET = "zwitscherfrosch"
TEXT = f"# Ponds\n\nThe {SECRET} lives in the northern pond.\n"


def write(path: Path, data: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def on_disk(folder: Path, word: str) -> list[str]:
    """The files below a folder that hold a word."""
    found = []
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError, IsADirectoryError):  # it may be replaced just now
            if word.encode() in path.read_bytes().lower():
                found.append(path.name)
    return found


def test_every_format_becomes_ready(library: Library, tmp_path: Path) -> None:
    files = [
        write(tmp_path / "in/a.md", TEXT),
        write(tmp_path / "in/b.txt", "Plain words about ponds."),
        write(tmp_path / "in/c.html", "<title>Page</title><p>Words on a page.</p>"),
        write(tmp_path / "in/d.pdf", pdf(["One", "Two"], title="Two pages")),
        word_file(tmp_path / "in/e.docx"),
    ]
    views = [library.wait(library.add(file).id, 120) for file in files]
    assert [view.state for view in views] == ["ready"] * 5
    assert [view.title for view in views] == [
        "Ponds",
        "b",
        "Page",
        "Two pages",
        "A survey of ponds",
    ]
    assert [view.pages for view in views] == [1, 1, 1, 2, 1]
    assert all(view.passages == view.passages_done > 0 for view in views)
    assert [view.name for view in library.documents()] == [
        "a.md",
        "b.txt",
        "c.html",
        "d.pdf",
        "e.docx",
    ]
    assert library.page_text(views[3].id, 2) == "Two"
    assert json.loads(json.dumps(views[0].to_json()))["state"] == "ready"
    assert library.check().ok


def test_adding_answers_at_once(library: Library, tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", "The heron waits at the edge of the water. " * 100_000)
    start = time.perf_counter()
    view = library.add(file)
    assert time.perf_counter() - start < 2
    assert view.state in ("queued", "parsing")
    library.remove(view.id)


def test_the_same_content_is_one_document_whatever_its_name(
    library: Library, tmp_path: Path
) -> None:
    first = library.add(write(tmp_path / "a.md", TEXT))
    second = library.add(write(tmp_path / "b.md", TEXT))
    assert (first.duplicate, second.duplicate) == (False, True)
    assert second.id == first.id
    assert second.name == "a.md"
    assert len(library.documents()) == 1


def test_two_files_of_one_name_are_two_documents(library: Library, tmp_path: Path) -> None:
    library.add(write(tmp_path / "x/a.md", "one"))
    library.add(write(tmp_path / "y/a.md", "two"))
    assert [view.name for view in library.documents()] == ["a.md", "a.md"]


def test_bad_files_are_refused_with_reasons_and_stop_nobody(
    library: Library, tmp_path: Path
) -> None:
    bad = {
        "empty.pdf": (b"", "empty (0 bytes)"),
        "locked.pdf": (pdf(["x"], password="p"), "password"),
        "scan.pdf": (pdf([""]), "no text layer"),
        "broken.pdf": (b"%PDF-1.7 broken", "damaged"),
        "wrong.pdf": (b"GIF89a", "not a PDF"),
        "binary.txt": (bytes(range(256)) * 4, "binary"),
        "slides.odp": (b"slides", ".odp are not supported"),
        "noname": (b"words", "without an extension"),
    }
    added = [library.add(write(tmp_path / name, data)) for name, (data, _) in bad.items()]
    good = library.add(write(tmp_path / "good.md", TEXT))
    for view, (_, reason) in zip(added, bad.values(), strict=True):
        settled = library.wait(view.id, 120)
        assert settled.state == "refused"
        assert reason in (settled.reason or "")
        assert settled.passages == settled.pages == 0
    assert library.wait(good.id, 120).state == "ready"
    # What was let in and could not be read may be tried again.
    kept = {view.content_hash for view in library.documents() if view.kept}
    assert set(os.listdir(tmp_path / "data/files")) == kept
    assert [view.name for view in library.documents() if not view.kept] == [
        "empty.pdf",
        "slides.odp",
        "noname",
    ]
    assert library.check().ok


def test_a_refused_file_is_tried_again_under_its_new_name(library: Library, tmp_path: Path) -> None:
    refused = library.add(write(tmp_path / "notes.xyz", TEXT))
    assert refused.state == "refused"
    again = library.add(write(tmp_path / "notes.md", TEXT))
    assert (again.id, again.duplicate) == (refused.id, False)
    assert library.wait(again.id, 120).state == "ready"
    assert [view.name for view in library.documents()] == ["notes.md"]


def test_what_is_no_file_cannot_be_added(library: Library, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    for path, reason in (
        (tmp_path / "gone.md", "There is no file"),
        (tmp_path, "is a folder"),
        (tmp_path / "pipe.txt", "not a regular file"),
    ):
        with pytest.raises(Unreadable, match=reason):
            library.add(path)
    assert library.documents() == []


def test_a_copy_that_vanished_is_a_refusal(open_library: OpenLibrary, tmp_path: Path) -> None:
    library = open_library(start=False)
    view = library.add(write(tmp_path / "a.md", TEXT))
    (tmp_path / "data/files" / view.content_hash).unlink()
    assert not library.check().ok
    library.start()
    settled = library.wait(view.id, 60)
    assert settled.state == "refused"
    assert "missing. Add the file again" in (settled.reason or "")


def test_folders_are_walked_without_hidden_files(library: Library, tmp_path: Path) -> None:
    for name in ("b.md", "a/z.pdf", "a/deep/er.xyz", ".hidden.md", ".git/config.txt", "a/.x/y.md"):
        write(tmp_path / "in" / name, "x")
    (tmp_path / "in/loop").symlink_to(tmp_path / "in")
    (tmp_path / "in/dangling.md").symlink_to(tmp_path / "nowhere")
    missing = tmp_path / "missing.md"
    found = library.expand([tmp_path / "in", tmp_path / "in/b.md", missing])
    names = ["b.md", "a/z.pdf", "a/deep/er.xyz"]
    assert found == [*(tmp_path / "in" / name for name in names), missing]


def test_a_removed_document_leaves_everything(library: Library, tmp_path: Path) -> None:
    kept = library.add(write(tmp_path / "in/kept.md", "# Kept\n\nA heron."))
    view = library.add(write(tmp_path / "in/a.md", TEXT))
    library.wait(kept.id, 120)
    library.wait(view.id, 120)
    assert library.search(SECRET).passages[0].document_id == view.id
    told: list[tuple[str, str]] = []
    library.on_removed.append(lambda id, owner: told.append((id, owner)))
    assert library.remove(view.id).id == view.id
    assert told == [(view.id, "local")]
    assert [view.id for view in library.documents()] == [kept.id]
    assert {p.document_id for p in library.search(SECRET).passages} == {kept.id}
    until_off_disk(tmp_path / "data", SECRET)
    check = library.check()
    assert check.ok
    assert (check.documents, check.vectors, check.lexical) == (1, 1, 1)
    with pytest.raises(DocumentNotFound):
        library.remove(view.id)


def until_off_disk(folder: Path, word: str) -> None:
    deadline = time.monotonic() + 60
    while found := on_disk(folder, word):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def test_what_a_removal_left_to_drop_is_dropped_at_the_next_start(
    open_library: OpenLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retrieval.indexes.COMPACT_AFTER_S", 600)
    monkeypatch.setattr("retrieval.indexes.COMPACT_AT_LAST_S", 600)
    library = open_library()
    library.wait(library.add(write(tmp_path / "kept.md", "# Kept\n\nA heron.")).id, 120)
    view = library.wait(library.add(write(tmp_path / "a.md", TEXT)).id, 120)
    library.remove(view.id)
    killed = tmp_path / "killed"
    shutil.copytree(tmp_path / "data", killed)  # what a kill would leave
    assert on_disk(killed, SECRET) != []
    again = open_library(killed)
    until_off_disk(killed, SECRET)
    assert again.search("heron").passages
    assert again.check().ok


def test_closing_drops_what_removals_left(open_library: OpenLibrary, tmp_path: Path) -> None:
    library = open_library()
    view = library.wait(library.add(write(tmp_path / "a.md", TEXT)).id, 120)
    library.close()
    closed = open_library(start=False)  # as a command does it
    closed.remove(view.id)
    closed.close()
    assert on_disk(tmp_path / "data", SECRET) == []


def test_search_waits_for_no_change_of_the_library(library: Library, tmp_path: Path) -> None:
    library.wait(library.add(write(tmp_path / "a.md", TEXT)).id, 120)
    with library._lock, ThreadPoolExecutor() as others:
        assert others.submit(library.search, SECRET).result(60).passages


def test_words_are_cut_before_others_have_to_wait(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def cut(passage: str) -> str:
        with closing(sqlite3.connect(tmp_path / "data/pageturn.db", timeout=0)) as other:
            other.execute("BEGIN IMMEDIATE")  # raises while somebody writes
        asked.append(passage)
        return indexed(passage)

    monkeypatch.setattr("retrieval.indexing.indexed", cut)
    monkeypatch.setattr("retrieval.indexes.indexed", cut)
    assert library.wait(library.add(write(tmp_path / "a.md", TEXT)).id, 120).state == "ready"
    library.rebuild_index()
    assert len(asked) == 2


def test_content_that_another_owner_has_too_stays(library: Library, tmp_path: Path) -> None:
    file = write(tmp_path / "a.md", TEXT)
    hers, his = library.add(file, owner="ada"), library.add(file, owner="bob")
    assert hers.id != his.id
    assert not his.duplicate
    library.wait(hers.id, 120)
    library.wait(his.id, 120)
    with pytest.raises(DocumentNotFound):
        library.remove(hers.id, owner="bob")
    library.remove(hers.id, owner="ada")
    assert library.search(SECRET, owner="bob").passages
    assert library.is_empty("ada")
    assert not library.is_empty("bob")
    assert library.check().ok


def test_a_document_can_be_removed_while_it_waits(
    open_library: OpenLibrary, tmp_path: Path
) -> None:
    library = open_library(start=False)
    view = library.add(write(tmp_path / "a.md", TEXT))
    library.remove(view.id)
    library.start()
    assert library.documents() == []
    assert list((tmp_path / "data/files").iterdir()) == []


def test_waiting_where_nothing_indexes_says_so(open_library: OpenLibrary, tmp_path: Path) -> None:
    library = open_library(start=False)
    view = library.add(write(tmp_path / "a.md", TEXT))
    with pytest.raises(RetrievalError, match="start it first"):
        library.wait(view.id)


def test_copies_that_no_document_has_are_swept_at_start(
    open_library: OpenLibrary, tmp_path: Path
) -> None:
    write(tmp_path / "data/files/.incoming-1", "half")
    write(tmp_path / "data/files/0123", "of no document")
    open_library()
    assert list((tmp_path / "data/files").iterdir()) == []


def test_a_lost_or_stale_index_file_is_built_again(
    open_library: OpenLibrary, tmp_path: Path
) -> None:
    library = open_library()
    library.wait(library.add(write(tmp_path / "a.md", TEXT)).id, 120)
    library.close()
    before = (tmp_path / "data/index.faiss").read_bytes()
    (tmp_path / "data/index.faiss").write_bytes(b"nonsense")
    again = open_library()
    assert again.search(SECRET).passages
    again.close()
    assert (tmp_path / "data/index.faiss").read_bytes() == before


def test_indexes_can_be_checked_and_rebuilt(
    open_library: OpenLibrary, tmp_path: Path, embedder: Embedder
) -> None:
    library = open_library()
    library.wait(library.add(write(tmp_path / "a.md", TEXT)).id, 120)
    library.close()
    (tmp_path / "data/index.json").write_text(
        json.dumps({"model": "m", "fingerprint": "other", "dim": 384, "passages": 1, "digest": "x"})
    )
    fresh = open_library(start=False)
    assert fresh.check().problems == (
        "The vector index does not fit the database; rebuild the index.",
    )
    fresh.rebuild_index()
    assert fresh.check().ok
    assert fresh.search(SECRET).passages


def test_a_word_index_that_lost_passages_is_filled_again_at_start(
    open_library: OpenLibrary, tmp_path: Path
) -> None:
    library = open_library()
    library.wait(library.add(write(tmp_path / "a.md", TEXT)).id, 120)
    library.close()
    with library._database.session() as session:
        session.execute(text(f"DELETE FROM passages_fts_{b'local'.hex()}"))
    assert library.check().problems == (
        "The word index does not fit the database; rebuild the index.",
    )
    again = open_library()
    assert again.check().ok
    assert again.search(SECRET).passages[0].lexical_rank == 1


def test_a_file_name_that_is_no_valid_text_is_stored(library: Library, tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/K\xf6ln.txt"))
    view = library.wait(library.add(write(path, TEXT)).id, 120)
    assert (view.name, view.state) == ("K\ufffdln.txt", "ready")


def test_a_folder_that_cannot_be_written_says_so(tmp_path: Path, open_library: OpenLibrary) -> None:
    library = open_library(start=False)
    database = library._database
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataFolderNotWritable, match="write access"):
        Library(database, tmp_path / "file", library.embedder)


def test_a_folder_of_another_user_says_so(tmp_path: Path, open_library: OpenLibrary) -> None:
    library = open_library(start=False)
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    user = os.geteuid()
    if user == 0:  # root may write anywhere, so be somebody else for a moment
        os.seteuid(65534)
    try:
        with pytest.raises(DataFolderNotWritable, match="write access"):
            Library(library._database, locked, library.embedder)
    finally:
        os.seteuid(user)


def test_a_file_that_may_not_be_read_says_so(library: Library, tmp_path: Path) -> None:
    file = write(tmp_path / "a.md", TEXT)
    file.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.chmod(tmp_path, 0o755)
        os.seteuid(65534)
    try:
        with pytest.raises(Unreadable, match=r"may not be read|cannot be read"):
            library.add(file)
    finally:
        os.seteuid(user)
