from pathlib import Path

import pytest

from retrieval.embedder import Embedder
from retrieval.lexical import LexicalHit
from retrieval.library import Library
from retrieval.search import BEST_SHARE, LEXICAL_WEIGHT_UNKNOWN_SCRIPT, fuse, lexical_weight
from retrieval.vectors import DenseHit

TEXTS = {
    "heron.md": "# Herons\n\nThe grey heron stands in shallow water and catches fish.",
    "bread.md": "# Bread\n\nKnead the dough for ten minutes and let it rise overnight.",
    "engine.md": "# Engines\n\nThe diesel motor of the ferry burns twelve litres an hour.",
    "chi.md": "# 缓存\n\n键值缓存保存每一层的键和值，显存占用随长度增加。",
    "zhu.md": "# 池塘\n\n苍鹭站在浅水里，等着捕鱼。它在池塘边筑巢。",
}


def fill(library: Library, folder: Path, texts: dict[str, str], owner: str = "local") -> list[str]:
    folder.mkdir(exist_ok=True)
    ids = []
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
        ids.append(library.add(folder / name, owner=owner).id)
    for id in ids:
        assert library.wait(id, 120).state == "ready"
    return ids


def test_scores_are_fused_by_their_weighted_sum() -> None:
    lexical = [LexicalHit(1, 8.0), LexicalHit(2, 6.0)]
    dense = [DenseHit(2, 0.5), DenseHit(3, 0.4)]
    fused = fuse(lexical, dense, lexical_weight=0.4, best_possible=32.0, more_cosines={1: 0.2})
    assert [hit.id for hit in fused] == [2, 1, 3]
    unit = 8**BEST_SHARE * 32 ** (1 - BEST_SHARE)
    assert fused[0].score == pytest.approx(0.4 * 6 / unit + 0.6 * 0.5)
    assert fused[1].score == pytest.approx(0.4 * 8 / unit + 0.6 * 0.2)
    assert (fused[1].lexical_rank, fused[1].dense_rank) == (1, None)


def test_an_unfit_model_never_lifts_a_passage_over_a_clear_first_by_words() -> None:
    lexical = [LexicalHit(1, 8.0), LexicalHit(2, 6.0)]
    dense = [DenseHit(2, 0.9), DenseHit(50, 0.9), DenseHit(1, 0.1)]
    weight = LEXICAL_WEIGHT_UNKNOWN_SCRIPT
    fused = fuse(lexical, dense, lexical_weight=weight, best_possible=20.0, more_cosines={})
    assert [hit.id for hit in fused] == [1, 2, 50]


def test_words_count_more_where_nothing_stands_out_by_meaning() -> None:
    assert lexical_weight(3.0) > lexical_weight(4.5) == lexical_weight(None) > lexical_weight(6.0)
    assert lexical_weight(-9.0) < 1
    assert lexical_weight(99.0) > 0


def test_nothing_found_on_either_side_is_nothing() -> None:
    assert fuse([], [], lexical_weight=0.5, best_possible=0.0, more_cosines={}) == []


def test_a_follow_up_is_searched_in_the_light_of_the_questions_before(
    library: Library, tmp_path: Path
) -> None:
    fill(
        library,
        tmp_path / "in",
        {
            "pond.md": "# Pond\n\nThe northern pond is three metres deep and full of reed.",
            "ferry.md": "# Ferry\n\nThe ferry is twelve metres long and made of steel.",
            "tower.md": "# Tower\n\nThe tower is forty metres high and made of brick.",
        },
    )
    question = "What is it made of?"
    for before, name in (
        ("How long is the ferry?", "ferry.md"),
        ("Who made the tower?", "tower.md"),
    ):
        found = library.search(question, earlier=["Where do herons nest?", before])
        assert found.passages[0].name == name
    # A new subject is not drowned by the old one.
    other = library.search("How deep is the pond?", earlier=["How long is the ferry?"] * 3)
    assert other.passages[0].name == "pond.md"


def test_passages_that_say_the_same_come_once_the_first_of_them(
    library: Library, tmp_path: Path
) -> None:
    text = "The ferry of 1964 burns twelve litres an hour and carries thirty people to the island."
    ids = fill(
        library,
        tmp_path / "in",
        {
            "a.txt": f"{text} It is white.",
            "b.txt": f"{text}  It is  white!\n",
            "c.txt": f"{text.replace('1964', '1978')} It is white.",
            "d.txt": f"{text.replace('ferry', 'liner')} It is white.",
        },
    )
    found = library.search("What does the ferry burn?").passages
    assert {passage.document_id for passage in found} == {ids[0], ids[2], ids[3]}


def test_words_and_meaning_both_find(library: Library, tmp_path: Path) -> None:
    fill(library, tmp_path / "in", TEXTS)
    by_word = library.search("How many litres does the ferry burn?").passages[0]
    assert by_word.name == "engine.md"
    assert by_word.lexical_rank == by_word.dense_rank == 1
    by_meaning = library.search("a wading bird hunting its prey").passages[0]
    assert by_meaning.name == "heron.md"
    assert by_meaning.lexical_rank is None


def test_a_chinese_question_finds_the_chinese_passage(library: Library, tmp_path: Path) -> None:
    fill(library, tmp_path / "in", TEXTS)
    assert library.search("什么是键值缓存？").passages[0].name == "chi.md"
    assert library.search("苍鹭在哪里筑巢？").passages[0].name == "zhu.md"


def test_a_found_passage_is_cut_out_of_its_page(library: Library, tmp_path: Path) -> None:
    fill(library, tmp_path / "in", TEXTS)
    for found in library.search("water fish dough").passages:
        page = library.page_text(found.document_id, found.page)
        assert page[found.char_start : found.char_end] == found.text
        assert found.title
        assert found.heading == found.title


def test_the_chosen_documents_alone_are_searched(library: Library, tmp_path: Path) -> None:
    ids = fill(library, tmp_path / "in", TEXTS)
    found = library.search("heron in water", documents=[ids[1]]).passages
    assert [passage.document_id for passage in found] == [ids[1]]
    assert library.search("heron in water", documents=[]).passages == ()


def test_owners_never_see_each_others_documents(library: Library, tmp_path: Path) -> None:
    fill(library, tmp_path / "a", {"a.md": TEXTS["heron.md"]}, owner="ada")
    fill(library, tmp_path / "b", {"b.md": TEXTS["bread.md"]}, owner="bob")
    assert {p.name for p in library.search("heron dough", owner="ada").passages} == {"a.md"}
    assert {p.name for p in library.search("heron dough", owner="bob").passages} == {"b.md"}
    assert library.search("heron dough").passages == ()


def test_an_empty_question_and_an_empty_library_find_nothing(library: Library) -> None:
    assert library.search("anything").passages == ()
    assert library.search("  ").passages == ()


def test_the_default_model_knows_latin_letters_only(embedder: Embedder) -> None:
    assert embedder.handles("How large is a KV cache?")
    assert embedder.handles("123 + 45")
    assert not embedder.handles("KV 缓存有多大？")
    assert not embedder.handles("Сколько памяти?")
