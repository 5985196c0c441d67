import io
import zipfile
from pathlib import Path

import pytest

from retrieval.errors import Unreadable
from retrieval.parsers.identify import identify
from tests.retrieval.make_files import pdf

OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)


def zipped(*names: str, first: bytes = b"") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        if first:
            archive.writestr("mimetype", first)
        for name in names:
            archive.writestr(name, "<x/>")
    return out.getvalue()


def ole(stream: str) -> bytes:
    return OLE + stream.encode("utf-16-le") + bytes(600)


def kind(tmp_path: Path, name: str, data: bytes) -> str:
    path = tmp_path / "stored"
    path.write_bytes(data)
    return identify(path, name)


@pytest.mark.parametrize(
    ("name", "data", "format"),
    [
        ("REPORT.PDF", pdf(["x"]), "pdf"),
        ("a.md", b"# Herons", "md"),
        ("a.markdown", b"<!DOCTYPE html><p>Herons", "md"),
        ("a.tsv", b"a\tb", "csv"),
        ("a.docm", zipped("[Content_Types].xml", "word/document.xml"), "docx"),
        ("a.pdf", b"hardly a PDF", "pdf"),
        ("a.docx", b"hardly a Word file", "docx"),
        ("a.epub", zipped("hello.txt"), "epub"),
    ],
)
def test_a_file_is_read_as_its_name_says(
    tmp_path: Path, name: str, data: bytes, format: str
) -> None:
    assert kind(tmp_path, name, data) == format


@pytest.mark.parametrize(
    ("name", "data", "format"),
    [
        ("a.docx", pdf(["x"]), "pdf"),
        ("scan", pdf(["x"]), "pdf"),
        ("a.txt", zipped("[Content_Types].xml", "word/document.xml"), "docx"),
        ("a.doc", zipped("[Content_Types].xml", "word/document.xml"), "docx"),
        ("a.docx", zipped("[Content_Types].xml", "xl/workbook.xml"), "xlsx"),
        ("a.zip", zipped("OEBPS/a.html", first=b"application/epub+zip"), "epub"),
        ("a.zip", zipped("META-INF/container.xml", "OPS/a.html"), "epub"),
        ("a.txt", b"\xef\xbb\xbf\n<!-- saved -->\n<!DOCTYPE HTML><p>x", "html"),
        ("a.doc", b"<html><body>x", "html"),
    ],
)
def test_a_wrong_name_does_not_matter_where_the_content_is_clear(
    tmp_path: Path, name: str, data: bytes, format: str
) -> None:
    assert kind(tmp_path, name, data) == format


def test_a_workbook_inside_a_word_file_does_not_make_it_a_workbook(tmp_path: Path) -> None:
    inner = zipped("xl/workbook.xml")
    out = io.BytesIO(zipped("word/document.xml"))
    with zipfile.ZipFile(out, "a") as archive:
        archive.writestr("word/embeddings/table.xlsx", inner)
    assert kind(tmp_path, "a.docx", out.getvalue()) == "docx"


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.doc", ole("WordDocument"), "older .doc format"),
        ("a.docx", ole("WordDocument"), "older .doc format"),
        ("a.xls", ole("Workbook"), "older .xls format"),
        ("a.ppt", ole("PowerPoint Document"), "older .ppt format"),
        ("a.msg", ole("__properties_version1.0"), "Outlook message"),
        ("a.docx", OLE, "an older Office format"),
        ("a.doc", b"{\\rtf1\\ansi Hello}", "an RTF document"),
        ("a.docx", zipped("content.xml", first=b"application/vnd.oasis.opendocument.text"), ".odt"),
        ("a.ods", zipped(first=b"application/vnd.oasis.opendocument.spreadsheet"), ".ods"),
        ("a.pptx", zipped("ppt/presentation.xml"), "PowerPoint"),
        ("a.xlsx", zipped("[Content_Types].xml", "xl/workbook.bin"), ".xlsb"),
        ("a.txt", zipped("hello.txt"), "ZIP archive"),
        ("a.txt", b"\x89PNG\r\n\x1a\n....", "PNG image"),
        ("a.html", b"MIME-Version: 1.0\nContent-Type: multipart/related; x\n\n", "web archive"),
        ("a.xml", b'<?xml version="1.0"?>\n<w:wordDocument xmlns:w="x">', "saved as XML"),
        ("a.txt", b"\x1f\x8b\x08\x00", "gzip archive.*Unpack it"),
    ],
)
def test_other_formats_are_named_and_told_what_to_do(
    tmp_path: Path, name: str, data: bytes, said: str
) -> None:
    with pytest.raises(Unreadable, match=said):
        kind(tmp_path, name, data)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("notes.json", "Files of type .json are not supported"),
        ("Makefile", "without an extension are not supported"),
        ("letter.rtf", "Save it as .docx"),
    ],
)
def test_a_name_that_promises_nothing_we_read_is_refused(
    tmp_path: Path, name: str, said: str
) -> None:
    with pytest.raises(Unreadable, match=said) as caught:
        kind(tmp_path, name, b"just words")
    assert "EPUB (.epub)" in caught.value.reason


def test_a_locked_office_file_goes_to_the_parser_that_says_so(tmp_path: Path) -> None:
    assert kind(tmp_path, "a.xlsx", ole("EncryptedPackage")) == "xlsx"
