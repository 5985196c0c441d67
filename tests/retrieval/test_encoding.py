import random

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
KOREAN = "캐시는 각 층의 키와 값을 보관하여 새 낱말마다 다시 계산하지 않게 한다."
HEBREW = "המטמון שומר את המפתחות והערכים של כל שכבה כדי שלא לחשב אותם שוב לכל מילה חדשה."
TURKISH = (
    "Önbellek her katmanın anahtarlarını ve değerlerini saklar, böylece yeniden hesaplanmaz; güneş."
)
LITHUANIAN = (
    "Podėlis saugo kiekvieno sluoksnio raktus ir reikšmes, kad jų nereikėtų skaičiuoti iš naujo."
)
THAI = "แคชเก็บคีย์และค่าของแต่ละชั้นไว้เพื่อไม่ต้องคำนวณใหม่สำหรับคำใหม่ทุกคำ"
UKRAINIAN = (
    "Кеш зберігає ключі та значення кожного шару, щоб не обчислювати їх заново; її єдина мета."
)
CZECH = (
    "Mezipaměť uchovává klíče a hodnoty každé vrstvy, aby se nemusely počítat znovu: žluťoučký kůň."
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
        (GERMAN, "utf-32-le"),
        (GERMAN, "utf-32-be"),
        (CHINESE, "utf-16-le"),
        (JAPANESE, "iso2022_jp"),
        (KOREAN, "cp949"),
        (HEBREW, "cp1255"),
        (TURKISH, "cp1254"),
        (LITHUANIAN, "cp1257"),
        (THAI, "cp874"),
        (UKRAINIAN, "koi8_u"),
        (CZECH, "iso8859_2"),
        (RUSSIAN, "iso8859_5"),
        (GERMAN.replace("– 15,50 €", "fünf Euro"), "cp850"),
    ],
)
def test_text_is_read_right_in(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding)).text == text


def test_line_ends_become_newlines() -> None:
    assert decode(b"a\r\nb\rc\n").text == "a\nb\nc\n"


def test_a_short_text_in_latin_letters_is_not_taken_for_something_rarer() -> None:
    assert decode("## können\n\näöüß".encode("cp1252")).text == "## können\n\näöüß"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("naïve café", "cp1252"),
        ("Köln", "cp1252"),
        ("“quoted” – dash", "cp1252"),
        ("15,50 €", "cp1252"),
        ("20 °C ± 1", "cp1252"),
        ("Łódź", "cp1250"),
        ("Привет", "cp1251"),
        ("Привет", "koi8_r"),
        ("你好", "gb18030"),
        ("日本語", "cp932"),
        ("안녕", "cp949"),
        ("שלום", "cp1255"),
    ],
)
def test_a_word_or_two_are_enough(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding)).text == text


def test_letters_after_a_long_beginning_in_ascii_are_seen() -> None:
    text = "plain words " * 40_000 + RUSSIAN
    assert decode(text.encode("cp1251")).text == text


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
        (random.Random(1).randbytes(3_000), "binary"),
        (random.Random(2).randbytes(3_000).replace(b"\x00", b"\x01"), "binary"),
        (b"\x00" * 100, "binary"),
        (b"MZ\x90\x00\x03\x00\x00\x00\x04\x00\xff\xff" + b"\x00" * 60 + b"\xb8\x01", "binary"),
    ],
)
def test_binary_data_is_refused_with_what_it_is(data: bytes, word: str) -> None:
    with pytest.raises(Unreadable, match=word):
        decode(data)
