"""The load that a hundred people make, made by four."""

from pathlib import Path

from benchmarks import load
from benchmarks.report import Report


def test_what_people_were_told_is_there_and_is_their_own(tmp_path: Path, models_dir: Path) -> None:
    report = Report()
    load.measure(tmp_path, users=4, questions=2, tokens=8, report=report)
    [row] = report.rows
    assert (row["answered"], row["refused"], row["failed"]) == (8, 0, 0)
    assert (row["lost"], row["foreign"]) == (0, 0)
    assert row["peak_bytes"] >= row["ready_bytes"] > 0


def test_another_persons_words_are_noticed() -> None:
    person = load.Seen("ada", "reed0001")
    person.read("The heron of reed0001 waits where that of reed0002 does.")
    assert person.foreign == 1
