"""PDFs with what real ones have and a plain page lacks, object by object."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from PIL import Image, ImageDraw, ImageFont

from tests.retrieval.make_files import assemble


@dataclass
class Pdf:
    """A file in the making. Fonts are named by the letters they have: "F1" is Helvetica."""

    catalog: str = ""
    trailer: bytes = b""
    objects: list[bytes] = field(default_factory=lambda: [b"", b""])
    kids: list[int] = field(default_factory=list)
    fonts: dict[str, int] = field(default_factory=dict)

    def add(self, body: str | bytes) -> int:
        self.objects.append(body if isinstance(body, bytes) else body.encode("latin-1"))
        return len(self.objects)

    def stream(self, data: bytes, entries: str = "") -> int:
        head = f"<< /Length {len(data)} {entries} >>\nstream\n".encode()
        return self.add(head + data + b"\nendstream")

    def font(self, name: str, letters: str, width: int = 500) -> str:
        """A font whose byte 33 + n is the n-th of these letters, all of one width."""
        rows = "".join(
            f"<{33 + n:02x}> <{c.encode('utf-16-be').hex()}>\n" for n, c in enumerate(letters)
        )
        cmap = self.stream(
            b"/CIDInit /ProcSet findresource begin begincmap /CMapName /X def "
            b"1 begincodespacerange <00> <ff> endcodespacerange "
            + f"{len(letters)} beginbfchar\n{rows}endbfchar endcmap".encode()
        )
        widths = " ".join([str(width)] * len(letters))
        descriptor = self.add(
            "<< /Type /FontDescriptor /FontName /Made /Flags 4 /FontBBox [0 -200 500 800] "
            "/ItalicAngle 0 /Ascent 800 /Descent -200 /CapHeight 700 /StemV 80 >>"
        )
        self.fonts[name] = self.add(
            "<< /Type /Font /Subtype /TrueType /BaseFont /Made /FirstChar 33 "
            f"/LastChar {32 + len(letters)} /Widths [{widths}] /ToUnicode {cmap} 0 R "
            f"/FontDescriptor {descriptor} 0 R >>"
        )
        return name

    def page(
        self,
        content: str | bytes,
        entries: str = "",
        images: Mapping[str, int] = MappingProxyType({}),
        packed: str = "",
    ) -> int:
        """A page of A4 with this content, which may be packed by a filter."""
        if "F1" not in self.fonts:
            self.fonts["F1"] = self.add("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
        data = content if isinstance(content, bytes) else content.encode("latin-1")
        fonts = " ".join(f"/{name} {number} 0 R" for name, number in self.fonts.items())
        drawn = " ".join(f"/{name} {number} 0 R" for name, number in images.items())
        number = self.add(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] {entries} "
            f"/Contents {self.stream(data, packed)} 0 R "
            f"/Resources << /Font << {fonts} >> /XObject << {drawn} >> >> >>"
        )
        self.kids.append(number)
        return number

    def scan(self, *lines: str) -> int:
        """A page that is a picture of lines of text."""
        picture = Image.new("L", (1240, 1754), 255)
        pen = ImageDraw.Draw(picture)
        for row, line in enumerate(lines):
            pen.text((120, 150 + 70 * row), line, fill=0, font=ImageFont.load_default(40))
        data = io.BytesIO()
        picture.save(data, "JPEG", quality=80)
        image = self.stream(
            data.getvalue(),
            "/Type /XObject /Subtype /Image /Width 1240 /Height 1754 /BitsPerComponent 8 "
            "/ColorSpace /DeviceGray /Filter /DCTDecode",
        )
        return self.page("q 595 0 0 842 0 0 cm /Im Do Q", images={"Im": image})

    def data(self) -> bytes:
        kids = " ".join(f"{number} 0 R" for number in self.kids)
        self.objects[0] = f"<< /Type /Catalog /Pages 2 0 R {self.catalog} >>".encode("latin-1")
        self.objects[1] = f"<< /Type /Pages /Kids [{kids}] /Count {len(self.kids)} >>".encode()
        return assemble(self.objects, b"/Root 1 0 R " + self.trailer)


def shown(
    *texts: tuple[float, float, str], font: str = "F1", size: int = 11, more: str = ""
) -> str:
    """Texts at their places, in this order."""
    parts = [f"1 0 0 1 {x} {y} Tm ({_escaped(text)}) Tj" for x, y, text in texts]
    return f"BT /{font} {size} Tf {more} {' '.join(parts)} ET\n"


def lines(texts: Sequence[str], x: float = 50, top: float = 780, pitch: float = 14) -> str:
    return shown(*((x, top - pitch * row, text) for row, text in enumerate(texts)))


def coded(text: str, letters: str) -> str:
    """A text in the bytes of a font made of these letters."""
    return "".join(chr(33 + letters.index(letter)) for letter in text)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
