"""What a page is put together from: characters with their places, and the words they make."""

from typing import NamedTuple


class Glyph(NamedTuple):
    """A character, its place in PDFium's count, its box on the page and where its line goes.

    `angle` is that of the baseline, in degrees against the clock, from 0 to 359.
    """

    character: str
    place: int
    left: float
    bottom: float
    right: float
    top: float
    angle: int = 0

    @property
    def height(self) -> float:
        return self.top - self.bottom


class Rect(NamedTuple):
    """A run of text of one line, on the page."""

    left: float
    bottom: float
    right: float
    top: float


class Word(NamedTuple):
    glyphs: list[Glyph]
    left: float
    right: float
    bottom: float
    top: float

    @property
    def height(self) -> float:
        return self.top - self.bottom

    @property
    def text(self) -> str:
        return "".join(glyph.character for glyph in self.glyphs)


Line = list[Word]
