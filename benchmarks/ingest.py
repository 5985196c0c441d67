"""How fast documents become searchable, where the time goes, and what it takes of memory.

    python -m benchmarks.ingest [PATH...] [--pages N] [--json FILE]

Files and folders are added to a library of their own, as `python app.py add` does; without a path,
a PDF of N pages of prose (1,000) is written and indexed. The stages: `parsing` (the child process
reads and cuts), `embedding` (the model) and `storing` (sentences, database, indexes). A question is
searched twice a second meanwhile: `search_s` is what a chat waits for it beside the indexing.
Memory is the most that this process and its child held together.
"""

import argparse
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import ParamSpec, TypeVar

import psutil

from benchmarks.pdf import write_pdf
from benchmarks.prose import documents, sentences
from benchmarks.report import Report
from chat.migrations import migrate
from host.models import resolve
from host.settings import Settings
from retrieval import indexing
from retrieval.database import Database
from retrieval.embedder import Embedder
from retrieval.library import Library
from retrieval.views import DocumentView

WORDS_ON_A_PAGE = 300
_SAMPLE_S = 0.1
_ASK_EVERY_S = 0.5

P = ParamSpec("P")
R = TypeVar("R")


class Stages(Counter[str]):
    """Seconds by stage."""

    def timed(self, stage: str, call: Callable[P, R]) -> Callable[P, R]:
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            start = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                self[stage] += time.perf_counter() - start

        return run


class Peak:
    """The most memory that this process and its children hold while it is entered."""

    def __enter__(self) -> "Peak":
        self.bytes = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        own = psutil.Process()
        while not self._done.wait(_SAMPLE_S):
            held = 0
            for process in (own, *own.children(recursive=True)):
                try:
                    held += process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            self.bytes = max(self.bytes, held)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--pages", type=int, default=1_000, help="of the PDF that is written")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    report = Report()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        paths = options.paths
        if not paths:
            paths = [folder / "prose.pdf"]
            write_pdf(paths[0], pages_of_prose(options.pages))
        measure(paths, folder / "data", report)
    report.show("Ingest")
    report.write(options.json)


def measure(paths: Sequence[Path], folder: Path, report: Report) -> None:
    settings = Settings()
    embedder = Embedder(resolve(settings.embedder, settings.models_dir), settings.device)
    embedder.encode_question("loads the model")
    stages = Stages()
    embedder.encode = stages.timed("embedding", embedder.encode)  # type: ignore[method-assign]
    indexing.parse = stages.timed("parsing", indexing.parse)
    folder.mkdir()
    database = Database(f"sqlite:///{folder / 'pageturn.db'}")
    migrate(database)
    library = Library(database, folder, embedder)
    step = stages.timed("steps", library._indexer.step)
    library._indexer.step = step  # type: ignore[method-assign]
    with Peak() as peak:
        start = time.perf_counter()
        library.start()
        ids = list(dict.fromkeys(library.add(path).id for path in library.expand(paths)))
        searched_s = search_until(library, ids)
        total_s = time.perf_counter() - start
    views = [library.get(id) for id in ids]
    idle_s = [search_s(library) for _ in range(20)]
    library.close()
    database.close()
    stages["storing"] = stages.pop("steps") - stages["parsing"] - stages["embedding"]
    add_rows(report, views, stages, total_s)
    report.ratios |= {
        "outside_embedder_fraction": 1 - stages["embedding"] / total_s,
        "peak_bytes": peak.bytes,
        "search_s_while_indexing": spread(searched_s),
        "search_s_idle": spread(idle_s),
    }


def search_until(library: Library, ids: Sequence[str]) -> list[float]:
    """Search until all documents are settled; how long each search took."""
    taken = []
    left = list(ids)
    while left:
        left = [id for id in left if not library.wait(id, _ASK_EVERY_S).settled]
        taken.append(search_s(library))
    return taken


def search_s(library: Library) -> float:
    """How long a question takes that was not asked before, its embedding included."""
    return library.search(f"How large is the KV cache of model {time.monotonic_ns()}?").seconds


def add_rows(report: Report, views: Sequence[DocumentView], stages: Stages, total_s: float) -> None:
    ready = [view for view in views if view.state == "ready"]
    pages = sum(view.pages for view in ready)
    passages = sum(view.passages for view in ready)
    case = f"{len(ready)} of {len(views)} documents"
    for stage, seconds in (*sorted(stages.items()), ("all", total_s)):
        report.add(
            case,
            stage,
            seconds=seconds,
            fraction=seconds / total_s,
            pages=pages,
            pages_per_s=pages / seconds,
            passages=passages,
            passages_per_s=passages / seconds,
        )


def spread(seconds: Sequence[float]) -> dict[str, float]:
    p95 = quantiles(seconds, n=20)[-1] if len(seconds) > 1 else seconds[0]
    return {"median": median(seconds), "p95": p95}


def pages_of_prose(count: int) -> list[str]:
    """Sentences of the sample library in random order, about a book's page of them on each."""
    known = [sentence for text in documents().values() for sentence in sentences(text)]
    draw = random.Random(0)
    pages = []
    for number in range(count):
        text = f"Page {number}."
        while len(text.split()) < WORDS_ON_A_PAGE:
            text += " " + draw.choice(known)
        pages.append(text)
    return pages


if __name__ == "__main__":
    main()
