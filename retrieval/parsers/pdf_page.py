"""The text layer of one page, and where each of its characters stands."""

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from retrieval.parsers.pdf_layout import RTL, arrange, misleads
from retrieval.parsers.pdf_words import Glyph, Rect

# Arranging takes time and memory for each character; a page of a book has 3,000.
MOST_ARRANGED = 60_000
_MOST_RECTS = 20_000
_LINE_END_HYPHENS = {0x2, 0xFFFE}
_SAMPLES = 24
_TURNED_SHARE = 0.2  # less is a remark in the margin
_SHORT_WORDS = re.compile(r"(?<!\S)(?:[^\W\d_]{1,2} ){5,}")


class PageLayer(NamedTuple):
    """A page's characters in reading order; `places` counts them as PDFium does."""

    text: str
    places: Sequence[int]


def read_layer(page: pdfium.PdfPage) -> PageLayer:
    """Raises PdfiumError."""
    layer = page.get_textpage()
    text = layer.get_text_bounded()
    count = layer.count_chars()
    if not 0 < count <= MOST_ARRANGED or not _needs_arranging(layer, count, text):
        return PageLayer(text, range(count))
    arranged = arrange(_glyphs(page, layer, count))
    return PageLayer(arranged.text, [place for place in arranged.places if place >= 0])


def unmapped_share(page: pdfium.PdfPage) -> float:
    """The share of characters whose font does not say what they are. Raises PdfiumError."""
    layer = page.get_textpage()
    count = min(layer.count_chars(), MOST_ARRANGED)
    unmapped = sum(pdfium_c.FPDFText_HasUnicodeMapError(layer, i) == 1 for i in range(count))
    return unmapped / count if count else 0.0


def _needs_arranging(layer: pdfium.PdfTextPage, count: int, text: str) -> bool:
    """Whether PDFium's own order or spacing can be wrong here; quick, for mostly it is not."""
    if RTL.search(text) or _SHORT_WORDS.search(text):
        return True
    samples = range(0, count, max(1, count // _SAMPLES))
    if sum(_angle(layer, index) != 0 for index in samples) > _TURNED_SHARE * len(samples):
        return True
    rects = layer.count_rects()
    return rects <= _MOST_RECTS and misleads([Rect(*layer.get_rect(i)) for i in range(rects)])


def _angle(layer: pdfium.PdfTextPage, index: int) -> int:
    """The angle of a character's baseline in degrees against the clock (PDFium counts with it)."""
    turned = pdfium_c.FPDFText_GetCharAngle(layer, index)
    return round(-math.degrees(turned)) % 360 if turned > 0 else 0


def _glyphs(page: pdfium.PdfPage, layer: pdfium.PdfTextPage, count: int) -> Iterator[Glyph]:
    """The characters within the page's visible box."""
    left, bottom, right, top = page.get_bbox()
    for index in range(count):
        code = pdfium_c.FPDFText_GetUnicode(layer, index)
        # A hyphen at the end of a line has a code of its own.
        character = "-" if code in _LINE_END_HYPHENS else chr(code)
        if character.isspace() or pdfium_c.FPDFText_IsGenerated(layer, index) == 1:
            yield Glyph(" ", index, 0, 0, 0, 0)
            continue
        x0, y0, x1, y1 = layer.get_charbox(index, loose=True)
        if code and x1 >= left and x0 <= right and y1 >= bottom and y0 <= top:
            yield Glyph(character, index, x0, y0, x1, y1, _angle(layer, index))
