"""Pictures of PDF pages, drawn by a child process with limits."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from threading import Semaphore

from retrieval.errors import RetrievalError
from retrieval.parsers.page_process import WALL_S, draw

WIDTH = 1000  # pixels: sharp on a panel of half of it
_MOST_PIXELS = 6_000_000
# Drawing takes a core: more of them at a time would take it from those who wait for answers.
_AT_ONCE = Semaphore(2)


class PageNotDrawn(RetrievalError):
    """There is no picture of this page."""

    def __init__(self, why: str) -> None:
        super().__init__(f"The page cannot be drawn: {why}. Its text is in the passage.")


def draw_page(
    path: Path, page: int, text: str, spans: Sequence[tuple[int, int]], width: int = WIDTH
) -> bytes:
    """A page of a PDF, counted from 1, as PNG.

    ``spans`` are ranges of ``text``, what was read from the page; their words are boxed, and those
    that are not found on the page are left out. Raises PageNotDrawn.
    """
    with _AT_ONCE:
        try:
            picture = draw(
                path, page, width=width, most_pixels=_MOST_PIXELS, text=text, spans=spans
            )
        except subprocess.TimeoutExpired:
            raise PageNotDrawn(f"it took longer than {WALL_S} s") from None
    if not picture:
        raise PageNotDrawn("the file is damaged there, or there is no such page")
    return picture
