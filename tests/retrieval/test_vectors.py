import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from retrieval import vectors
from retrieval.vectors import VECTOR_DTYPE, VectorIndex, to_bytes

DIM = 8
rng = np.random.default_rng(0)
VECTORS = rng.standard_normal((5, DIM)).astype(np.float32)
VECTORS /= np.linalg.norm(VECTORS, axis=1, keepdims=True)
ROWS = [(10 + i, to_bytes(v)) for i, v in enumerate(VECTORS)]


@pytest.fixture
def index(tmp_path: Path) -> VectorIndex:
    index = VectorIndex(tmp_path, "model-a", DIM)
    index.rebuild(ROWS)
    return index


def test_the_nearest_come_first_under_their_ids(index: VectorIndex) -> None:
    order = np.argsort(-(VECTORS @ VECTORS[2])) + 10
    hits = index.search(VECTORS[2], 5)
    assert [hit.id for hit in hits] == order.tolist()
    assert hits[0].cosine == pytest.approx(1.0)


def test_a_search_can_be_narrowed(index: VectorIndex) -> None:
    assert {hit.id for hit in index.search(VECTORS[2], 5, allowed=[10, 14])} == {10, 14}
    assert index.search(VECTORS[2], 5, allowed=[]) == []


def test_removed_vectors_are_not_found(index: VectorIndex) -> None:
    index.remove([12, 999])
    for _ in range(2):  # as it is marked, and as it is gone
        assert [hit.id for hit in index.search(VECTORS[2], 4)] != []
        assert {hit.id for hit in index.search(VECTORS[2], 5)} == {10, 11, 13, 14}
        assert {hit.id for hit in index.search(VECTORS[2], 5, allowed=[12, 13])} == {13}
        assert index.cosines(VECTORS[2], [12]) == {}
        assert sorted(index.ids()) == [10, 11, 13, 14]
        index.compact()
    assert index._index.ntotal == 4


@pytest.fixture(params=["_built", "_write"])
def slow(
    request: pytest.FixtureRequest, index: VectorIndex, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, threading.Event, threading.Event]]:
    """Training or saving that goes on from the first event to the second."""
    began, go_on = threading.Event(), threading.Event()
    work = getattr(index, request.param)

    def wait_then_work(*arguments: Any) -> Any:
        began.set()
        assert go_on.wait(60)
        return work(*arguments)

    monkeypatch.setattr(index, request.param, wait_then_work)
    yield request.param, began, go_on
    go_on.set()


def test_search_and_removing_wait_neither_for_training_nor_for_saving(
    index: VectorIndex, tmp_path: Path, slow: tuple[str, threading.Event, threading.Event]
) -> None:
    part, began, go_on = slow
    index.remove([10])
    work = index.compact if part == "_built" else lambda: index.save("a model")
    thread = threading.Thread(target=work)
    thread.start()
    assert began.wait(60)
    with ThreadPoolExecutor() as others:
        hits = others.submit(index.search, VECTORS[2], 5).result(60)
        assert {hit.id for hit in hits} == {11, 12, 13, 14}
        others.submit(index.remove, [11]).result(60)
    assert thread.is_alive()
    go_on.set()
    thread.join(60)
    assert {hit.id for hit in index.search(VECTORS[2], 5)} == {12, 13, 14}
    index.save("a model")
    assert VectorIndex(tmp_path, "model-a", DIM).load([12, 13, 14])


def test_an_empty_index_finds_nothing(tmp_path: Path) -> None:
    assert VectorIndex(tmp_path, "model-a", DIM).search(VECTORS[0], 3) == []


def test_a_saved_index_is_loaded_again(index: VectorIndex, tmp_path: Path) -> None:
    index.save("a model")
    again = VectorIndex(tmp_path, "model-a", DIM)
    assert again.load([14, 13, 12, 11, 10])
    assert again.search(VECTORS[2], 5) == index.search(VECTORS[2], 5)


@pytest.mark.parametrize("expected", [[], [10, 11, 12, 13], [10, 11, 12, 13, 15]])
def test_an_index_of_other_passages_is_not_loaded(
    index: VectorIndex, tmp_path: Path, expected: list[int]
) -> None:
    index.save("a model")
    assert not VectorIndex(tmp_path, "model-a", DIM).load(expected)


def test_an_index_of_another_model_is_not_loaded(index: VectorIndex, tmp_path: Path) -> None:
    index.save("a model")
    assert not VectorIndex(tmp_path, "model-b", DIM).load([10, 11, 12, 13, 14])


