"""What is usually lost in PDFs: order, spaces, words, letters, forms, labels; read in-process."""

from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pytest

from retrieval.errors import NothingToIndex, Unreadable
from retrieval.parsers import ocr
from retrieval.parsers.formats import Parsed
from retrieval.parsers.pdf import parse_pdf
from retrieval.parsers.pdf_text import clean, join_words
from tests.retrieval.make_files import pdf
from tests.retrieval.make_pdf import Pdf, coded, lines, shown

Read = Callable[[Pdf | bytes], Parsed]

HEBREW = "שלוםעמיגדו"
LEFT = (
    "Left column goes on with words to",
    "the very edge of its own narrow",
    "space, line after line, as a book",
    "does, until it ends down here now",
)
RIGHT = (
    "Right column has another story that",
    "nobody should read across, since it",
    "makes no sense at all beside the one",
    "that stands on the other side of it",
)


@pytest.fixture
def no_tesseract(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine as it is without the optional program."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(ocr, "languages", ocr.languages.__wrapped__)


@pytest.fixture
def read(tmp_path: Path, no_tesseract: None) -> Read:
    def run(made: Pdf | bytes) -> Parsed:
        path = tmp_path / "a.pdf"
        path.write_bytes(made if isinstance(made, bytes) else made.data())
        return parse_pdf(path)

    return run


def one_page(content: str, entries: str = "") -> Pdf:
    made = Pdf()
    made.page(content, entries)
    return made


# Order and spaces


def test_columns_written_line_by_line_across_are_read_one_after_the_other(read: Read) -> None:
    rows = enumerate(zip(LEFT, RIGHT, strict=True))
    places = ([(50, 780 - 14 * i, a), (300, 780 - 14 * i, b)] for i, (a, b) in rows)
    heading = shown((50, 810, "A heading that stands over both of the columns of this page here"))
    [text] = read(one_page(heading + shown(*chain.from_iterable(places)))).pages
    assert text.split("\n")[1:] == [*LEFT, *RIGHT]


def test_cells_of_a_table_stay_in_their_rows(read: Read) -> None:
    rows = [("Alabama", "18,870", "7"), ("New Mexico", "209", "5"), ("Utah", "5", "12,000")] * 2
    cells = (
        (x, 780 - 14 * i, cell)
        for i, row in enumerate(rows)
        for x, cell in zip((50, 300, 400), row, strict=True)
    )
    [text] = read(one_page(shown(*cells))).pages
    assert text.split("\n") == [" ".join(row) for row in rows]


@pytest.mark.parametrize("matrix", ["0 1 -1 0 300 300", "0 -1 1 0 300 600", "-1 0 0 -1 300 300"])
def test_turned_text_is_read_in_its_own_direction(read: Read, matrix: str) -> None:
    turned = f"BT /F1 12 Tf {matrix} Tm (One line of text) Tj 0 -14 Td (and its next) Tj ET"
    assert read(one_page(turned)).pages == ("One line of text\nand its next",)


def test_a_page_shown_turned_is_read_from_its_first_line(read: Read) -> None:
    upwards = shown((50, 600, "third"), (50, 620, "second"), (50, 640, "first"))
    assert read(one_page(upwards, "/Rotate 90")).pages == ("first\nsecond\nthird",)


@pytest.mark.parametrize(
    "content",
    [
        shown((50, 700, "Here is some spaced text"), more="5 Tc"),
        shown((50, 700, "H e r e   i s   s o m e   s p a c e d   t e x t")),
    ],
)
def test_words_whose_letters_stand_apart_are_words(read: Read, content: str) -> None:
    assert read(one_page(content)).pages == ("Here is some spaced text",)


def test_letters_drawn_twice_to_look_bold_are_read_once(read: Read) -> None:
    twice = shown((50, 700, "Bold heading")) + lines(["between"], top=650)
    twice += shown((50.3, 700, "Bold heading"))
    assert read(one_page(twice)).pages == ("Bold heading\nbetween",)


@pytest.mark.parametrize("by_sight", [True, False])
def test_hebrew_is_read_from_the_right_however_it_was_drawn(read: Read, by_sight: bool) -> None:
    made = Pdf()
    made.font("H", HEBREW)
    if by_sight:  # as one string from left to right
        content = shown((140, 700, coded("שלום"[::-1], HEBREW)), font="H")
        content += shown((100, 700, coded("עמי"[::-1], HEBREW)), font="H")
    else:  # letter by letter from right to left
        places = [(200 - 6 * i, 700, coded(c, HEBREW)) for i, c in enumerate("שלום")]
        places += [(160 - 6 * i, 700, coded(c, HEBREW)) for i, c in enumerate("עמי")]
        content = shown(*places, font="H")
    made.page(content)
    assert read(made).pages == ("שלום עמי",)


# Words and letters


def test_words_cut_at_the_end_of_a_line_are_whole() -> None:
    page = "The word is deter\x02mined here.\r\nA well\x02known name and an Anglo\x02Saxon one."
    assert join_words([clean(page), "It is well-known."]) == [
        "The word is determined\nhere.\nA well-known\nname and an Anglo-Saxon\none.",
        "It is well-known.",
    ]


def test_a_cut_word_is_whole_on_a_real_page(read: Read) -> None:
    assert read(one_page(lines(["The word is deter-", "mined by it"]))).pages == (
        "The word is determined\nby it",
    )


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("ﬁnd the eﬀect", "find the effect"),
        ("x² + ½ = ™ 5℃", "x² + ½ = ™ 5℃"),
        ("op\u00adtional hy\u00ad\nphen", "optional hyphen"),
        ("⽂件 和 ＡＢＣ１２ ｶﾅ", "文件和 ABC12 カナ"),
        ("这 是 一 个 测 试 文本", "这是一个测试文本"),
        ("数据 结构，算法（一）", "数据 结构，算法（一）"),
        ("\ufefbم \ufe8d", "لام ا"),
        ("a\u200bb\x07c\ufeff", "abc"),
    ],
)
def test_letters_are_what_they_stand_for(raw: str, text: str) -> None:
    assert clean(raw) == text


