"""What it costs that a turn and a document are on the disk before they are acknowledged.

    python -m benchmarks.durability [--folder DIR] [--rounds N] [--json FILE]

`commit` is one small transaction as a turn makes four or five of, with SQLite's log synchronised at
each commit (FULL, as the application has it) and not (NORMAL). `copy` is `FileStore` keeping a file
of one megabyte, synchronised and not. The two ways take turns; medians and 95th percentiles.
Give a folder on the disk that is meant: a folder in memory synchronises nothing.
"""

import argparse
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from unittest.mock import patch

import numpy as np
from sqlalchemy import text

from benchmarks.report import Report
from retrieval.database import Database
from retrieval.files import FileStore

WARM_UP = 5
_TURN = "x" * 2_000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--folder", type=Path, help="on the disk to measure")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    report = Report()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        measure(Path(folder), options.rounds, report)
    report.show("What durability costs")
    report.write(options.json)


def measure(folder: Path, rounds: int, report: Report) -> None:
    """Add a row for each kind of write, and the ratios of their medians."""
    database = Database(f"sqlite:///{folder / 'database'}")
    with database.session() as session:
        session.execute(text("CREATE TABLE turns (id INTEGER PRIMARY KEY, text TEXT)"))
    files = FileStore(folder / "files")
    source = folder / "source"
    source.write_bytes(b"x" * 2**20)

    def commit(synchronous: str) -> None:
        with database.session() as session:
            session.execute(text("INSERT INTO turns (text) VALUES (:text)"), {"text": _TURN})

    def copy(synchronous: str) -> None:
        skipped = patch("os.fsync", lambda descriptor: None)
        how: AbstractContextManager[object] = skipped if synchronous == "off" else nullcontext()
        with how, files.receive(source) as received:
            files.accept(received)

    compared: tuple[tuple[str, Callable[[str], None], str, str], ...] = (
        ("commit", commit, "FULL", "NORMAL"),
        ("copy of 1 MB", copy, "on", "off"),
    )
    for case, write, durable, quick in compared:
        times: dict[str, list[float]] = defaultdict(list)
        for _ in range(WARM_UP + rounds):
            for how in (durable, quick):
                if write is commit:
                    _set_synchronous(database, how)
                start = time.perf_counter()
                write(how)
                times[how].append(time.perf_counter() - start)
        for how, all_of_them in times.items():
            counted = np.array(all_of_them[WARM_UP:])
            median, p95 = float(np.median(counted)), float(np.quantile(counted, 0.95))
            report.add(case, f"synchronous {how}", rounds=rounds, median_s=median, p95_s=p95)
            times[how] = [median]
        report.ratios[case] = times[durable][0] / times[quick][0]
    database.close()


def _set_synchronous(database: Database, how: str) -> None:
    """For the one connection that a single thread has."""
    with database.reading() as session:
        driver = session.connection().connection.driver_connection
        assert driver is not None
        session.rollback()
        driver.execute(f"PRAGMA synchronous = {how}").close()


if __name__ == "__main__":
    main()
