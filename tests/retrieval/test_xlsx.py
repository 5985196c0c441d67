import zipfile
from pathlib import Path

import pytest

from retrieval.errors import NothingToIndex, Unreadable
from retrieval.parsers.xlsx import parse_xlsx
from retrieval.parsers.xlsx_formats import shown
from tests.retrieval.make_packages import package, relations, rows, workbook


def sheet(path: Path, content: str, **parts: str) -> str:
    return parse_xlsx(workbook(path, {"Ponds": content}, **parts)).pages[0]


def test_each_sheet_is_a_page_with_its_tables(tmp_path: Path) -> None:
    first = rows(("Survey of May",), (), ("Pond", "", "Birds"), ("North", "", "17"), (), ("a", "b"))
    path = workbook(tmp_path / "a.xlsx", {"Ponds": first, "Old": rows(("x",))}, hidden="Old")
    parsed = parse_xlsx(path)
    assert parsed.pages == (
        "# Ponds\n\nSurvey of May\n\n| Pond | Birds |\n| --- | --- |\n| North | 17 |\n\n"
        "| a | b |\n| --- | --- |",
        "# Old\n\nx",
    )
    assert parsed.labels == ("“Ponds”", "“Old”")
    assert parsed.warnings == ("The sheet “Old” is hidden; it was read too.",)


def test_values_count_and_not_formulas(tmp_path: Path) -> None:
    content = (
        '<sheetData><row><c t="s"><v>0</v></c><c><f>1+1</f><v>2</v></c>'
        '<c t="str"><f>A1</f><v>text</v></c><c t="b"><v>1</v></c><c t="e"><v>#REF!</v></c>'
        '<c t="d"><v>2024-12-31T00:00:00</v></c><c><f>SUM(A1)</f></c><c t="s"><v>99</v></c>'
        "</row></sheetData>"
    )
    strings = "<si><r><t>he</t></r><r><t>ron</t></r><rPh><t>sound</t></rPh></si>"
    path = workbook(tmp_path / "a.xlsx", {"Ponds": content}, strings=strings)
    parsed = parse_xlsx(path)
    assert "| heron | 2 | text | TRUE | #REF! | 2024-12-31 |" in parsed.pages[0]
    assert "1 formulas have no stored result" in parsed.warnings[0]


def test_merged_cells_are_repeated(tmp_path: Path) -> None:
    content = rows(("Pond", "Birds"), ("North", "heron"), ("", "coot"))
    merged = '<mergeCells><mergeCell ref="A2:A3"/><mergeCell ref="A1:XFD1048576"/></mergeCells>'
    assert sheet(tmp_path / "a.xlsx", content + merged).endswith("| North | coot |")


def test_numbers_have_the_form_of_their_style(tmp_path: Path) -> None:
    styles = (
        '<numFmts><numFmt numFmtId="170" formatCode="d mmmm yyyy"/></numFmts>'
        '<cellXfs><xf numFmtId="0"/><xf numFmtId="170"/><xf numFmtId="10"/></cellXfs>'
    )
    content = (
        '<sheetData><row><c s="1"><v>45657</v></c><c s="2"><v>0.256</v></c><c s="77"><v>.5</v></c>'
        "</row></sheetData>"
    )
    text = sheet(tmp_path / "a.xlsx", content, styles=styles)
    assert "| 31 December 2024 | 25.60% | 0.5 |" in text
    text = sheet(
        tmp_path / "b.xlsx", content, styles=styles, properties='<workbookPr date1904="1"/>'
    )
    assert "| 1 January 2029 |" in text


@pytest.mark.parametrize(
    ("value", "code", "text"),
    [
        (0.1 + 0.2, "General", "0.3"),
        (1234567.891, "#,##0.00", "1,234,567.89"),
        (-1234.5, "#,##0.0;(#,##0.0)", "(1,234.5)"),
        (0, '0;-0;"none"', "none"),
        (-12.5, "#,##0.00 [$€-407];[Red]-#,##0.00 [$€-407]", "-12.50 €"),
        (1.5, "0.###", "1.5"),
        (2, "0.###", "2"),
        (42, "00000", "00042"),
        (123456, "0.0E+00", "1.2E+05"),
        (1234567, '#,##0,"k"', "1,235k"),
        (45657, "[$-409]dddd, mmm d, yyyy;@", "Tuesday, Dec 31, 2024"),
        (45657, 'yyyy"年"m"月"d"日"', "2024年12月31日"),
        (45657.75, "m/d/yy h:mm AM/PM", "12/31/24 6:00 PM"),
        (1.5, "[h]:mm:ss", "36:00:00"),
        (0.0004, "mm:ss.0", "00:34.5"),
        (59, "yyyy-mm-dd", "1900-02-28"),
        (1e12, "yyyy-mm-dd", "1000000000000"),
        (-1, "yyyy-mm-dd", "-1"),
    ],
)
def test_a_number_is_shown_as_a_spreadsheet_shows_it(value: float, code: str, text: str) -> None:
    assert shown(value, code, is_1904=False) == text


def test_cells_far_apart_make_no_large_table(tmp_path: Path) -> None:
    content = (
        '<sheetData><row r="1"><c r="A1"><v>1</v></c><c r="XFD1"><v>2</v></c></row>'
        '<row r="1048576"><c r="A1048576"><v>3</v></c></row></sheetData>'
    )
    assert sheet(tmp_path / "a.xlsx", content) == "# Ponds\n\n| 1 | 2 |\n| --- | --- |\n\n3"


def test_comments_on_cells_are_read(tmp_path: Path) -> None:
    path = workbook(tmp_path / "a.xlsx", {"Ponds": rows(("a", "b"))})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("xl/_rels/sheet1.xml.rels", relations(comments="c.xml"))
        archive.writestr(
            "xl/c.xml",
            '<comments xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">'
            '<commentList><comment ref="B1"><text><t>Counted twice</t></text></comment>'
            "</commentList></comments>",
        )
    assert parse_xlsx(path).pages[0].endswith("\n\nComment on B1: Counted twice")


def test_an_empty_workbook_and_one_without_its_parts_say_so(tmp_path: Path) -> None:
    with pytest.raises(NothingToIndex, match="no filled cells"):
        parse_xlsx(workbook(tmp_path / "a.xlsx", {"Ponds": "<sheetData/>"}))
    with pytest.raises(Unreadable, match="damaged"):
        parse_xlsx(package(tmp_path / "b.xlsx", {"[Content_Types].xml": "<Types/>"}))


def test_shared_strings_that_expand_are_refused(tmp_path: Path) -> None:
    path = workbook(tmp_path / "a.xlsx", {"Ponds": rows(("a",))})
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts["xl/sharedStrings.xml"] = b'<!DOCTYPE s [<!ENTITY a "%s">]><sst>&a;</sst>' % (b"x" * 5000)
    with pytest.raises(Unreadable, match="expands into more text"):
        parse_xlsx(package(path, parts))
