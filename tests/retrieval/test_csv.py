from pathlib import Path

import pytest

from retrieval.errors import NothingToIndex
from retrieval.parsers.csv import parse_csv

TABLE = (
    "| Pond | Depth | Birds |\n| --- | --- | --- |\n"
    "| North, old | 3,5 m | 17 |\n| South | 2 m | 4 |"
)


def page(tmp_path: Path, data: bytes) -> str:
    path = tmp_path / "a.csv"
    path.write_bytes(data)
    return parse_csv(path).pages[0]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_the_delimiter_and_the_encoding_are_found(
    tmp_path: Path, delimiter: str, encoding: str
) -> None:
    rows = (("Pond", "Depth", "Birds"), ('"North, old"', '"3,5 m"', "17"), ("South", "2 m", "4"))
    text = "\r\n".join(delimiter.join(row) for row in rows)
    assert page(tmp_path, text.encode(encoding)) == TABLE


def test_the_first_line_may_name_the_delimiter(tmp_path: Path) -> None:
    assert page(tmp_path, b"sep=;\na;b\n1;2\n") == "| a | b |\n| --- | --- |\n| 1 | 2 |"


def test_a_cell_of_several_lines_stays_one(tmp_path: Path) -> None:
    assert page(tmp_path, b'a,b\n1,"two\nlines"\n3,4\n') == (
        "| a | b |\n| --- | --- |\n| 1 | two lines |\n| 3 | 4 |"
    )


def test_rows_of_unequal_length_are_filled_up(tmp_path: Path) -> None:
    assert page(tmp_path, b"a,b,c\n1,2\n1,2,3\n1,2,3\n").split("\n")[2] == "| 1 | 2 |  |"


def test_one_column_is_lines_of_text(tmp_path: Path) -> None:
    assert page(tmp_path, b"Heron\nCoot\n") == "Heron\nCoot"


def test_a_quote_that_is_never_closed_does_not_lose_the_rest(tmp_path: Path) -> None:
    rows = b"".join(b"pond %d,%d m\n" % (n, n) for n in range(20_000))
    text = page(tmp_path, b'name,depth\n"open,3\n' + rows)
    assert "| pond 19999 | 19999 m |" in text


def test_white_space_alone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NothingToIndex):
        page(tmp_path, b" \n\n")
