"""Indexing that is killed at random moments ends as if nothing had happened."""

import multiprocessing
import random
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select

from retrieval import store
from retrieval.database import Database
from retrieval.embedder import Embedder
from retrieval.gates import Gates
from retrieval.library import Library
from retrieval.sentence_rows import SENTENCE_DTYPE, PassageSentences
from retrieval.vectors import VECTOR_DTYPE
from tests.retrieval.make_files import make_database, many_pages, word_file

OpenLibrary = Callable[..., Library]
WAIT_S = 120


def _index(folder: Path, model: str, files: list[Path], ready: Connection) -> None:
    """Index the files, tell when it begins, and go on until killed."""
    database = make_database(folder)
    embedder = Embedder(model, "cpu")
    embedder.encode_question("loads the model")
    library = Library(database, folder, embedder)
    ready.send(None)
    library.start()
    for file in files:
        library.add(file)
    time.sleep(WAIT_S)


def _calibrate(folder: Path, embedder: Embedder) -> None:
    """Done once for a model, and longer than any document here takes: no kill is to wait for it."""
    database = make_database(folder)
    Gates(database).calibrate(embedder)
    database.close()


def _unfinished(folder: Path) -> int:
    database = Database(f"sqlite:///{folder}/pageturn.db")
    with database.reading() as session:
        views = store.views(session, "local")
    database.close()
    return sum(not view.settled for view in views)


def _contents(folder: Path) -> tuple[list[Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Everything indexing made, without its ids: passages and the ranges of their sentences, the
    vectors of both."""
    database = Database(f"sqlite:///{folder}/pageturn.db")
    columns = (
        store.Document.name,
        store.Document.state,
        store.Passage.page,
        store.Passage.char_start,
        store.Passage.char_end,
        store.Passage.text,
        store.Passage.heading,
        PassageSentences.spans,
    )
    query = (
        select(*columns, store.Passage.vector, PassageSentences.vectors)
        .join(store.Passage, store.Passage.document_id == store.Document.id)
        .outerjoin(PassageSentences, PassageSentences.passage_id == store.Passage.id)
        .order_by(store.Document.name, store.Passage.page, store.Passage.char_start)
    )
    with database.reading() as session:
        rows = [tuple(row) for row in session.execute(query)]
    database.close()
    vectors = np.frombuffer(b"".join(row[-2] for row in rows), dtype=VECTOR_DTYPE)
    of_sentences = np.frombuffer(b"".join(row[-1] for row in rows), dtype=SENTENCE_DTYPE)
    return [row[:-2] for row in rows], vectors, of_sentences.astype(np.float32)


def _documents(folder: Path, count: int) -> list[Path]:
    files = []
    for n in range(count):
        kind = ("pdf", "md", "csv", "docx")[n % 4]
        file = folder / f"{n}.{kind}"
        if kind == "pdf":
            file.write_bytes(many_pages(20 + n))
        elif kind == "docx":
            word_file(file)
        elif kind == "md":
            told = "".join(f"\n## Pond {k * n}\n\nIt is {k} m deep. A heron.\n" for k in range(20))
            file.write_text(f"# Ponds of {n}\n{told}")
        else:
            rows = "".join(f"Pond {k * n},{k} m,A heron waits there\n" for k in range(60))
            file.write_text(f"Name,Depth,Bird\n{rows}")
        files.append(file)
    return files


@pytest.mark.parametrize("kills", [4, pytest.param(10, marks=pytest.mark.slow)])
def test_indexing_killed_at_random_moments_ends_as_an_undisturbed_run(
    kills: int, tmp_path: Path, open_library: OpenLibrary, embedder_folder: str
) -> None:
    files = _documents(tmp_path, kills)
    undisturbed = open_library(tmp_path / "undisturbed")
    killed = tmp_path / "killed"
    _calibrate(killed, undisturbed.embedder)
    _calibrate(tmp_path / "undisturbed", undisturbed.embedder)
    start = time.monotonic()
    for id in [undisturbed.add(file).id for file in files]:
        assert undisturbed.wait(id, WAIT_S).state == "ready"
    one_s = (time.monotonic() - start) / kills
    expected = undisturbed.search("pond 36")

    # The moments are spread over what a document takes on this machine. A server of processes
    # has imported everything, so that a kill costs little more than that.
    draw = random.Random(kills)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "retrieval.library"])
    left = []
    for n in range(kills):
        here, there = context.Pipe(duplex=False)
        work = (killed, embedder_folder, files[: n + 1], there)
        process = context.Process(target=_index, args=work)
        process.start()
        there.close()
        try:
            assert here.poll(WAIT_S)
            here.recv()
            time.sleep(draw.uniform(0, 1.5 * one_s))
        finally:
            process.kill()
            process.join()
        left.append(_unfinished(killed))
    assert any(left), "no kill came in the middle of anything"

    resumed = open_library(killed)
    for id in [resumed.add(file).id for file in files]:
        assert resumed.wait(id, WAIT_S).state == "ready"
    assert resumed.check().ok
    found = resumed.search("pond 36")
    assert [p.text for p in found.passages] == [p.text for p in expected.passages]
    resumed.close()
    undisturbed.close()
    rows, vectors, of_sentences = _contents(killed)
    expected_rows, expected_vectors, expected_of_sentences = _contents(tmp_path / "undisturbed")
    assert rows == expected_rows
    np.testing.assert_allclose(vectors, expected_vectors, atol=1e-5)
    np.testing.assert_allclose(of_sentences, expected_of_sentences, atol=1e-3)
