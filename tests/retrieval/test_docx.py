import zipfile
from pathlib import Path

import pytest

from retrieval.errors import NothingToIndex, Unreadable
from retrieval.parsers.docx import parse_docx
from tests.retrieval.make_packages import p, package, r, relations, table, word

STYLES = """<w:style w:styleId="U"><w:name w:val="heading 1"/></w:style>
<w:style w:styleId="Sub"><w:basedOn w:val="U2"/></w:style>
<w:style w:styleId="U2"><w:name w:val="My part"/><w:pPr><w:outlineLvl w:val="1"/></w:pPr></w:style>
<w:style w:styleId="Liste"><w:name w:val="List Number"/>
<w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr></w:style>"""
NUMBERING = """<w:abstractNum w:abstractNumId="0">
<w:lvl w:ilvl="0"><w:start w:val="1"/><w:numFmt w:val="decimal"/><w:lvlText w:val="%1."/></w:lvl>
<w:lvl w:ilvl="1"><w:numFmt w:val="lowerLetter"/><w:lvlText w:val="%1.%2)"/></w:lvl></w:abstractNum>
<w:abstractNum w:abstractNumId="1">
<w:lvl w:ilvl="0"><w:numFmt w:val="bullet"/><w:lvlText w:val="o"/></w:lvl></w:abstractNum>
<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num>
<w:num w:numId="2"><w:abstractNumId w:val="1"/></w:num>
<w:num w:numId="3"><w:abstractNumId w:val="0"/><w:lvlOverride w:ilvl="0">
<w:startOverride w:val="1"/></w:lvlOverride></w:num>"""


def style(name: str) -> str:
    return f'<w:pStyle w:val="{name}"/>'


def numbered(list_id: int, level: int = 0) -> str:
    return f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{list_id}"/></w:numPr>'


def text(path: Path) -> str:
    return parse_docx(path).pages[0]


def test_headings_are_known_by_the_style_they_are_based_on(tmp_path: Path) -> None:
    body = p("Birds", style("U")) + p("Herons", style("Sub")) + p("They wait.")
    path = word(tmp_path / "a.docx", body, styles=STYLES)
    assert text(path) == "# Birds\n\n## Herons\n\nThey wait."
    assert parse_docx(path).title == "Birds"


def test_lists_are_numbered_as_on_the_page(tmp_path: Path) -> None:
    body = (
        p("one", numbered(1)) + p("two", style("Liste")) + p("inner", numbered(1, 1))
        + p("inner", numbered(1, 1)) + p("three", numbered(1)) + p("point", numbered(2))
        + p("anew", numbered(3)) + p("plain", style("Liste") + numbered(0))
    )  # fmt: skip
    path = word(tmp_path / "a.docx", body, styles=STYLES, numbering=NUMBERING)
    assert text(path).split("\n") == [
        "1. one", "2. two", "  2.a) inner", "  2.b) inner", "3. three", "- point", "1. anew", "",
        "plain",
    ]  # fmt: skip


def test_notes_and_comments_follow_the_paragraph_that_they_hang_on(tmp_path: Path) -> None:
    body = (
        "<w:p>" + r("A heron waits")
        + '<w:r><w:footnoteReference w:id="2"/></w:r><w:r><w:commentReference w:id="0"/></w:r>'
        + r(" long.") + '<w:r><w:endnoteReference w:id="2"/></w:r></w:p>' + p("The end.")
    )  # fmt: skip
    path = word(
        tmp_path / "a.docx",
        body,
        footnotes=f'<w:footnote w:id="0" w:type="separator">{p("-")}</w:footnote>'
        f'<w:footnote w:id="2">{p("Up to an hour.")}</w:footnote>',
        endnotes=f'<w:endnote w:id="2">{p("Seen in May.")}</w:endnote>',
        comments=f'<w:comment w:id="0" w:author="Ada">{p("Really?")}</w:comment>',
    )
    assert text(path).split("\n\n") == [
        "A heron waits long.", "Note: Up to an hour.", "Comment by Ada: Really?",
        "Note: Seen in May.", "The end.",
    ]  # fmt: skip


