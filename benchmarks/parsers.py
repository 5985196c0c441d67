"""How files come out of the parsers: `python -m benchmarks.parsers --manifest FILE --json FILE`.

The manifest is a table with tabs, a file a line, which lies beside it or in `files/`. Its columns:
`file`; `expect`, one outcome or several with `_or_` between; `must_contain` and `must_not_contain`,
phrases with `‖` between. Outcomes are what a person is told:

    text          read, with every phrase and none of the forbidden ones
    no_text       a sound file without text; or one that only text recognition could read
    optional      "text_optional": text or no_text
    garbage       refused, or read with a warning, for letters that cannot be known
    empty  password  corrupt  unsupported

Every file goes the way of the product: added to a library under its name, then parsed and cut by
the child process. `peak_bytes` is that child's, `parent_bytes` what the process that runs it grew.
"""

import contextlib
import csv
import multiprocessing
import re
import resource
import sys
import threading
import time
import unicodedata
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NamedTuple

import psutil
import typer

from benchmarks.report import Report
from chat.migrations import migrate
from host.models import EMBEDDER
from retrieval.database import Database
from retrieval.embedder import Embedder
from retrieval.errors import Unreadable
from retrieval.library import Library
from retrieval.parsers.process import ParsedFile, ParseLimits, parse
from retrieval.views import DocumentView

MOST_SECONDS = 20.0
_PHRASES = "‖"
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
_EAST_ASIAN = "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]"
_BETWEEN_EAST_ASIAN = re.compile(rf"(?<={_EAST_ASIAN})\s+(?={_EAST_ASIAN})")
# What a refusal says, and what kind that is; the first that fits.
_SAID = (
    ("empty", r"is empty \(0 bytes\)"),
    ("password", r"password|protected|encrypted"),
    ("unsupported", r"not supported|older|Save it as|Convert it to|Export it as"),
    ("garbage", r"could not be read reliably"),
    ("limit", r"took longer|more computing|memory|unpacks to|more than .* characters"),
    ("crash", r"parser crash"),
    ("no_text", r"no text|nothing to index|only white space"),
    ("corrupt", r"damaged|not a |although its name|cannot be (read|opened)|binary"),
)


class Case(NamedTuple):
    """One line of a manifest."""

    file: str
    expect: str
    contains: tuple[str, ...]
    excludes: tuple[str, ...]

    @property
    def outcomes(self) -> set[str]:
        names = set(
            self.expect.replace("_or_", "|").replace("text_optional", "text|no_text").split("|")
        )
        # A bomb or a loop that is stopped at a limit is a refusal like any other.
        return names | ({"limit"} if names & {"corrupt", "unsupported"} else set())


class Result(NamedTuple):
    """What became of a file."""

    outcome: str
    why: str
    seconds: float
    peak_bytes: int
    parent_bytes: int


def cases(manifest: Path) -> list[Case]:
    with manifest.open(encoding="utf-8", newline="") as file:
        return [
            Case(
                row["file"],
                row["expect"],
                _phrases(row.get("must_contain")),
                _phrases(row.get("must_not_contain")),
            )
            for row in csv.DictReader(file, delimiter="\t")
        ]


def _phrases(joined: str | None) -> tuple[str, ...]:
    return tuple(filter(None, map(normal, (joined or "").split(_PHRASES))))


def normal(text: str) -> str:
    """Text as it is compared: compatible forms, spaces, case and invisible marks made the same."""
    text = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text))
    return " ".join(_BETWEEN_EAST_ASIAN.sub("", text).split()).casefold()


def passes(case: Case, outcome: str) -> bool:
    return outcome in case.outcomes


def judged(case: Case, read: ParsedFile) -> tuple[str, str]:
    """The outcome of a file that was read, and what speaks for it."""
    text = normal("\n".join(read.pages))
    missing = [phrase for phrase in case.contains if phrase not in text]
    forbidden = [phrase for phrase in case.excludes if phrase in text]
    remarks = " ".join(read.warnings)
    without_ocr = [n for n, page in enumerate(read.pages, 1) if page and n not in read.ocr_pages]
    if not without_ocr and read.ocr_pages and "no_text" in case.outcomes:
        return "no_text", f"only by text recognition: {remarks}"
    if "garbage" in case.outcomes and ("reliably" in remarks or read.ocr_pages):
        return "garbage", remarks
    if missing or forbidden:
        lacks = f"lacks {missing}" if missing else f"has {forbidden}"
        return "wrong_text", f"{lacks}. {remarks}"
    return "text", remarks


