"""From which score on a question counts as answered, for each embedding model."""

from collections.abc import Callable
from pathlib import Path

import pytest

from retrieval import gates
from retrieval.embedder import Embedder
from retrieval.gates import DEFAULT, Gate, Gates
from retrieval.library import Library

TEXT = "# Herons\n\nThe heron stands in shallow water. Its nest is built of reed near the pond."


@pytest.fixture(scope="module")
def library(
    make_library: Callable[[], Library], tmp_path_factory: pytest.TempPathFactory
) -> Library:
    library = make_library()
    path = tmp_path_factory.mktemp("in") / "heron.md"
    path.write_text(TEXT, encoding="utf-8")
    assert library.wait(library.add(path).id, 120).state == "ready"
    return library


def test_an_index_comes_with_the_line_of_its_embedder(library: Library) -> None:
    fingerprint = library.embedder.fingerprint
    with library._database.reading() as session:
        row = session.get(Gate, fingerprint)
    assert row is not None
    again = Gates(library._database)
    assert again.threshold(fingerprint, True) == row.meaning
    assert again.threshold(fingerprint, False) == row.words
    assert again.threshold("another model", True) == DEFAULT.meaning
    # What stands in the source for the default model is about what it is found to have.
    assert row.meaning == pytest.approx(DEFAULT.meaning, abs=0.1)


def test_a_second_library_of_the_same_model_does_not_measure_again(
    library: Library, make_library: Callable[[], Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(_: Embedder) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(gates, "measured", measure)
    other = make_library()
    made = Gates(other._database)
    made.calibrate(library.embedder)
    line = Gates(library._database).threshold(library.embedder.fingerprint, True)
    assert made.threshold(library.embedder.fingerprint, True) == line


@pytest.mark.parametrize(
    ("question", "held"),
    [
        ("What is the heron's nest built of?", True),
        ("Where does the heron stand?", True),
        ("Who won the chess tournament in Vienna?", False),
        ("How tall is the lighthouse?", False),
    ],
)
def test_the_line_tells_what_is_there_from_what_is_not(
    library: Library, question: str, held: bool
) -> None:
    found = library.evidence(library.search(question))
    line = Gates(library._database).threshold(library.embedder.fingerprint, found.by_meaning)
    assert (found.gate >= line) == held


def test_the_shipped_questions_are_many_in_both_languages_and_none_is_twice() -> None:
    data = gates._data()
    for kind in ("answerable", "unanswerable"):
        chinese = [asked for asked in data[kind] if "\u4e00" <= asked[-2] <= "\u9fff"]
        assert len(data[kind]) >= 60
        assert len(chinese) >= 15
    assert len(set(data["answerable"] + data["unanswerable"])) == sum(
        len(data[kind]) for kind in ("answerable", "unanswerable")
    )
    assert Path(gates.__file__).with_name("calibration.json").is_file()
