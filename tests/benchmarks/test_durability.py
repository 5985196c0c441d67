"""The benchmark of durable writes makes a short run, and puts the two ways beside each other."""

from pathlib import Path

from benchmarks import durability
from benchmarks.report import Report


def test_both_ways_are_timed_for_each_kind_of_write(tmp_path: Path) -> None:
    report = Report()
    durability.measure(tmp_path, 3, report)
    assert [(row["case"], row["system"]) for row in report.rows] == [
        ("commit", "synchronous FULL"),
        ("commit", "synchronous NORMAL"),
        ("copy of 1 MB", "synchronous on"),
        ("copy of 1 MB", "synchronous off"),
    ]
    assert all(row["median_s"] > 0 for row in report.rows)
    assert report.ratios.keys() == {"commit", "copy of 1 MB"}