def test_tracked_changes_are_read_as_accepted(tmp_path: Path) -> None:
    body = (
        "<w:p>" + r("A ") + f"<w:del>{r('grey ')}</w:del><w:ins>{r('white ')}</w:ins>" + r("heron")
        + "</w:p>"
        + f"<w:moveFrom>{p('moved')}</w:moveFrom>"
        + f"<w:p><w:moveFrom>{r('moved')}</w:moveFrom></w:p>"
        + p("cut ", "<w:rPr><w:del/></w:rPr>") + p("together")
        + f"<w:p><w:moveTo>{r('moved')}</w:moveTo></w:p>"
        + "<w:tbl><w:tr><w:trPr><w:del/></w:trPr><w:tc>" + p("gone") + "</w:tc></w:tr>"
        + f"<w:tr><w:tc>{p('a')}</w:tc><w:tc>{p('b')}</w:tc></w:tr></w:tbl>"
    )  # fmt: skip
    assert text(word(tmp_path / "a.docx", body)) == (
        "A white heron\n\ncut together\n\nmoved\n\n| a | b |\n| --- | --- |"
    )


def test_a_text_box_is_read_once_and_where_it_is(tmp_path: Path) -> None:
    box = f"<w:txbxContent>{p('In the box')}</w:txbxContent>"
    body = (
        f"<w:p>{r('Before')}<w:r><mc:AlternateContent><mc:Choice>{box}</mc:Choice>"
        f"<mc:Fallback>{box}</mc:Fallback></mc:AlternateContent></w:r>{r(' it')}</w:p>{p('After')}"
    )
    assert text(word(tmp_path / "a.docx", body)) == "Before it\n\nIn the box\n\nAfter"


def test_merged_cells_are_repeated(tmp_path: Path) -> None:
    merged = '<w:tcPr><w:vMerge w:val="restart"/></w:tcPr>' + p("North")
    body = table(
        (p("Pond"), '<w:tcPr><w:gridSpan w:val="2"/></w:tcPr>' + p("Birds")),
        (merged, p("heron"), p("17")),
        ("<w:tcPr><w:vMerge/></w:tcPr>" + p(""), p("coot"), p("4")),
    )
    assert text(word(tmp_path / "a.docx", body)).split("\n") == [
        "| Pond | Birds | Birds |", "| --- | --- | --- |", "| North | heron | 17 |",
        "| North | coot | 4 |",
    ]  # fmt: skip


def test_nested_tables_come_in_their_order(tmp_path: Path) -> None:
    inner = table((p("a"), p("b")), (p("1"), p("2")))
    body = table((p("first"), p("left") + inner + p("right")), (p("last"), p("cell")))
    assert text(word(tmp_path / "a.docx", body)).split("\n\n") == [
        "first", "left", "| a | b |\n| --- | --- |\n| 1 | 2 |", "right", "last | cell",
    ]  # fmt: skip


def test_headers_come_first_and_footers_last_without_page_numbers(tmp_path: Path) -> None:
    body = p("Body") + (
        '<w:sectPr><w:headerReference r:id="r1"/><w:headerReference r:id="r1"/>'
        '<w:footerReference r:id="r2"/></w:sectPr>'
    )
    path = word(
        tmp_path / "a.docx", body, header=p("Draft of May"), footer=p("Page 3 of 9") + p("Pond Ltd")
    )
    assert text(path) == "Draft of May\n\nBody\n\nPond Ltd"


