import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import docx
import pytest

from retrieval.errors import Unreadable
from retrieval.parsers.formats import format_of
from retrieval.parsers.process import ParsedFile, ParseLimits
from tests.retrieval.make_files import many_pages, pdf, word_file

Parse = Callable[..., ParsedFile]


def write(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def refusal(parse_file: Parse, path: Path, format: str) -> str:
    with pytest.raises(Unreadable) as caught:
        parse_file(path, format)
    return caught.value.reason


def test_markdown_is_kept_as_it_is(tmp_path: Path, parse_file: Parse) -> None:
    text = "# Herons\n\nA *heron* waits.\n\n## Food\n\nFish.\n"
    parsed = parse_file(write(tmp_path / "a.md", text.replace("\n", "\r\n")), "md")
    assert parsed.pages == [text]
    assert parsed.title == "Herons"
    assert [c.char_start for c in parsed.passages] == [0]


def test_pages_of_a_pdf_are_counted_from_one(tmp_path: Path, parse_file: Parse) -> None:
    path = write(tmp_path / "a.pdf", pdf(["First page", "Second (page)\nof two"], title="Herons"))
    parsed = parse_file(path, "pdf")
    assert parsed.pages == ["First page", "Second (page)\nof two"]
    assert [cut.page for cut in parsed.passages] == [1, 2]
    assert parsed.title == "Herons"


def test_pages_without_text_are_named(tmp_path: Path, parse_file: Parse) -> None:
    parsed = parse_file(write(tmp_path / "a.pdf", pdf(["Text", "", "More", ""])), "pdf")
    assert parsed.warnings == ["No text on 2 of 4 pages: 2, 4."]
    assert [cut.page for cut in parsed.passages] == [1, 3]


def test_a_pdf_without_text_says_how_many_pages_it_has(tmp_path: Path, parse_file: Parse) -> None:
    reason = refusal(parse_file, write(tmp_path / "a.pdf", pdf([""] * 12)), "pdf")
    assert "12 pages and no text layer" in reason


def test_a_locked_pdf_asks_for_a_copy_without_password(tmp_path: Path, parse_file: Parse) -> None:
    path = write(tmp_path / "a.pdf", pdf(["Secret"], password="heron"))
    assert "protected by a password" in refusal(parse_file, path, "pdf")


@pytest.mark.parametrize("data", [b"%PDF-1.4\n%garbage\n" + bytes(500), pdf(["x"])[:60]])
def test_a_corrupt_pdf_says_so(tmp_path: Path, parse_file: Parse, data: bytes) -> None:
    assert "damaged" in refusal(parse_file, write(tmp_path / "a.pdf", data), "pdf")


@pytest.mark.parametrize(
    ("name", "data", "found"),
    [
        ("a.pdf", b"\x89PNG\r\n\x1a\n....", "not a PDF.*PNG image"),
        ("a.pdf", b"just words", "not a PDF"),
        ("a.docx", b"%PDF-1.4", "not a Word document.*a PDF"),
        ("a.txt", b"PK\x03\x04" + bytes(100), "ZIP archive"),
        ("a.md", bytes(range(256)) * 4, "binary"),
        ("a.html", b"\xff\xd8\xff\xe0" + bytes(100), "JPEG"),
    ],
)
def test_a_wrong_extension_is_named(
    tmp_path: Path, parse_file: Parse, name: str, data: bytes, found: str
) -> None:
    path = write(tmp_path / name, data)
    with pytest.raises(Unreadable, match=found):
        parse_file(path, format_of(name))


def test_a_word_file_keeps_the_order_and_the_table(tmp_path: Path, parse_file: Parse) -> None:
    parsed = parse_file(word_file(tmp_path / "a.docx"), "docx")
    assert parsed.title == "A survey of ponds"
    assert parsed.pages == [
        "# Ponds\n\nThe survey counted birds.\n\n"
        "| Pond | Birds |\n| --- | --- |\n| North pond | 17 |\n| South pond | 4 |\n\n"
        "The count took a day.\n\n## Method\n\n- Walk around once"
    ]


def test_a_word_file_without_text_says_so(tmp_path: Path, parse_file: Parse) -> None:
    docx.Document().save(str(tmp_path / "a.docx"))
    assert "no text" in refusal(parse_file, tmp_path / "a.docx", "docx")


def test_a_zip_that_is_no_word_file_says_so(tmp_path: Path, parse_file: Parse) -> None:
    with zipfile.ZipFile(tmp_path / "a.docx", "w") as archive:
        archive.writestr("hello.txt", "hello")
    assert "ZIP archive" in refusal(parse_file, tmp_path / "a.docx", "docx")


def test_a_truncated_word_file_says_so(tmp_path: Path, parse_file: Parse) -> None:
    data = word_file(tmp_path / "whole.docx").read_bytes()
    path = write(tmp_path / "a.docx", data[: len(data) // 2])
    assert "damaged" in refusal(parse_file, path, "docx")


def test_an_old_or_locked_word_file_is_told_apart(tmp_path: Path, parse_file: Parse) -> None:
    ole = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)
    assert "older Office format" in refusal(parse_file, write(tmp_path / "a.docx", ole), "docx")
    locked = ole + "EncryptedPackage".encode("utf-16-le")
    assert "password" in refusal(parse_file, write(tmp_path / "b.docx", locked), "docx")


def test_a_word_file_whose_text_unpacks_to_gigabytes_is_refused(
    tmp_path: Path, parse_file: Parse
) -> None:
    path = word_file(tmp_path / "a.docx")
    with (
        zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("word/footnotes2.xml", "w") as member,
    ):
        for _ in range(500):
            member.write(bytes(2**20))
    assert path.stat().st_size < 4 * 2**20
    with zipfile.ZipFile(path, "a") as archive:
        relations = archive.read("word/_rels/document.xml.rels").decode()
        archive.writestr(
            "word/_rels/document.xml.rels",
            relations.replace(
                "</Relationships>",
                '<Relationship Id="r99" Type="x/footnotes" Target="footnotes2.xml"/>'
                "</Relationships>",
            ),
        )
    assert "unpacks to more than" in refusal(parse_file, path, "docx")


def test_what_nobody_reads_of_a_word_file_may_be_large(tmp_path: Path, parse_file: Parse) -> None:
    path = word_file(tmp_path / "a.docx")
    with (
        zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("word/media/image1.bin", "w") as member,
    ):
        for _ in range(500):
            member.write(bytes(2**20))
    assert "birds" in parse_file(path, "docx").pages[0]


HTML = """<html><head><title> Herons
 and ponds</title><style>p {color: red}</style></head><body>
<script>var secret = 1;</script><h1>Herons</h1><p>A <b>heron</b> waits<br>for   fish.</p>
<ul><li>one</li><li>two</li></ul>
<table><tr><th>Pond</th><th>Birds</th></tr><tr><td>North</td><td>17</td></tr></table>
<pre>a
  b</pre><div hidden>not shown</div><noscript>no</noscript></body></html>"""


def test_html_becomes_text_without_scripts_and_styles(tmp_path: Path, parse_file: Parse) -> None:
    parsed = parse_file(write(tmp_path / "a.html", HTML), "html")
    assert parsed.title == "Herons and ponds"
    assert parsed.pages == [
        "# Herons\n\nA heron waits\nfor fish.\n- one\n- two\n\n"
        "| Pond | Birds |\n| --- | --- |\n| North | 17 |\n\n```\na\n  b\n```"
    ]


def test_html_is_read_in_the_encoding_it_declares(tmp_path: Path, parse_file: Parse) -> None:
    page = '<html><head><meta charset="gb2312"></head><body><p>键值缓存</p></body></html>'
    parsed = parse_file(write(tmp_path / "a.html", page.encode("gb18030")), "html")
    assert parsed.pages == ["键值缓存"]


def test_html_that_only_a_script_fills_says_so(tmp_path: Path, parse_file: Parse) -> None:
    page = "<html><body><div id=app></div><script>go()</script></body></html>"
    assert "no text of its own" in refusal(parse_file, write(tmp_path / "a.html", page), "html")


def test_deeply_nested_html_is_read(tmp_path: Path, parse_file: Parse) -> None:
    page = "<div>" * 20_000 + "deep" + "</div>" * 20_000
    assert parse_file(write(tmp_path / "a.html", page), "html").pages == ["deep"]


def test_a_file_of_white_space_is_refused(tmp_path: Path, parse_file: Parse) -> None:
    assert "white space" in refusal(parse_file, write(tmp_path / "a.txt", " \n\n\t"), "txt")


def test_a_parser_that_takes_too_long_is_stopped(tmp_path: Path, parse_file: Parse) -> None:
    path = write(tmp_path / "a.txt", "The heron waits at the edge of the water. " * 60_000)
    with pytest.raises(Unreadable, match="took longer than 1 s"):
        parse_file(path, "txt", ParseLimits(wall_s=1))


def test_a_parser_that_takes_too_much_memory_is_stopped(tmp_path: Path, parse_file: Parse) -> None:
    path = write(tmp_path / "a.txt", "The heron waits at the edge of the water. " * 2_000_000)
    with pytest.raises(Unreadable, match="memory"):
        parse_file(path, "txt", ParseLimits(memory_bytes=150 * 2**20))


def test_a_parser_that_crashes_is_a_refusal(
    tmp_path: Path, parse_file: Parse, embedder_folder: str
) -> None:
    path = write(tmp_path / "a.pdf", many_pages(3))
    with pytest.raises(Unreadable, match=r"crash|memory"):
        parse_file(path, "pdf", ParseLimits(memory_bytes=2**20))


@pytest.mark.parametrize("format", ["txt", "html", "pdf", "docx"])
def test_the_child_loads_neither_torch_nor_the_database(format: str) -> None:
    code = (
        "import sys; from retrieval.parsers import child; child._parser(sys.argv[1]);"
        "import retrieval.chunking, json; print(json.dumps(sorted(sys.modules)))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, format], capture_output=True, text=True, check=True
    ).stdout
    for heavy in ('"torch"', '"transformers"', '"sqlalchemy"', '"numpy"', '"faiss"'):
        assert heavy not in out