def test_a_page_whose_letters_cannot_be_known_is_left_out_and_named(read: Read) -> None:
    noise = [
        "7KLV LV WKH WH[W RI D GRFXPHQW ZLWKRXW D FKDUDFWHU PDS",
        "DQG LW LV ORQJ HQRXJK WR EH PHDVXUHG",
    ]
    made = one_page(lines(["A page that can be read, with words."]))
    made.page(lines(noise))
    parsed = read(made)
    assert parsed.pages == ("A page that can be read, with words.", "")
    assert parsed.warnings == (
        "The text could not be read reliably and was left out on 1 of 2 pages: 2.",
    )
    with pytest.raises(Unreadable, match=r"could not be read reliably.*tesseract"):
        read(one_page(lines(noise)))


# What is beside the text


def test_filled_fields_and_typed_notes_are_read(read: Read) -> None:
    made = Pdf()
    fields = [
        "/FT /Tx /T (given) /TU (Given name) /V (Alice)",
        "/FT /Tx /T (empty)",
        "/FT /Tx /Ff 8192 /T (secret) /V (hunter2)",
        "/FT /Btn /T (Agree) /V /Yes /AS /Yes /AP << /N << /Yes null /Off null >> >>",
        "/FT /Ch /Ff 131072 /T (Country) /V (Chile) /Opt [(Chile) (Peru)]",
    ]
    box = "/Subtype /Widget /Rect [100 600 200 620]"
    widgets = [made.add(f"<< /Type /Annot {box} {field} >>") for field in fields]
    note = "/Subtype /FreeText /Rect [100 500 200 520] /Contents (A typed note) /DA (/F1 9 Tf)"
    annotations = " ".join(f"{n} 0 R" for n in [*widgets, made.add(f"<< /Type /Annot {note} >>")])
    made.catalog = f"/AcroForm << /Fields [{' '.join(f'{n} 0 R' for n in widgets)}] >>"
    made.page(lines(["An application"]), f"/Annots [{annotations}]")
    [text] = read(made).pages
    assert text.split("\n") == [
        "An application",
        "",
        "Given name: Alice",
        "Agree: yes",
        "Country: Chile",
        "A typed note",
    ]


def test_pages_keep_the_labels_that_are_printed_on_them(read: Read) -> None:
    made = Pdf("/PageLabels << /Nums [0 << /S /r /St 3 >> 2 << /S /D >>] >>")
    for word in ("Preface", "More of it", "Chapter"):
        made.page(lines([word]))
    assert read(made).labels == ("iii", "iv", "1")
    assert read(one_page(lines(["A page"]))).labels == ()


def test_files_within_a_pdf_are_named_as_not_read(read: Read) -> None:
    made = Pdf()
    inner = made.stream(b"hello", "/Type /EmbeddedFile")
    spec = made.add(f"<< /Type /Filespec /F (a.txt) /UF (a.txt) /EF << /F {inner} 0 R >> >>")
    made.catalog = f"/Names << /EmbeddedFiles << /Names [(a.txt) {spec} 0 R] >> >>"
    made.page(lines(["A cover page"]))
    assert "1 file is attached to the PDF and not read." in read(made).warnings[0]


def test_scans_are_counted_apart_from_blank_pages(read: Read) -> None:
    made = one_page(lines(["A page of text"]))
    made.scan("Some words")
    made.page("")
    assert read(made).warnings == (
        "No text on 1 of 3 pages: 3.",
        "Only pictures, probably scans, on 1 of 3 pages; install tesseract (text recognition, "
        "OCR) to read them: 2.",
    )


def test_a_pdf_of_scans_says_what_reads_it(read: Read) -> None:
    made = Pdf()
    for _ in range(3):
        made.scan("Some words")
    with pytest.raises(NothingToIndex, match=r"3 pages are scans; install tesseract"):
        read(made)


# Damage


def test_an_empty_password_opens_a_protected_pdf(read: Read) -> None:
    data = pdf(["Not so secret"], password="owner", user_password="")
    assert read(data).pages == ("Not so secret",)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data.replace(b"/Root 1 0 R", b"/Rxxx 1 0 R"),
        lambda data: data[: data.index(b"xref") - 10],
        lambda data: b"x" * 2_000 + data,
        lambda data: data.replace(b"endobj", b""),
        lambda data: data.replace(b"/Kids [", b"/Kids [2 0 R "),
        lambda data: data.replace(b"/Count 2", b"/Count 999999999"),
        lambda data: data.replace(b"startxref\n", b"startxref\n9"),
    ],
    ids=["no root", "cut off", "after junk", "no ends", "loop", "count", "no table"],
)
def test_a_damaged_file_gives_what_is_left_of_it(
    read: Read, damage: Callable[[bytes], bytes]
) -> None:
    made = one_page(lines(["Potatoes grow here"]))
    made.page(lines(["and there"]))
    texts = [page for page in read(damage(made.data())).pages if page]
    assert texts == ["Potatoes grow here", "and there"]