def test_links_symbols_and_controls_keep_their_text(tmp_path: Path) -> None:
    body = (
        f"<w:p><w:hyperlink>{r('a link')}</w:hyperlink><w:r><w:tab/></w:r>"
        '<w:r><w:sym w:font="Wingdings" w:char="F0FE"/></w:r>'
        f"<w:sdt><w:sdtPr><w:alias/></w:sdtPr><w:sdtContent>{r('chosen')}</w:sdtContent></w:sdt>"
        f"<w:r><w:instrText>PAGE</w:instrText></w:r>{r('hidden', '<w:vanish/>')}</w:p>"
        f"<w:sdt><w:sdtContent>{p('in a control')}</w:sdtContent></w:sdt>"
    )
    assert text(word(tmp_path / "a.docx", body)) == "a link\t☑chosen\n\nin a control"


def test_inserted_pages_and_several_bodies_are_read(tmp_path: Path) -> None:
    path = word(tmp_path / "a.docx", p("one") + '<w:altChunk r:id="r1"/>')
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts["word/document.xml"] = parts["word/document.xml"].replace(
        b"</w:body>", b"</w:body><w:body>" + p("three").encode() + b"</w:body>"
    )
    parts["word/_rels/document.xml.rels"] = relations(aFChunk="page.html").encode()
    parts["word/page.html"] = b"<p>two</p><script>x</script>"
    assert text(package(path, parts)) == "one\n\ntwo\n\nthree"


def test_the_strict_form_and_another_main_part_are_read(tmp_path: Path) -> None:
    strict = "http://purl.oclc.org/ooxml"
    path = package(
        tmp_path / "a.docx",
        {
            "_rels/.rels": relations(officeDocument="/word/document2.xml").replace(
                "http://schemas.openxmlformats.org/officeDocument/2006/relationships",
                f"{strict}/officeDocument/relationships",
            ),
            "word/document2.xml": f'<w:document xmlns:w="{strict}/wordprocessingml/main">'
            f"<w:body>{p('strict')}</w:body></w:document>",
        },
    )
    assert text(path) == "strict"


def test_a_damaged_side_part_is_left_out_and_noted(tmp_path: Path) -> None:
    path = word(tmp_path / "a.docx", p("Body"), styles="<broken")
    parsed = parse_docx(path)
    assert parsed.pages == ("Body",)
    assert parsed.warnings == ("A part of the file is damaged and was left out.",)


def test_an_entity_outside_of_the_file_is_not_fetched(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret words")
    document = (
        f'<!DOCTYPE d [<!ENTITY e SYSTEM "file://{tmp_path}/secret">]><w:document xmlns:w='
        '"http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body><w:p><w:r>'
        "<w:t>before &e; after</w:t></w:r></w:p></w:body></w:document>"
    )
    path = package(tmp_path / "a.docx", {"word/document.xml": document})
    parsed = parse_docx(path)
    assert parsed.pages == ("before  after",)
    assert parsed.warnings == ("The file refers to text outside of itself; that was not fetched.",)


def test_entities_that_expand_into_each_other_are_refused(tmp_path: Path) -> None:
    entities = '<!ENTITY a0 "ha">' + "".join(
        f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10)
    )
    document = f'<!DOCTYPE d [{entities}]><d title="&a9;">&a9;</d>'
    for encoding in ("utf-8", "utf-16"):
        path = package(tmp_path / "a.docx", {"word/document.xml": document.encode(encoding)})
        with pytest.raises(Unreadable, match="expands into more text"):
            parse_docx(path)


def test_tables_nested_past_all_sense_do_not_hang(tmp_path: Path) -> None:
    body = p("deep")
    for _ in range(300):
        body = table((body,))
    with pytest.raises(NothingToIndex):
        parse_docx(word(tmp_path / "a.docx", body))
    parsed = parse_docx(word(tmp_path / "b.docx", p("top") + body))
    assert parsed.pages == ("top",)
    assert "could not be read" in parsed.warnings[0]


def test_a_span_of_a_million_columns_is_cut_down(tmp_path: Path) -> None:
    wide = '<w:tcPr><w:gridSpan w:val="1000000"/></w:tcPr>' + p("x")
    assert len(text(word(tmp_path / "a.docx", table((wide, p("y")))))) < 2_000
