"""Runs the child that draws a page of a PDF."""

import io
import logging
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from retrieval.parsers.process import child_environment

log = logging.getLogger(__name__)

WALL_S = 30
_MEMORY_BYTES = 2 * 2**30
# What recognising text takes: 300 dots an inch of A4.
_OCR_WIDTH = 3400
_OCR_PIXELS = 9_000_000


def draw(
    path: Path,
    page: int,
    *,
    width: int,
    most_pixels: int,
    text: str = "",
    spans: Sequence[tuple[int, int]] = (),
) -> bytes:
    """A page counted from 1 as PNG, with the words of ranges of its `text` boxed.

    b"" if it cannot be drawn. Raises TimeoutExpired.
    """
    ranges = ",".join(f"{start}-{end}" for start, end in spans) or "-"
    sizes = [width, most_pixels, _MEMORY_BYTES, WALL_S]
    command = [sys.executable, "-m", "retrieval.parsers.page_child", str(path), str(page), ranges]
    done = subprocess.run(
        command + [str(size) for size in sizes],
        input=text.encode("utf-8", errors="replace"),
        capture_output=True,
        timeout=WALL_S,
        env=child_environment(),
    )
    if done.returncode:
        log.warning("drawing ended with %s: %s", done.returncode, done.stderr[-2000:])
        return b""
    return done.stdout


def picture(path: Path, page: int) -> Image.Image | None:
    """A page counted from 1 as recognising its text needs it; None if it cannot be drawn."""
    try:
        data = draw(path, page, width=_OCR_WIDTH, most_pixels=_OCR_PIXELS)
    except subprocess.TimeoutExpired:
        return None
    return Image.open(io.BytesIO(data)) if data else None
