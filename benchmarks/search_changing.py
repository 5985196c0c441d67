"""How long search takes while the library changes, against an idle one.

    python -m benchmarks.search_changing [--passages N] [--json FILE]

The library is that of `benchmarks.search_scale`, in documents of a hundred passages. `idle` asks
one question after another while nothing else goes on. `changing` asks while, in another thread, the
vector index is trained anew and saved and half of the documents are removed one after the other,
until what they left in the indexes is dropped as well; `idle again` follows on what is left.
Embedding the questions is not counted. The target is a 95th percentile that is at most twice the
idle one.
"""

import argparse
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.report import Report
from benchmarks.search_scale import WARM_UP, Prose, fill
from chat.migrations import migrate
from host.models import resolve
from host.settings import load
from retrieval import store
from retrieval.database import Database
from retrieval.embedder import Embedder
from retrieval.library import Library

PASSAGES_A_DOCUMENT = 100
IDLE_QUESTIONS = 100


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--passages", type=int, default=20_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    settings, report = load({}), Report()
    embedder = Embedder(resolve(settings.embedder, settings.models_dir), settings.device)
    with tempfile.TemporaryDirectory() as folder:
        database = Database(f"sqlite:///{folder}/pageturn.db")
        migrate(database)
        library = Library(database, Path(folder), embedder)
        documents = max(2, options.passages // PASSAGES_A_DOCUMENT)
        fill(library, options.passages, documents)
        library.start()
        try:
            measure(library, report)
        finally:
            library.close()
            database.close()
    report.show("Search while the library changes")
    report.write(options.json)


def measure(library: Library, report: Report) -> None:
    """Add a row for each state of the library, and how the second compares with the first."""
    case = f"{library.check().passages:,} passages"
    prose = Prose(seed=2)
    times: dict[str, list[float]] = {}

    def ask(state: str, more: Callable[[], bool]) -> None:
        asked = times[state] = []
        while more():
            asked.append(_seconds(library, prose))

    def enough() -> Callable[[], bool]:
        left = iter(range(IDLE_QUESTIONS))
        return lambda: next(left, None) is not None

    for _ in range(WARM_UP):
        _seconds(library, prose)
    ask("idle", enough())
    changes = threading.Thread(target=change, args=(library,))
    changes.start()
    ask("changing", changes.is_alive)
    changes.join()
    ask("idle again", enough())
    for state, asked in times.items():
        report.add(
            case,
            state,
            questions=len(asked),
            median_s=float(np.median(asked)),
            p95_s=float(np.quantile(asked, 0.95)),
            longest_s=max(asked),
            p95_to_idle=float(np.quantile(asked, 0.95) / np.quantile(times["idle"], 0.95)),
        )


def change(library: Library) -> None:
    """Train, save, remove every second document, and drop what that left."""
    index = library._indexes.vectors()
    with library._database.reading() as session:
        rows = store.searchable_vectors(session, index.fingerprint)
    index.rebuild(rows)
    library._indexes.save()
    for view in library.documents()[::2]:
        library.remove(view.id)
    while library._indexes.compact_in_s() is not None:
        threading.Event().wait(0.05)
    library._indexes.save()


def _seconds(library: Library, prose: Prose) -> float:
    [question] = prose.questions(1)
    library.embedder.encode_questions([question])
    return library.search(question).seconds


if __name__ == "__main__":
    main()
