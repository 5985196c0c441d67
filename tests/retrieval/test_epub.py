import zipfile
from pathlib import Path

import pytest

from retrieval.errors import NothingToIndex, Unreadable
from retrieval.parsers.epub import parse_epub
from tests.retrieval.make_packages import book, package

POINT = (
    "<navPoint><navLabel><text>The second pond</text></navLabel><content src='b%20.html#x'/>"
    "</navPoint>"
)


def test_chapters_come_in_the_order_of_the_spine_with_their_titles(tmp_path: Path) -> None:
    chapters = {
        "z.html": "<h1>First</h1><p>A heron.</p><script>nothing</script>",
        "b .html": "<p>Deep &amp; cold.</p>",
        "picture.html": "<img src='a.png'/>",
    }
    parsed = parse_epub(book(tmp_path / "a.epub", chapters, contents=POINT))
    assert parsed.title == "Ponds"
    assert parsed.pages == ("# First\n\nA heron.", "# The second pond\n\nDeep & cold.")
    assert parsed.labels == ("“First”", "“The second pond”")


def test_a_chapter_without_a_name_has_none_and_a_long_name_is_cut(tmp_path: Path) -> None:
    chapters = {"a.html": "<p>Words</p>", "b.html": f"<h1>{'Long ' * 40}</h1><p>x</p>"}
    none, long = parse_epub(book(tmp_path / "a.epub", chapters)).labels
    assert none == ""
    assert long == f"“{'Long ' * 15}Long…”"


def test_titles_of_the_third_version_are_used_and_its_contents_are_no_chapter(
    tmp_path: Path,
) -> None:
    path = book(tmp_path / "a.epub", {"nav.html": "", "a.html": "<p>Words</p>"})
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts["OPS/book.opf"] = parts["OPS/book.opf"].replace(
        b'href="nav.html"', b'properties="nav" href="nav.html"'
    )
    parts["OPS/nav.html"] = (
        b'<html xmlns="http://www.w3.org/1999/xhtml"><nav><a href="a.html">One <b>pond</b></a>'
        b"&nbsp;</nav></html>"
    )
    assert parse_epub(package(path, parts)).pages == ("# One pond\n\nWords",)


def test_a_book_without_some_chapters_says_so(tmp_path: Path) -> None:
    path = book(tmp_path / "a.epub", {"a.html": "<p>Words</p>", "b.html": "<p>x</p>"})
    with zipfile.ZipFile(path) as archive:
        parts = {n: archive.read(n) for n in archive.namelist() if n != "OPS/b.html"}
    parsed = parse_epub(package(path, parts))
    assert parsed.pages == ("Words",)
    assert parsed.warnings == ("1 of 2 chapters are missing or damaged.",)


def encryption(method: str) -> dict[str, str]:
    return {
        "META-INF/encryption.xml": '<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:'
        'container"><EncryptedData xmlns="http://www.w3.org/2001/04/xmlenc#">'
        f'<EncryptionMethod Algorithm="{method}"/></EncryptedData></encryption>'
    }


def test_a_protected_book_is_refused_and_one_with_hidden_fonts_is_not(tmp_path: Path) -> None:
    chapters = {"a.html": "<p>Words</p>"}
    drm = encryption("http://www.w3.org/2001/04/xmlenc#aes128-cbc")
    with pytest.raises(Unreadable, match="protected against copying"):
        parse_epub(book(tmp_path / "a.epub", chapters, **drm))
    fonts = encryption("http://www.idpf.org/2008/embedding")
    assert parse_epub(book(tmp_path / "b.epub", chapters, **fonts)).pages == ("Words",)


def test_a_broken_book_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="ZIP archive, not an EPUB"):
        parse_epub(package(tmp_path / "a.epub", {"hello.txt": "hello"}))
    with pytest.raises(NothingToIndex, match="no chapters with text"):
        parse_epub(book(tmp_path / "b.epub", {"a.html": ""}))
    whole = book(tmp_path / "c.epub", {"a.html": "<p>Words</p>"}).read_bytes()
    (tmp_path / "d.epub").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(Unreadable, match="damaged"):
        parse_epub(tmp_path / "d.epub")
