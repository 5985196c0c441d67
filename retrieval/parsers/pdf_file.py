"""Opening a PDF with PDFium, also one whose end was cut off or that begins with something else."""

import re
from pathlib import Path

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

HEAD_BYTES = 2**16
_CATALOG = re.compile(rb"/Type\s*/Catalog\b")
_OBJECT = re.compile(rb"(\d{1,9})\s+(\d{1,5})\s+obj\b")
_NEAR_BYTES = 20_000


def open_document(path: Path) -> pdfium.PdfDocument:
    """Raises PdfiumError."""
    try:
        document = pdfium.PdfDocument(path)
    except pdfium.PdfiumError as error:
        mended = _mended(path) if error.err_code == pdfium_c.FPDF_ERR_FORMAT else None
        if mended is None:
            raise
        document = pdfium.PdfDocument(mended)
    document.init_forms()  # before any page is loaded, or its fields stay unknown
    return document


def _mended(path: Path) -> bytes | None:
    """The file with a trailer that names its catalog, from which PDFium finds the rest anew."""
    data = path.read_bytes()
    data = data[max(0, data.find(b"%PDF-", 0, HEAD_BYTES)) :]
    for catalog in reversed(list(_CATALOG.finditer(data))):
        before = data[max(0, catalog.start() - _NEAR_BYTES) : catalog.start()]
        objects = _OBJECT.findall(before)
        if objects:
            number, generation = objects[-1]
            trailer = b"trailer\n<< /Root %s %s R >>\n" % (number, generation)
            return data + b"\nendstream\nendobj\n" + trailer + b"startxref\n0\n%%EOF\n"
    return None
