"""Every string in both languages, and which of them a request gets."""

import re
from string import Formatter
from types import SimpleNamespace

import pytest

from chat.ui.gradio_words import I18N
from chat.ui.i18n import COOKIE, EN, ZH, words_for
from chat.ui.words import WORDS


def places(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name}


def test_both_languages_say_the_same_things() -> None:
    for key, (english, chinese) in WORDS.items():
        assert english.strip(), key
        assert chinese.strip(), key
        assert places(english) == places(chinese), key


def test_chinese_is_chinese() -> None:
    """Names and signs apart, no string was left in English."""
    same = {key for key, (english, chinese) in WORDS.items() if english == chinese}
    left = {key for key, (_, zh) in WORDS.items() if not re.search("[\u4e00-\u9fff]", zh)}
    assert left <= same | {"switch_language"}
    assert all(len(WORDS[key][0]) < 20 for key in same)


def test_counts_agree_with_their_noun() -> None:
    assert EN.count(1, "turns") == "1 turn"
    assert EN.count(1204, "turns") == "1,204 turns"
    assert ZH.count(1, "turns") == "1 轮"


@pytest.mark.parametrize(
    ("accepted", "cookie", "language"),
    [
        ("", None, "en"),
        ("zh-CN,zh;q=0.9,en;q=0.8", None, "zh"),
        ("zh-TW", None, "zh"),
        ("de-DE,de;q=0.9,zh;q=0.8,en;q=0.7", None, "zh"),
        ("de-DE,en;q=0.9,zh;q=0.8", None, "en"),
        ("zh-CN", "en", "en"),
        ("en", "zh", "zh"),
        ("zh", "nonsense", "zh"),
    ],
)
def test_the_page_follows_the_choice_and_then_the_browser(
    accepted: str, cookie: str | None, language: str
) -> None:
    request = SimpleNamespace(
        headers={"accept-language": accepted}, cookies={COOKIE: cookie} if cookie else {}
    )
    assert words_for(request).language == language


def test_gradio_translates_the_same_strings() -> None:
    table = I18N.translations_dict
    assert table["zh-CN"] == table["zh"]
    assert table["en"]["send"] == "Send"
    assert table["zh"]["send"] == "发送"