def test_a_damaged_or_swapped_file_is_not_loaded(index: VectorIndex, tmp_path: Path) -> None:
    index.save("a model")
    file = tmp_path / "index.faiss"
    file.write_bytes(file.read_bytes()[:50])
    assert not VectorIndex(tmp_path, "model-a", DIM).load([10, 11, 12, 13, 14])
    other = VectorIndex(tmp_path / "other", "model-a", DIM)
    other.rebuild(ROWS[:4])
    (tmp_path / "other").mkdir()
    other.save("a model")
    (tmp_path / "other/index.faiss").replace(file)
    assert not VectorIndex(tmp_path, "model-a", DIM).load([10, 11, 12, 13, 14])


def test_a_kill_between_the_two_files_leaves_an_index_that_is_not_loaded(
    index: VectorIndex, tmp_path: Path
) -> None:
    index.save("a model")
    (tmp_path / "index.json").unlink()
    assert not VectorIndex(tmp_path, "model-a", DIM).load([10, 11, 12, 13, 14])


def clustered(passages: int) -> list[tuple[int, bytes]]:
    """Vectors in groups, as those of texts are."""
    centres = rng.standard_normal((20, DIM))
    vectors = centres[rng.integers(0, 20, passages)] + 0.5 * rng.standard_normal((passages, DIM))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return [(id, to_bytes(vector.astype(np.float32))) for id, vector in enumerate(vectors)]


@pytest.fixture
def lists_from_200(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "FLAT_PASSAGES", 200)


def test_many_passages_are_sorted_into_lists_and_nearly_all_of_the_nearest_are_found(
    tmp_path: Path, lists_from_200: None
) -> None:
    rows = clustered(2000)
    index = VectorIndex(tmp_path, "model-a", DIM)
    for start in range(0, 2000, 150):  # it grows as documents come in
        index.add(rows[start : start + 150])
    assert sorted(index.ids()) == list(range(2000))
    assert index._lists(index._index).nlist > 8
    matrix = np.stack([np.frombuffer(vector, VECTOR_DTYPE) for _, vector in rows])
    found = expected = 0
    for question in matrix[:40]:
        nearest = set(np.argsort(-(matrix @ question))[:10].tolist())
        found += len(nearest & {hit.id for hit in index.search(question, 10)})
        expected += 10
    assert found >= 0.95 * expected


def test_lists_are_narrowed_removed_from_saved_and_loaded(
    tmp_path: Path, lists_from_200: None
) -> None:
    rows = clustered(500)
    index = VectorIndex(tmp_path, "model-a", DIM)
    index.rebuild(rows)
    question = np.frombuffer(rows[7][1], VECTOR_DTYPE)
    far = int(np.argmin([np.frombuffer(vector, VECTOR_DTYPE) @ question for _, vector in rows]))
    assert [hit.id for hit in index.search(question, 5, allowed=[far])] == [far]
    assert index.cosines(question, [7, 9999]) == {7: pytest.approx(1.0)}
    nearest = index.search(question, 50)
    index.remove([7])
    assert 7 not in [hit.id for hit in index.search(question, 50)]
    assert index.search(question, 49) == [hit for hit in nearest if hit.id != 7]
    index.compact()
    assert index.search(question, 49) == [hit for hit in nearest if hit.id != 7]
    assert index.cosines(question, [7]) == {}
    index.save("a model")
    again = VectorIndex(tmp_path, "model-a", DIM)
    assert again.load([id for id, _ in rows if id != 7])
    assert again.search(question, 5) == index.search(question, 5)


def test_the_cosine_of_a_passage_can_be_looked_up(index: VectorIndex) -> None:
    assert index.cosines(VECTORS[2], [12, 13, 99]) == {
        12: pytest.approx(1.0),
        13: pytest.approx(float(VECTORS[2] @ VECTORS[3])),
    }


def test_a_passage_that_is_like_the_question_stands_out_from_the_rest(tmp_path: Path) -> None:
    index = VectorIndex(tmp_path, "model-a", DIM)
    index.rebuild(ROWS)
    assert (
        index.stands_out(VECTORS[2], 1.0, "ada", lambda: None) is None
    )  # five passages say nothing
    rows = clustered(400)
    index.rebuild(rows)
    question = np.frombuffer(rows[7][1], VECTOR_DTYPE)
    cosines = np.stack([np.frombuffer(vector, VECTOR_DTYPE) for _, vector in rows]) @ question
    expected = (1.0 - cosines.mean()) / cosines.std()
    assert index.stands_out(question, 1.0, "ada", lambda: None) == pytest.approx(expected, rel=1e-3)
    index.remove(range(400))
    assert index.stands_out(question, 1.0, "ada", lambda: None) is None
