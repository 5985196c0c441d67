"""Text recognition by tesseract, an optional program that is looked for when it is needed."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import re
import shutil
import statistics
import subprocess
import time
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from PIL import Image

PAGE_S = 40.0
_RUN_CPU_S = 10  # a page of small print takes 5
_ENOUGH_S = 8.0  # a page that took this long is not tried in another language
FILE_S = 600.0  # of all pages together
DOTS_PER_INCH = 300
# Below these, what it reads is the dirt on the page.
_MIN_WORD_CONFIDENCE = 30.0
_MIN_PAGE_CONFIDENCE = 50.0
# Above this, the first language was the right one.
_SURE = 80.0
_HAN_END = re.compile("[\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]$")
_HAN_START = re.compile("^[\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]")
# Tried in this order; English beside Chinese, for a Chinese page often holds some.
_LANGUAGES = ("eng", "chi_sim+eng", "chi_tra+eng")


class OcrWord(NamedTuple):
    """A word and its box in the picture (left, top, right, bottom); `line` numbers its line."""

    text: str
    line: int
    box: tuple[int, int, int, int]
    confidence: float


def program() -> str | None:
    """Where tesseract is, if it is installed."""
    return shutil.which("tesseract")


@cache
def languages() -> tuple[str, ...]:
    """The data files that tesseract has, of those that are used: ("eng", "chi_sim")."""
    tesseract = program()
    if tesseract is None:
        return ()
    try:
        listed = subprocess.run(
            [tesseract, "--list-langs"], capture_output=True, timeout=PAGE_S, text=True, check=True
        ).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return ()
    wanted = dict.fromkeys(name for names in _LANGUAGES for name in names.split("+"))
    return tuple(name for name in wanted if name in listed)


def is_available() -> bool:
    return bool(languages())


def recognise(picture: Image.Image) -> list[OcrWord] | None:
    """The words of a picture, none where it shows no text that can be read with confidence.

    None if it could not be searched, or not to its end within bounds.
    """
    best: list[OcrWord] | None = None
    start = time.monotonic()
    for names in _LANGUAGES:
        if not set(names.split("+")) <= set(languages()):
            continue
        words = _run(picture, names)
        if words is not None and (best is None or _confidence(words) > _confidence(best)):
            best = words
        if _confidence(best or []) >= _SURE or time.monotonic() - start > _ENOUGH_S:
            break
    return [] if best and _confidence(best) < _MIN_PAGE_CONFIDENCE else best


def as_text(words: list[OcrWord]) -> str:
    """Words as lines of text; no spaces between Han characters."""
    lines = []
    for _, line in groupby(words, key=lambda word: word.line):
        text = ""
        for word in line:
            tight = _HAN_END.search(text) and _HAN_START.search(word.text)
            text += word.text if tight or not text else f" {word.text}"
        lines.append(text)
    return "\n".join(lines)


def _confidence(words: list[OcrWord]) -> float:
    return statistics.mean(word.confidence for word in words) if words else 0.0


def _run(picture: Image.Image, names: str) -> list[OcrWord] | None:
    data = io.BytesIO()
    picture.convert("L").save(data, "PNG")
    command = [program() or "tesseract", "-", "-", "-l", names, "--dpi", str(DOTS_PER_INCH), "tsv"]
    try:
        done = subprocess.run(
            command,
            input=data.getvalue(),
            capture_output=True,
            timeout=PAGE_S,
            env=os.environ | {"OMP_THREAD_LIMIT": "1"},
            check=True,
            preexec_fn=_limit,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return _words(done.stdout.decode("utf-8", errors="replace"))


def _limit() -> None:
    """Of the program that is about to begin: it can take minutes over a page of noise."""
    with contextlib.suppress(ImportError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (_RUN_CPU_S, _RUN_CPU_S))


def _words(table: str) -> list[OcrWord]:
    words: list[OcrWord] = []
    lines: dict[tuple[str, ...], int] = {}
    for row in csv.DictReader(io.StringIO(table), delimiter="\t", quoting=csv.QUOTE_NONE):
        text, confidence = (row["text"] or "").strip(), float(row["conf"])
        if not text or confidence < _MIN_WORD_CONFIDENCE:
            continue
        place = (row["block_num"], row["par_num"], row["line_num"])
        line = lines.setdefault(place, len(lines))
        left, top = int(row["left"]), int(row["top"])
        box = (left, top, left + int(row["width"]), top + int(row["height"]))
        words.append(OcrWord(text, line, box, confidence))
    return words
