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
from typing import Any, NamedTuple

from retrieval.errors import ParserStopped, Unreadable

log = logging.getLogger(__name__)

_ROOT = Path(__file__).parents[2]
_POLL_S = 0.1


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

    Raises Unreadable with the reason if the file is refused, crashes the parser or exceeds the
    limits, and ParserStopped when `stop` is set meanwhile.
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
    start = time.perf_counter()
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=child_environment(),
    )
    try:
        out, err = _communicate(child, limits, stop)
    finally:
        if child.poll() is None:
            child.kill()
            child.communicate()
    if child.returncode != 0:
        log.warning(
            "parser ended with %s: %s", child.returncode, err[-2000:].decode(errors="replace")
        )
        raise Unreadable(_why(child.returncode, err, limits))
    return _result(json.loads(out), time.perf_counter() - start)


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


def _communicate(
    child: subprocess.Popen[bytes], limits: ParseLimits, stop: threading.Event
) -> tuple[bytes, bytes]:
    deadline = time.monotonic() + limits.wall_s
    while True:
        try:
            return child.communicate(timeout=_POLL_S)
        except subprocess.TimeoutExpired:
            if stop.is_set():
                raise ParserStopped("Indexing was stopped; it goes on at the next start.") from None
            if time.monotonic() > deadline:
                raise Unreadable(_too_slow(limits)) from None


def _too_slow(limits: ParseLimits) -> str:
    return (
        f"Reading the file took longer than {limits.wall_s:g} s and was stopped. "
        "Split it and add the parts, or export it in a simpler format."
    )


def _why(returncode: int, err: bytes, limits: ParseLimits) -> str:
    if b"MemoryError" in err or b"memory allocation" in err or b"Cannot allocate" in err:
        return (
            f"Reading the file takes more than {limits.memory_bytes // 2**20:,} MB of memory. "
            "Split it and add the parts."
        )
    if returncode == -signal.SIGXCPU:
        return _too_slow(limits)
    how = f"signal {-returncode}" if returncode < 0 else f"exit status {returncode}"
    return (
        f"The file made its parser crash ({how}); it is probably damaged. "
        "Save it again with the program that made it and add that."
    )


def _result(answer: dict[str, Any], seconds: float) -> ParsedFile:
    if "refused" in answer:
        raise Unreadable(answer["refused"])
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
