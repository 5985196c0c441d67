import pytest

from retrieval.errors import Unreadable
from retrieval.parsers.encoding import decode

CHINESE = "键值缓存保存每一层的键和值，这样新的词元不必重新计算。缓存越长，占用的内存就越多。"
TRADITIONAL = "快取保存每一層的鍵和值，這樣新的詞元不必重新計算。快取越長，佔用的記憶體就越多。"
JAPANESE = (
    "キャッシュは各層の鍵と値を保存します。新しい単語を計算するとき、過去の値を読み直します。"
)
RUSSIAN = "Кэш хранит ключи и значения каждого слоя, чтобы не вычислять их заново для нового слова."
GREEK = "Η κρυφή μνήμη κρατά τα κλειδιά και τις τιμές κάθε στρώματος για τις επόμενες λέξεις."
ARABIC = "تحتفظ الذاكرة المخبأة بالمفاتيح والقيم لكل طبقة حتى لا تحسب من جديد لكل كلمة جديدة."
POLISH = (
    "Pamięć podręczna przechowuje klucze i wartości każdej warstwy, żeby ich nie liczyć ponownie."
)
GERMAN = "Der Zwischenspeicher hält Schlüssel und Werte für später: größer, höher, müßig – 15,50 €."


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (CHINESE, "utf-8"),
        (CHINESE, "utf-8-sig"),
        (CHINESE, "gb18030"),
        (TRADITIONAL, "big5"),
        (JAPANESE, "shift_jis"),
        (JAPANESE, "euc_jp"),
        (RUSSIAN, "cp1251"),
        (RUSSIAN, "cp866"),
        (RUSSIAN, "koi8_r"),
        (GREEK, "cp1253"),
        (ARABIC, "cp1256"),
        (POLISH, "cp1250"),
        (GERMAN, "cp1252"),
        (GERMAN, "utf-16"),
        (GERMAN, "utf-16-le"),
        (GERMAN, "utf-16-be"),
        (CHINESE + "\n", "utf-16-le"),
        (GERMAN, "utf-32"),
    ],
)
def test_text_is_read_right_in(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding)).text == text


def test_line_ends_become_newlines() -> None:
    assert decode(b"a\r\nb\rc\n").text == "a\nb\nc\n"


def test_a_short_text_in_latin_letters_is_not_taken_for_something_rarer() -> None:
    assert decode("## können\n\näöüß".encode("cp1252")).text == "## können\n\näöüß"


def test_a_declared_encoding_is_believed() -> None:
    assert decode("Köln".encode("cp850"), declared="cp850").text == "Köln"


def test_utf8_with_a_broken_byte_is_still_utf8_and_says_so() -> None:
    decoded = decode(CHINESE.encode() * 10 + b"\xe9" + CHINESE.encode() * 10)
    assert decoded.text.startswith(CHINESE)
    assert decoded.notes == ("1 characters could not be decoded.",)


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "PNG"),
        (b"%PDF-1.4 ...", "PDF"),
        (bytes(range(256)) * 8, "binary"),
        (b"\x00" * 100, "binary"),
        (b"MZ\x90\x00\x03\x00\x00\x00\x04\x00\xff\xff" + b"\x00" * 60 + b"\xb8\x01", "binary"),
    ],
)
def test_binary_data_is_refused_with_what_it_is(data: bytes, word: str) -> None:
    with pytest.raises(Unreadable, match=word):
        decode(data)
