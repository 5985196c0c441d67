from pathlib import Path

import pytest

from host.errors import SettingRefused
from host.settings import load


def test_options_win_over_variables_and_variables_over_defaults(monkeypatch):
    monkeypatch.setenv("PAGETURN_PORT", "7000")
    monkeypatch.setenv("PAGETURN_PAGE_SIZE", "32")
    settings = load({"port": "7001", "page_size": None})
    assert (settings.port, settings.page_size, settings.host) == (7001, 32, "127.0.0.1")


def test_the_defaults_are_those_of_the_readme():
    settings = load({})
    assert settings.port == 7860
    assert settings.data_dir == Path("data/var")
    assert settings.models_dir == Path("data/var/models")
    assert (settings.device, settings.dtype, settings.kv_memory) == ("auto", "auto", "auto")
    assert settings.page_size == 16


@pytest.mark.parametrize("text", ["auto", "2GiB", "512MB", "0.5", "1.0", "536870912"])
def test_kv_memory_is_auto_bytes_or_a_fraction(text):
    assert load({"kv_memory": text}).kv_memory == text


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("port", "seven", "--port must be a whole number"),
        ("port", "70000", "--port must be at most 65535"),
        ("device", "tpu", "--device must be auto, cpu or cuda"),
        ("dtype", "int4", "--dtype must be auto, float32, bfloat16 or float16"),
        ("kv_memory", "1.5", "0 < x <= 1"),
        ("kv_memory", "0", "more than nothing"),
        ("kv_memory", "much", "not understood"),
        ("page_size", "12", "--page-size must be a power of two"),
        ("max_sessions", "0", "--max-sessions must be at least 1"),
        ("upload_quota", "much", "--upload-quota must be bytes or a size such as 2GiB"),
        ("upload_quota_total", "0", "--upload-quota-total must be more than 0"),
        ("model", "", "--model must not be empty"),
        ("colour", "red", "not a setting"),
    ],
)
def test_a_bad_value_is_refused_in_one_sentence_that_names_the_option(field, value, said):
    with pytest.raises(SettingRefused) as refused:
        load({field: value})
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_bad_variable_is_named_as_a_variable(monkeypatch):
    monkeypatch.setenv("PAGETURN_PORT", "x")
    with pytest.raises(SettingRefused, match="PAGETURN_PORT must be a whole number, not 'x'"):
        load({})


def test_an_unknown_variable_is_refused(monkeypatch):
    monkeypatch.setenv("PAGETURN_PROT", "80")
    with pytest.raises(SettingRefused, match="PAGETURN_PROT is not a setting"):
        load({})
