"""The calculator of the memory page: its inputs, its picture and its table."""

import re

import pytest

from chat.ui.i18n import EN, ZH
from chat.ui.kv_size import FIELDS, answer, form

SEVEN_B = {
    "tokens": "1024",
    "sessions": "1",
    "layers": "32",
    "heads": "32",
    "kv_heads": "32",
    "head_dim": "128",
    "memory": "16",
}


def cells(shown: str, attention: str, kv_dtype: str) -> list[str]:
    body = shown.split(f'<tbody data-attention="{attention}">')[1].split("</tbody>")[0]
    row = body.split(f'<tr data-kv-dtype="{kv_dtype}">')[1].split("</tr>")[0]
    return re.findall(r"<td[^>]*>([^<]*)</td>", row)


def test_the_articles_7b_model_takes_half_a_gibibyte() -> None:
    shown = answer(SEVEN_B, 16, "bfloat16", EN)
    assert cells(shown, "MHA", "bfloat16") == ["524,288 B", "0.50 GiB", "0.50 GiB", "32,768", "32"]
    assert cells(shown, "GQA", "bfloat16")[1] == "128 MiB"
    assert cells(shown, "MQA", "bfloat16")[1] == "16.0 MiB"
    assert "<h2>1 session of 1,024 tokens</h2>" in shown


def test_the_bars_are_as_long_as_the_sizes_and_say_what_is_too_much() -> None:
    shown = answer({**SEVEN_B, "memory": "0.6"}, 16, "bfloat16", EN)
    bars = re.findall(r'<em class="pt-kv-(\w+)" style="width:([\d.]+)%">', shown)
    assert len(bars) == 3 * 6
    assert bars[0] == ("over", "100.00"), "float32: 1 GiB"
    assert bars[1] == ("plain", "50.00")
    assert bars[3][0] == "coded"
    assert max(float(width) for _, width in bars) == 100
    assert "MHA, 32 KV heads (as given above), bfloat16, float16: 0.50 GiB" in shown


def test_heads_that_cannot_be_rotated_leave_a_dash_and_the_reason() -> None:
    shown = answer({**SEVEN_B, "head_dim": "72"}, 16, "bfloat16", EN)
    assert cells(shown, "MHA", "int4") == ["–"] * 5
    assert "k8v4, int4: heads of this size" in shown


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kv_heads": "5"}, "evenly"),
        ({"tokens": "0"}, "out of range"),
        ({"kv_heads": "0"}, "out of range"),
        ({"layers": "many"}, "out of range"),
        ({"head_dim": "1000000"}, "out of range"),
        ({"memory": "inf"}, "out of range"),
        ({"memory": ""}, "out of range"),
    ],
)
def test_numbers_that_make_no_sense_are_answered_with_a_sentence(
    changes: dict[str, str], said: str
) -> None:
    shown = answer({**SEVEN_B, **changes}, 16, "bfloat16", EN)
    assert said in shown
    assert "<table" not in shown


def test_the_form_begins_with_the_sizes_that_it_is_given_and_names_them_in_both_languages() -> None:
    shown = form({name: float(SEVEN_B[name]) for name in FIELDS})
    values = dict(re.findall(r'name="(\w+)" value="([^"]+)"', shown))
    assert values == SEVEN_B
    for label in ("KV heads", "KV 头", "calculated from sizes and not measured", "并非实测"):
        assert label in shown


def test_the_answer_is_there_in_chinese() -> None:
    shown = answer(SEVEN_B, 16, "bfloat16", ZH)
    for text in ("1 个会话，每个 1,024 个词元", "全精度", "最长会话", "32 个 KV 头"):
        assert text in shown
