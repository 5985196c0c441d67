"""The child process that draws a page of a PDF, some of its words boxed: PNG on standard output.

PDFium is not thread-safe and may crash on a damaged file; here that harms nobody else.

    python -m retrieval.parsers.page_child FILE PAGE SPANS WIDTH MOST_PIXELS MEMORY_BYTES CPU_S

SPANS are ranges of characters in the text that was read from the page, which comes on standard
input: "120-180,300-340", or "-" for none.
"""

import os
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c
from PIL import Image, ImageChops, ImageDraw

from retrieval.parsers import ocr
from retrieval.parsers.child import limit
from retrieval.parsers.pdf_fields import fields
from retrieval.parsers.pdf_file import open_document
from retrieval.parsers.pdf_page import read_layer

# Words of a scanned page are looked for in a picture this large.
_OCR_PIXELS = 9_000_000
_MARK = (253, 232, 164)
_LINE = (31, 107, 102)
# Hyphens as well: one at the end of a line is left out of the text, or stands for a mark.
_INVISIBLE = frozenset("\ufffe\x02\u00ad\ufeff-\u2010\u2011")


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
    """A visible character and where it stands."""

    character: str
    box: Box


def draw(
    file: Path,
    page: int,
    text: str,
    spans: Sequence[tuple[int, int]],
    width: int,
    most_pixels: int,
) -> Image.Image:
    """The page counted from 1, at most ``width`` pixels wide."""
    with open_document(file) as document:
        drawn = document[page - 1]
        bitmap = drawn.render(scale=_scale(drawn, width, most_pixels))
        image: Image.Image = bitmap.to_pil().convert("RGB")
        if not spans:
            return image
        letters = list(_letters(drawn, bitmap.get_posconv(drawn)))
        return _boxed(image, _boxes(letters or _recognised(drawn, image), text, spans))


def _scale(page: pdfium.PdfPage, width: int, most_pixels: int) -> float:
    page_width, page_height = page.get_size()
    return float(min(width / page_width, (most_pixels / (page_width * page_height)) ** 0.5))


def _boxes(letters: list[Letter], text: str, spans: Sequence[tuple[int, int]]) -> list[Box]:
    """A box for each line of each span."""
    stream = "".join(letter.character for letter in letters)
    boxes: list[Box] = []
    for start, end in spans:
        wanted = _visible(text[start:end])
        at = _nearest(stream, wanted, len(_visible(text[:start])))
        if at is None:
            continue
        line: Box | None = None
        for letter in letters[at : at + len(wanted)]:
            joined = _joined(line, letter.box) if line else None
            if line and joined is None:
                boxes.append(line)
            line = joined or letter.box
        if line:
            boxes.append(line)
    return boxes


def _letters(page: pdfium.PdfPage, place: Any) -> Iterator[Letter]:
    """The characters of the text in the order in which they were read, then those of fields."""
    layer = page.get_textpage()
    for index in read_layer(page).places:
        code = pdfium_c.FPDFText_GetUnicode(layer, index)
        for character in _visible(chr(code)) if code else "":
            yield Letter(character, _box(place, layer.get_charbox(index)))
    for field in fields(page):
        for character in _visible(field.text):
            yield Letter(character, _box(place, field.box))


def _box(place: Any, corners: tuple[float, float, float, float]) -> Box:
    left, bottom, right, top = corners
    (x0, y0), (x1, y1) = place.to_bitmap(left, top), place.to_bitmap(right, bottom)
    return Box(min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))


def _recognised(page: pdfium.PdfPage, image: Image.Image) -> list[Letter]:
    """The characters of a page that only its picture shows."""
    large = page.render(scale=_scale(page, image.width * 4, _OCR_PIXELS)).to_pil()
    smaller = image.width / large.width
    return [
        Letter(character, Box(*(edge * smaller for edge in word.box)))
        for word in ocr.recognise(large) or ()
        for character in _visible(word.text)
    ]


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
    file, page, spans, *sizes = sys.argv[1:]
    width, most_pixels, memory_bytes, cpu_s = map(int, sizes)
    answer = os.dup(1)
    os.dup2(2, 1)
    limit(memory_bytes, cpu_s)
    text = sys.stdin.buffer.read().decode("utf-8")
    ranges = [] if spans == "-" else [span.split("-") for span in spans.split(",")]
    wanted = [(int(start), int(end)) for start, end in ranges]
    image = draw(Path(file), int(page), text, wanted, width, most_pixels)
    with os.fdopen(answer, "wb") as out:
        image.save(out, "PNG")


if __name__ == "__main__":
    main()
