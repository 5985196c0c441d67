"""What stands on a PDF page and is not in its text: filled form fields and notes typed on it."""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

MOST_ANNOTATIONS = 5_000  # on a page; a real form has hundreds
_MOST_CHARACTERS = 20_000
_CHOSEN = "yes"
_OFF = {"", "Off"}


class Field(NamedTuple):
    """A field's name, what it holds, and its box on the page (left, bottom, right, top)."""

    name: str
    value: str
    box: tuple[float, float, float, float]

    @property
    def text(self) -> str:
        return f"{self.name}: {self.value}" if self.name else self.value


def fields(page: pdfium.PdfPage) -> list[Field]:
    """The filled fields and the typed notes of a page, in the file's order."""
    found = []
    count = min(pdfium_c.FPDFPage_GetAnnotCount(page), MOST_ANNOTATIONS)
    for index in range(count):
        with _annotation(page, index) as annotation:
            kind = pdfium_c.FPDFAnnot_GetSubtype(annotation)
            if kind == pdfium_c.FPDF_ANNOT_WIDGET and page.formenv is not None:
                field = _widget(page.formenv, annotation)
            elif kind == pdfium_c.FPDF_ANNOT_FREETEXT:
                field = Field("", _string(annotation, "Contents"), _box(annotation))
            else:
                continue
        if field is not None and field.value:
            found.append(field)
    return found


@contextmanager
def _annotation(page: pdfium.PdfPage, index: int) -> Iterator[Any]:
    annotation = pdfium_c.FPDFPage_GetAnnot(page, index)
    try:
        yield annotation
    finally:
        pdfium_c.FPDFPage_CloseAnnot(annotation)


def _widget(form: Any, annotation: Any) -> Field | None:
    kind = pdfium_c.FPDFAnnot_GetFormFieldType(form, annotation)
    if kind in (pdfium_c.FPDF_FORMFIELD_CHECKBOX, pdfium_c.FPDF_FORMFIELD_RADIOBUTTON):
        chosen = pdfium_c.FPDFAnnot_IsChecked(form, annotation)
        state = _read(pdfium_c.FPDFAnnot_GetFormFieldExportValue, form, annotation)
        value = (_CHOSEN if state in _OFF | {"Yes", "On", "1"} else state) if chosen else ""
    elif kind in (
        pdfium_c.FPDF_FORMFIELD_TEXTFIELD,
        pdfium_c.FPDF_FORMFIELD_COMBOBOX,
        pdfium_c.FPDF_FORMFIELD_LISTBOX,
    ):
        flags = pdfium_c.FPDFAnnot_GetFormFieldFlags(form, annotation)
        if flags & pdfium_c.FPDF_FORMFLAG_TEXT_PASSWORD and (
            kind == pdfium_c.FPDF_FORMFIELD_TEXTFIELD
        ):
            return None
        value = _read(pdfium_c.FPDFAnnot_GetFormFieldValue, form, annotation)
    else:
        return None
    name = _read(pdfium_c.FPDFAnnot_GetFormFieldAlternateName, form, annotation)
    name = name or _read(pdfium_c.FPDFAnnot_GetFormFieldName, form, annotation)
    return Field(" ".join(name.split()), value.strip(), _box(annotation))


def _read(call: Callable[..., int], *arguments: Any) -> str:
    """The UTF-16 string of one of PDFium's calls that fill a buffer."""
    size = min(call(*arguments, None, 0), 2 * _MOST_CHARACTERS)
    if size <= 2:
        return ""
    buffer = ctypes.create_string_buffer(size)
    call(*arguments, ctypes.cast(buffer, ctypes.POINTER(pdfium_c.FPDF_WCHAR)), size)
    return buffer.raw[: size - 2].decode("utf-16-le", errors="ignore").replace("\r", "\n")


def _string(annotation: Any, key: str) -> str:
    return _read(pdfium_c.FPDFAnnot_GetStringValue, annotation, key.encode()).strip()


def _box(annotation: Any) -> tuple[float, float, float, float]:
    rect = pdfium_c.FS_RECTF()
    pdfium_c.FPDFAnnot_GetRect(annotation, rect)
    return rect.left, rect.bottom, rect.right, rect.top
