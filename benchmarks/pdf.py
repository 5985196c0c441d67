"""Writes plain PDFs to measure with: text in one column, in one of the fonts every reader has."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

_LINE_CHARACTERS = 90
_LINE_POINTS = 13


def write_pdf(path: Path, pages: Sequence[str]) -> None:
    """A PDF with a page for each text; what Windows-1252 lacks becomes a question mark."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for number, text in enumerate(pages):
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents %d 0 R "
            b"/Resources << /Font << /F1 3 0 R >> >> >>" % (5 + 2 * number)
        )
        content = _content(text)
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content))
    with path.open("wb") as file:
        file.write(b"%PDF-1.4\n")
        offsets = []
        for number, body in enumerate(objects, 1):
            offsets.append(file.tell())
            file.write(b"%d 0 obj\n%s\nendobj\n" % (number, body))
        table = file.tell()
        file.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
        file.writelines(b"%010d 00000 n \n" % offset for offset in offsets)
        size = len(objects) + 1
        file.write(b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (size, table))


def _content(text: str) -> bytes:
    lines = textwrap.wrap(text, _LINE_CHARACTERS)
    shown = b"".join(b"(%s) Tj 0 -%d Td " % (_escaped(line), _LINE_POINTS) for line in lines)
    return b"BT /F1 10 Tf 50 790 Td " + shown + b"ET"


def _escaped(line: str) -> bytes:
    encoded = line.encode("cp1252", errors="replace")
    return encoded.replace(b"\\", rb"\\").replace(b"(", rb"\(").replace(b")", rb"\)")
