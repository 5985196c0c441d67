"""The child process that draws a page of a PDF, some of its words boxed: PNG on standard output.

PDFium is not thread-safe and may crash on a damaged file; here that harms nobody else.

    python -m retrieval.parsers.page_child FILE PAGE SPANS WIDTH MEMORY_BYTES CPU_S

SPANS are ranges of characters in the page's extracted text: "120-180,300-340", or "-" for none.
"""

import os
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c
from PIL import Image, ImageChops, ImageDraw

from retrieval.parsers.child import limit
from retrieval.parsers.pdf import page_text

_MOST_PIXELS = 6_000_000
_MARK = (253, 232, 164)
_LINE = (31, 107, 102)
_INVISIBLE = {"\ufffe", "\x02", "\u00ad", "\ufeff"}


class Box(NamedTuple):
    """A rectangle of the picture, in pixels from its upper left corner."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def height(self) -> float:
        return self.bottom - self.top


class Letter(NamedTuple):
    """A visible character and its place among what PDFium counts."""

    character: str
    place: int


def draw(file: Path, page: int, spans: list[tuple[int, int]], width: int) -> Image.Image:
    """The page counted from 1, at most ``width`` pixels wide."""
    with pdfium.PdfDocument(file) as document:
        text = page_text(document, page - 1) or ""
        drawn = document[page - 1]
        page_width, page_height = drawn.get_size()
        scale = min(width / page_width, (_MOST_PIXELS / (page_width * page_height)) ** 0.5)
        bitmap = drawn.render(scale=scale)
        boxes = _boxes(drawn, text, spans, bitmap.get_posconv(drawn))
        return _boxed(bitmap.to_pil().convert("RGB"), boxes)


def _boxes(page: Any, text: str, spans: list[tuple[int, int]], place: Any) -> list[Box]:
    """A box for each line of each span."""
    letters_page = page.get_textpage()
    letters = list(_letters(letters_page))
    stream = "".join(letter.character for letter in letters)
    boxes: list[Box] = []
    for start, end in spans:
        wanted = _visible(text[start:end])
        at = _nearest(stream, wanted, len(_visible(text[:start])))
        if at is None:
            continue
        line: Box | None = None
        for letter in letters[at : at + len(wanted)]:
            left, bottom, right, top = letters_page.get_charbox(letter.place)
            (x0, y0), (x1, y1) = place.to_bitmap(left, top), place.to_bitmap(right, bottom)
            box = Box(min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))
            joined = _joined(line, box) if line else None
            if line and joined is None:
                boxes.append(line)
            line = joined or box
        if line:
            boxes.append(line)
    return boxes


def _letters(letters_page: Any) -> Iterator[Letter]:
    for index in range(letters_page.count_chars()):
        code = pdfium_c.FPDFText_GetUnicode(letters_page, index)
        for character in _visible(chr(code)) if code else "":
            yield Letter(character, index)


def _visible(text: str) -> str:
    """Without what takes no room or may be cut differently; ligatures as their letters."""
    return "".join(
        character
        for character in unicodedata.normalize("NFKD", text)
        if not character.isspace() and character not in _INVISIBLE and character.isprintable()
    )


def _nearest(stream: str, wanted: str, expected: int) -> int | None:
    """Where ``wanted`` begins in the stream, nearest to where it is expected."""
    best = None
    at = stream.find(wanted) if wanted else -1
    while at >= 0:
        if best is None or abs(at - expected) < abs(best - expected):
            best = at
        at = stream.find(wanted, at + 1)
    return best


def _joined(line: Box, box: Box) -> Box | None:
    """Both as one, if the second goes on with the line of the first."""
    overlap = min(line.bottom, box.bottom) - max(line.top, box.top)
    gap = max(box.left - line.right, line.left - box.right)
    low = min(line.height, box.height)
    if (low > 0 and overlap < 0.3 * low) or gap > 3 * max(line.height, box.height):
        return None
    return Box(
        min(line.left, box.left),
        min(line.top, box.top),
        max(line.right, box.right),
        max(line.bottom, box.bottom),
    )


def _boxed(image: Image.Image, boxes: list[Box]) -> Image.Image:
    """The words as a marker pen leaves them, with a thin line around."""
    ink = Image.new("RGB", image.size, (255, 255, 255))
    pen = ImageDraw.Draw(ink)
    outer = [(box.left - 3, box.top - 3, box.right + 3, box.bottom + 3) for box in boxes]
    for corners in outer:
        pen.rectangle(corners, fill=_MARK)
    image = ImageChops.multiply(image, ink)
    pen = ImageDraw.Draw(image)
    for corners in outer:
        pen.rectangle(corners, outline=_LINE, width=1)
    return image


def main() -> None:
    file, page, spans, width, memory_bytes, cpu_s = sys.argv[1:]
    answer = os.dup(1)
    os.dup2(2, 1)
    limit(int(memory_bytes), int(cpu_s))
    ranges = [] if spans == "-" else [span.split("-") for span in spans.split(",")]
    image = draw(Path(file), int(page), [(int(a), int(b)) for a, b in ranges], int(width))
    with os.fdopen(answer, "wb") as out:
        image.save(out, "PNG")


if __name__ == "__main__":
    main()
