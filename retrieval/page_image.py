"""Pictures of PDF pages, drawn by a child process with limits."""

import logging
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Semaphore

from retrieval.errors import RetrievalError
from retrieval.parsers.process import child_environment

log = logging.getLogger(__name__)

WIDTH = 1000  # pixels: sharp on a panel of half of it
_WALL_S = 30
_MEMORY_BYTES = 2 * 2**30
# Drawing takes a core: more of them at a time would take it from those who wait for answers.
_AT_ONCE = Semaphore(2)


class PageNotDrawn(RetrievalError):
    """There is no picture of this page."""

    def __init__(self, why: str) -> None:
        super().__init__(f"The page cannot be drawn: {why}. Its text is in the passage.")


def draw_page(path: Path, page: int, spans: Sequence[tuple[int, int]], width: int = WIDTH) -> bytes:
    """A page of a PDF, counted from 1, as PNG.

    ``spans`` are ranges in the page's extracted text, whose words are boxed; words that are not
    found on the page are left out. Raises PageNotDrawn.
    """
    ranges = ",".join(f"{start}-{end}" for start, end in spans) or "-"
    command = [sys.executable, "-m", "retrieval.parsers.page_child", str(path), str(page), ranges]
    command += [str(width), str(_MEMORY_BYTES), str(_WALL_S)]
    with _AT_ONCE:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_WALL_S,
                env=child_environment(),
            )
        except subprocess.TimeoutExpired:
            raise PageNotDrawn(f"it took longer than {_WALL_S} s") from None
    if done.returncode or not done.stdout:
        log.warning("drawing ended with %s: %s", done.returncode, done.stderr[-2000:])
        raise PageNotDrawn("the file is damaged there, or there is no such page")
    return done.stdout