class Reader:
    """Adds files to a library and reads each in processes of its own, to measure its own cost."""

    def __init__(self, folder: Path, embedder: Embedder) -> None:
        self._folder = folder
        self._embedder = embedder
        self._database = Database(f"sqlite:///{folder}/pageturn.db")
        migrate(self._database)
        self._library = Library(self._database, folder, embedder)

    def close(self) -> None:
        self._library.close()
        self._database.close()

    def read(self, path: Path, case: Case) -> Result:
        start = time.perf_counter()
        try:
            # An owner for each file: two may have the same content.
            view = self._library.add(path, owner=case.file)
            if view.name != path.name:
                return Result("wrong_name", f"kept as {view.name!r}", 0.0, 0, 0)
            if view.state == "refused":
                raise Unreadable(view.reason or "")
        except Unreadable as error:
            seconds = time.perf_counter() - start
            return Result(_kind(error.reason), error.reason, seconds, 0, 0)
        context = multiprocessing.get_context("fork")
        here, there = context.Pipe(duplex=False)
        worker = context.Process(target=self._work, args=(view, case, there))
        worker.start()
        there.close()
        try:
            outcome, why, peak, grown = here.recv()
        except EOFError:
            outcome, why, peak, grown = "crash", "the process that reads it ended", 0, 0
        worker.join()
        return Result(outcome, why, time.perf_counter() - start, peak, grown)

    def _work(self, view: DocumentView, case: Case, answer: Connection) -> None:
        before = _own_peak()
        watch = _Watch()
        watch.start()
        try:
            outcome, why = self._parsed(view, case)
        except Exception as error:  # what a person would see as a traceback
            outcome, why = "traceback", f"{type(error).__name__}: {error}"
        watch.ended.set()
        watch.join()
        answer.send((outcome, why, watch.peak_bytes, _own_peak() - before))

    def _parsed(self, view: DocumentView, case: Case) -> tuple[str, str]:
        try:
            read = parse(
                self._folder / "files" / view.content_hash,
                view.format,
                tokenizer_file=self._embedder.tokenizer_file,
                max_tokens=self._embedder.max_tokens,
                limits=ParseLimits(),
                stop=threading.Event(),
            )
        except Unreadable as error:
            return _kind(error.reason), error.reason
        return judged(case, read)


class _Watch(threading.Thread):
    """The most memory that any process below this one holds."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self.peak_bytes = 0

    def run(self) -> None:
        own = psutil.Process()
        while not self.ended.wait(0.02):
            for child in own.children(recursive=True):
                with contextlib.suppress(psutil.Error, OSError):
                    self.peak_bytes = max(self.peak_bytes, child.memory_info().rss)


def _kind(reason: str) -> str:
    return next((kind for kind, said in _SAID if re.search(said, reason)), "refused")


def _own_peak() -> int:
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used * (1 if sys.platform == "darwin" else 1024)


def main(
    manifest: Annotated[Path, typer.Option(exists=True, dir_okay=False)],
    json: Annotated[Path | None, typer.Option(help="Where to write the JSON object.")] = None,
    only: Annotated[str, typer.Option(help="Files whose names hold this.")] = "",
    models: Annotated[Path, typer.Option(help="The folder of the models.")] = Path(
        "data/var/models"
    ),
) -> None:
    embedder = Embedder(str(EMBEDDER.folder(models.absolute()) / EMBEDDER.load), "cpu")
    report, passed, slowest, grown = Report(), 0, 0.0, 0
    with TemporaryDirectory() as folder, closing(Reader(Path(folder), embedder)) as reader:
        for case in cases(manifest):
            if only not in case.file:
                continue
            beside = manifest.parent / case.file
            path = beside if beside.is_file() else manifest.parent / "files" / case.file
            result = reader.read(path, case)
            good = passes(case, result.outcome) and result.seconds <= MOST_SECONDS
            passed += good
            slowest, grown = max(slowest, result.seconds), max(grown, result.parent_bytes)
            measured: dict[str, Any] = {"outcome": result.outcome, "expected": case.expect}
            measured |= {"pass": good, "why": result.why, "seconds": round(result.seconds, 3)}
            measured |= {"peak_bytes": result.peak_bytes, "parent_bytes": result.parent_bytes}
            report.add(case.file, "pageturn", **measured)
    report.ratios = {
        "pass_fraction": passed / len(report.rows) if report.rows else 0.0,
        "slowest_s": slowest,
        "parent_growth_bytes": grown,
    }
    report.show("Files and what becomes of them")
    report.write(json)


if __name__ == "__main__":
    typer.run(main)
