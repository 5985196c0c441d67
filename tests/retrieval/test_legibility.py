import pytest

from retrieval.parsers.legibility import DOUBTFUL, ILLEGIBLE, legibility

GOOD = {
    "English": "The heron waits at the edge of the pond until a fish comes near (see page 12).",
    "German": "Die Größe des Zwischenspeichers hängt von der Länge der Gespräche ab.",
    "Polish": "Wielkość pamięci podręcznej zależy od długości rozmowy; źdźbło trawy, żółw i łódź.",
    "Czech": "Peněžní prostředky na účtech vedených v měně a příliš žluťoučký kůň na louce.",
    "Vietnamese": "Tất cả mọi người sinh ra đều được hưởng tự do và bình đẳng về nhân phẩm.",
    "Turkish": "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar.",
    "Ewe": "Wodzi amegbetɔwo katã ablɔɖeviwoe eye wodzena bubu kple gomekpɔkpɔ sɔsɔe le woƒe dome.",
    "Russian": "Все люди рождаются свободными и равными в своём достоинстве и правах.",
    "Greek": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.",
    "Arabic": "يولد جميع الناس أحراراً متساوين في الكرامة والحقوق.",
    "Hebrew": "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם.",
    "Hindi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता प्राप्त है।",
    "Burmese": "လူတိုင်းသည် တူညီ လွတ်လပ်သော ဂုဏ်သိက္ခာဖြင့် လည်းကောင်း",
    "Thai": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ",
    "Chinese": "人人生而自由,在尊严和权利上一律平等。使用GPU加速。",
    "Japanese": "すべての人間は、生まれながらにして自由であり、カーネルを使う。",
    "Korean": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
    "a table": "Alabama 18,870 23,022 22,650 859 1,178 0 14\nAlaska 209 3,062 3,209 191 184 0 9",
    "code": "def split(text: str) -> list[str]:\n    return text.rsplit('/', 1)[0].split(\"\\n\")",
    "names": "JavaScript, McDonald, PhD, H2O, x86, utf8, v2, https://example.org/a.b?c=d&e=f",
    "signs": "E = mc², α = 0.05, 15 µm, 20 °C, $5.00, 67%, -> • – (a)",
    "capitals": "BAIN, J MATTHEW DISTRICT DIRECTOR 37,499.96\nSMITH, ALVARO R LEGISLATIVE OFFICER",
}
NOISE = {
    "glyph numbers taken for letters": "3HQČåQt\x03SURVWĜHGN\\\x03QD\x03~þWHFK",
    "glyph numbers, spaces kept": "7KLV LV WKH WH[W RI D GRFXPHQW ZLWKRXW D FKDUDFWHU PDS DQG LW "
    "LV ORQJ HQRXJK WR EH PHDVXUHG",
    "an alphabet permuted": "xqj kjbms frgxu rx xqj jwlj mi xqj dmsw ysxgz r igukjmy symjug "
    "sjrb vqpz tppl hjjd zjmyqgsv",
    "bytes of Cyrillic taken for Latin": "Ïðèâåò, ìèð. Ýòî ðóññêèé òåêñò áåç êàðòû.",
    "private use": "\ue001\ue002\ue003 \ue004\ue005 \ue001\ue006\ue007",
    "unknown characters": "\ufffd\ufffd\ufffd \ufffdh\ufffd\ufffd \ufffd\ufffd",
    "signs without words": '"7+%- #)(*& !@%^ $#*(&',
    "letters of several alphabets": "Tнe qυιcκ bгοwп fοx јumрs оvеr тhe laζy dоg",
}


@pytest.mark.parametrize("name", GOOD)
def test_text_is_told_from_noise_in_any_script(name: str) -> None:
    assert legibility(GOOD[name]) > DOUBTFUL


@pytest.mark.parametrize("name", NOISE)
def test_what_a_broken_font_leaves_is_noise(name: str) -> None:
    assert legibility(NOISE[name]) < DOUBTFUL


def test_noise_among_text_lowers_the_measure_by_its_share() -> None:
    text, noise = GOOD["English"] * 4, "\ue001\ue002\ue003\ue004\ue005 " * 8
    assert ILLEGIBLE < legibility(text + noise) < legibility(text)


def test_nothing_is_no_noise() -> None:
    assert legibility(" \n") == 1.0
