"""Sentences with their ranges, in several scripts and layouts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.sentences import MAX_CHARACTERS, sentences


def texts(text: str) -> list[str]:
    return [text[start:end] for start, end in sentences(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Dr. Ames left at 5 p.m. on Jan. 3. The pond, i.e. the old one, is 3.5 m deep.",
            ["Dr. Ames left at 5 p.m. on Jan. 3.", "The pond, i.e. the old one, is 3.5 m deep."],
        ),
        ("键值缓存很大。它有多大？很大！", ["键值缓存很大。", "它有多大？", "很大！"]),
        ("これは池です。深さは三メートル。", ["これは池です。", "深さは三メートル。"]),
        (
            "Der Teich ist z. B. am 3. Mai leer. Das ist nicht von Dauer.",
            ["Der Teich ist z. B. am 3. Mai leer.", "Das ist nicht von Dauer."],
        ),
        ("# Ponds\nThe heron\nwaits. It is grey.", ["# Ponds", "The heron\nwaits.", "It is grey."]),
        ("- one heron\n- two. Or three.\n", ["- one heron", "- two.", "Or three."]),
        (
            "| bird | legs |\n| --- | --- |\n| heron | 2 |\nIt waits.",
            ["| bird | legs |", "| --- | --- |", "| heron | 2 |", "It waits."],
        ),
        ("1. First comes this.\n2. Then that.", ["1. First comes this.", "2. Then that."]),
        ("A title without a stop\n\nThen a text.", ["A title without a stop", "Then a text."]),
        ("Yes. ... No.", ["Yes. ...", "No."]),
        (
            "**Heron.** A grey bird. It waits.\n\n**Page of a book**. It is turned.",
            ["**Heron.** A grey bird.", "It waits.", "**Page of a book**. It is turned."],
        ),
        ("- __Heron.__ Grey.\n- *Pond.* Deep.", ["- __Heron.__ Grey.", "- *Pond.* Deep."]),
        ("**苍鹭。**灰色的鸟。它在等。", ["**苍鹭。**灰色的鸟。", "它在等。"]),
        ("It is **very grey.** It waits.", ["It is **very grey.**", "It waits."]),
        ("1. **Fill.** Pour. Wait.", ["1. **Fill.** Pour.", "Wait."]),
        ("**Heron.**\n\nIt waits.", ["**Heron.**", "It waits."]),
        ("It takes 0.50 GiB. Little!", ["It takes 0.50 GiB.", "Little!"]),
        ("A page holds 16. It is full.", ["A page holds 16.", "It is full."]),
        ("Intro:\n- one\n- two\n\nAfter", ["Intro:", "- one", "- two", "After"]),
        ("42", ["42"]),
        (" \n\t\n", []),
        ("", []),
    ],
)
def test_sentences_end_where_a_reader_would_end_them(text: str, expected: list[str]) -> None:
    assert texts(text) == expected


def test_what_has_no_full_stop_is_cut_where_it_hurts_least() -> None:
    listing = ", ".join(f"heron number {n}" for n in range(200))
    parts = texts(listing)
    assert all(len(part) <= MAX_CHARACTERS for part in parts)
    assert all(part.startswith("heron") for part in parts)
    assert [len(part) for part in texts("x" * (MAX_CHARACTERS + 1))] == [MAX_CHARACTERS, 1]


@given(st.text(alphabet=st.sampled_from("aB. \n\t。！?|#-1,“”(é中字😀𠀀"), max_size=1500))
def test_every_character_is_in_exactly_one_sentence(text: str) -> None:
    spans = sentences(text)
    covered = [i for start, end in spans for i in range(start, end)]
    assert len(covered) == len(set(covered))
    assert covered == sorted(covered)
    visible = {i for i, character in enumerate(text) if not character.isspace()}
    assert visible <= set(covered)
    for start, end in spans:
        assert 0 < end - start <= MAX_CHARACTERS
        assert text[start:end] == text[start:end].strip()
