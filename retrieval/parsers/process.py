"""Runs the parser child and turns whatever becomes of it into a result or a sentence."""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple

from retrieval.errors import MayPass, ParserStopped, Unreadable
from retrieval.parsers import ocr

log = logging.getLogger(__name__)

_ROOT = Path(__file__).parents[2]
_POLL_S = 0.1
_SAID_BYTES = 2_000
_OUT_OF_MEMORY = ("MemoryError", "memory allocation", "Cannot allocate")
# By somebody else: the system that runs out of memory, or a person.
_KILLED = (-signal.SIGKILL, -signal.SIGTERM) if hasattr(signal, "SIGKILL") else ()
_TOO_MUCH_COMPUTING = (
    "A part of the file takes more computing than any page should, and reading it was stopped. "
    "Save it again with the program that made it, or print it to a new file, and add that."
)


class ParseLimits(NamedTuple):
    """What one file may cost."""

    wall_s: float = 180.0
    memory_bytes: int = 2 * 2**30


class ParsedPassage(NamedTuple):
    page: int
    char_start: int
    char_end: int
    heading: str


class ParsedFile(NamedTuple):
    """Pages (page 1 first), the passages cut from them, and what reading them showed.

    `labels` are what the pages call themselves: one for each, or none at all.
    """

    title: str
    pages: list[str]
    passages: list[ParsedPassage]
    warnings: list[str]
    labels: list[str]
    ocr_pages: frozenset[int]
    seconds: float

    @property
    def characters(self) -> int:
        return sum(map(len, self.pages))

    @property
    def pages_without_text(self) -> int:
        return sum(not page.strip() for page in self.pages)

    def label(self, page: int) -> str:
        """What a page calls itself, if that is not its number, else ""."""
        label = self.labels[page - 1] if self.labels else ""
        return "" if label == str(page) else label


def parse(
    path: Path,
    format: str,
    *,
    tokenizer_file: Path,
    max_tokens: int,
    limits: ParseLimits,
    stop: threading.Event,
) -> ParsedFile:
    """Parse and cut a file in a child process.

    Raises Unreadable with the reason if the file is refused or crashes the parser, MayPass if it
    exceeds the limits or its parser was killed, and ParserStopped when `stop` is set meanwhile.
    """
    command = [
        sys.executable,
        "-m",
        "retrieval.parsers.child",
        format,
        str(path),
        str(tokenizer_file),
        str(max_tokens),
        str(limits.memory_bytes),
        str(int(limits.wall_s) + 1),
    ]
    if format == "pdf" and ocr.program():
        limits = limits._replace(wall_s=limits.wall_s + ocr.FILE_S)
    start = time.perf_counter()
    # Files, not pipes: their size is limited, and nothing of it is held here before the end.
    with TemporaryFile() as out, TemporaryFile() as err:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=child_environment(),
            start_new_session=True,
        )
        try:
            _wait(child, limits, stop)
        finally:
            _end(child)
        if child.returncode != 0:
            said = _last_of(err)
            log.warning("parser ended with %s: %s", child.returncode, said)
            raise _why(child.returncode, said, limits)
        out.seek(0)
        return _result(json.load(out), time.perf_counter() - start)


def child_environment() -> dict[str, str]:
    paths = [str(_ROOT), os.environ.get("PYTHONPATH", "")]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        # Threads reserve address space, which is what the memory limit counts.
        "RAYON_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "MALLOC_ARENA_MAX": "2",
        "TOKENIZERS_PARALLELISM": "false",
    }


def _wait(child: subprocess.Popen[bytes], limits: ParseLimits, stop: threading.Event) -> None:
    deadline = time.monotonic() + limits.wall_s
    while True:
        try:
            child.wait(timeout=_POLL_S)
            return
        except subprocess.TimeoutExpired:
            if stop.is_set():
                raise ParserStopped("Indexing was stopped; it goes on at the next start.") from None
            if time.monotonic() > deadline:
                raise MayPass(_too_slow(limits)) from None


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a child that still runs, with the programs it runs itself."""
    if child.poll() is None:
        if hasattr(os, "killpg"):
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()
        child.wait()


def _last_of(file: IO[bytes]) -> str:
    file.seek(max(0, file.seek(0, os.SEEK_END) - _SAID_BYTES))
    return file.read().decode(errors="replace")


def _too_slow(limits: ParseLimits) -> str:
    return (
        f"Reading the file took longer than {limits.wall_s:g} s and was stopped. "
        "Split it and add the parts, or export it in a simpler format."
    )


def _why(returncode: int, said: str, limits: ParseLimits) -> Unreadable:
    # Native code that is refused memory aborts.
    if returncode == -signal.SIGABRT or any(sign in said for sign in _OUT_OF_MEMORY):
        return MayPass(
            f"Reading the file takes more than {limits.memory_bytes // 2**20:,} MB of memory. "
            "Split it and add the parts."
        )
    if returncode == -signal.SIGXCPU:
        return Unreadable(_TOO_MUCH_COMPUTING)
    if returncode in _KILLED:
        return MayPass(
            "Reading the file was stopped from outside, perhaps for want of memory. "
            "Close other programs, or split it and add the parts."
        )
    how = f"signal {-returncode}" if returncode < 0 else f"exit status {returncode}"
    return Unreadable(
        f"The file made its parser crash ({how}); it is probably damaged. "
        "Save it again with the program that made it and add that."
    )


def _result(answer: dict[str, Any], seconds: float) -> ParsedFile:
    if "refused" in answer:
        raise (MayPass if answer["may_pass"] else Unreadable)(answer["refused"])
    passages = [ParsedPassage(*passage) for passage in answer["passages"]]
    return ParsedFile(
        title=answer["title"],
        pages=answer["pages"],
        passages=passages,
        warnings=answer["warnings"],
        labels=answer["labels"],
        ocr_pages=frozenset(answer["ocr_pages"]),
        seconds=seconds,
    )
