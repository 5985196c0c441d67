from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from retrieval import store
from retrieval.database import Database
from retrieval.fts5 import Fts5Index, fts5_query
from retrieval.lexical import LexicalHit, Terms, indexed, query_terms, terms, words
from retrieval.owners import SHARED
from tests.retrieval.make_files import make_database

index = Fts5Index()


def fill(database: Database, texts: list[str], owner: str = "local", state: str = "ready") -> str:
    """One document with a passage for each text, numbered in order."""
    with database.session() as session:
        document = store.new_document(owner, "a.txt", "txt", owner + state, 1)
        document.state = state
        session.add(document)
        session.flush()
        rows = [
            {
                "document_id": document.id,
                "page": 1,
                "char_start": 0,
                "char_end": len(text),
                "text": text,
                "heading": "",
            }
            for text in texts
        ]
        store.insert_rows(session, store.Passage, rows)
        ids = store.passage_ids(session, document.id)
        index.add(session, owner, zip(ids, map(indexed, texts), strict=True))
        return document.id


def find(database: Database, question: str, owner: str = "local", **more: list[str]) -> list[str]:
    with database.reading() as session:
        wanted = index.terms(session, owner, query_terms(question), more.get("carried", []))
        hits = index.search(session, wanted, owner, more.get("documents"), 10)
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        return [session.get_one(store.Passage, hit.id).text for hit in hits]


def test_cjk_runs_become_pairs_and_other_words_stay_whole() -> None:
    assert words("KV缓存占用 2GB") == ["kv", "缓存", "存占", "占用", "2gb"]


def test_full_width_forms_case_and_thousands_separators_are_folded() -> None:
    assert words("ＡＢＣ Größe 1,024 tokens") == ["abc", "grösse", "1024", "tokens"]


def test_stop_words_and_particles_are_left_out_of_a_question() -> None:
    assert query_terms("What is the size of a cache?") == ["size", "cach"]
    assert query_terms("什么是键值缓存？") == ["键值", "值缓", "缓存"]


def test_a_question_of_stop_words_alone_is_still_a_question() -> None:
    assert query_terms("who are you?") == ["who", "ar", "you"]


def test_a_chinese_word_is_found_inside_a_longer_run(database: Database) -> None:
    fill(database, ["模型把每一层的键值缓存保存在显存里", "鸟类在池塘边筑巢"])
    assert find(database, "什么是缓存？") == ["模型把每一层的键值缓存保存在显存里"]


def test_a_single_chinese_character_finds_the_words_that_begin_with_it(
    database: Database,
) -> None:
    fill(database, ["鸟类在池塘边筑巢"])
    assert find(database, "池") == ["鸟类在池塘边筑巢"]


def test_japanese_and_korean_are_found(database: Database) -> None:
    fill(database, ["東京は日本の首都です", "서울은 한국의 수도입니다"])
    assert find(database, "日本の首都") == ["東京は日本の首都です"]
    assert find(database, "한국의 수도") == ["서울은 한국의 수도입니다"]


def test_accents_and_endings_make_no_difference() -> None:
    assert terms("Cafés CAFÉ cafe naïvely") == ["cafe", "cafe", "cafe", "naiv"]
    assert terms("Ёж 缓存 が") == [*terms("еж"), "缓存", "が"]


def test_a_term_that_few_passages_have_tells_more(database: Database) -> None:
    fill(database, ["a heron", "a grey heron", "a bittern"])
    with database.reading() as session:
        found = index.terms(session, "local", ["heron", "bittern", "stork"], ["grei", "heron"])
    assert found.passages == 3
    assert found.having == {"heron": 2, "bittern": 1, "stork": 0, "grei": 1}
    assert 0 < found.weight("heron") < found.weight("bittern") < found.weight("stork")
    assert found.weight("grei") == found.weight("bittern") / 2


def test_terms_of_earlier_questions_count_half(database: Database) -> None:
    fill(database, ["heron", "bittern", "stork", "crane"])
    assert find(database, "bittern", carried=["heron"]) == ["bittern", "heron"]
    with database.reading() as session:
        wanted = index.terms(session, "local", ["bittern"], ["heron"])
        own, carried = index.search(session, wanted, "local", None, 10)
    assert carried.score == pytest.approx(own.score / 2)


def test_terms_that_nearly_all_of_many_passages_have_are_not_ranked_by() -> None:
    having = {"the": 880_000, "heron": 20, "pond": 39_000, "gone": 0}
    assert Terms(900_000, having, frozenset(having)).ranked_by == ["heron", "pond"]
    assert Terms(900_000, {"the": 880_000}, frozenset()).ranked_by == ["the"]


def test_where_time_is_short_the_questions_own_terms_go_before_those_carried_over() -> None:
    having = {"heron": 15_000, "pond": 12_000, "crane": 5_000}
    assert Terms(900_000, having, frozenset({"heron"})).ranked_by == ["heron", "crane"]


def test_passages_of_others_do_not_push_an_owners_out(database: Database) -> None:
    fill(database, ["heron"] * 60, owner="her")
    fill(database, ["a heron among many other words that make it rank last of all"])
    assert len(find(database, "heron")) == 1


def asked(database: Database, question: str, owner: str) -> tuple[Terms, list[LexicalHit]]:
    """What the owner's question weighs, and what it finds."""
    with database.reading() as session:
        wanted = index.terms(session, owner, query_terms(question), ["water"])
        return wanted, index.search(session, wanted, owner, None, 10)


@pytest.mark.parametrize("shared", [[], ["a heron in shallow water", "a bittern in the reeds"]])
def test_what_another_owner_has_changes_no_weight_no_rank_and_no_score(
    database: Database, shared: list[str]
) -> None:
    fill(database, ["a heron waits", "a stork in the water", "an old pond", "bread"])
    if shared:
        fill(database, shared, owner=SHARED)
    before = asked(database, "heron and stork and bittern?", "local")
    assert before[1]
    fill(database, ["stork", "bittern, and a heron too"] * 40, owner="her")
    assert asked(database, "heron and stork and bittern?", "local") == before


def test_own_and_shared_passages_are_ranked_as_one_collection(
    database: Database, tmp_path: Path
) -> None:
    mine = ["a heron waits", "a stork in water", "an old pond"]
    everyones = ["a bittern waits", "heron after heron", "two old ponds there"]
    in_one = make_database(tmp_path / "in one")
    fill(in_one, mine + everyones)
    fill(database, mine)
    fill(database, everyones, owner=SHARED)
    question = "the old heron and a bittern?"
    weighed, found = asked(database, question, "local")
    weighed_in_one, found_in_one = asked(in_one, question, "local")
    assert weighed == weighed_in_one
    assert weighed.having == {"old": 2, "heron": 2, "bittern": 1, "water": 1}
    assert [hit.id for hit in found] == [hit.id for hit in found_in_one]
    assert [hit.score for hit in found] == pytest.approx([hit.score for hit in found_in_one])
    in_one.close()


def test_an_owners_name_goes_with_the_last_passage(database: Database) -> None:
    fill(database, ["a bittern"], owner="ada")
    id = fill(database, ["a heron"], owner="bob")
    with database.session() as session:
        index.remove(session, "bob", store.passage_ids(session, id))
        index.compact(session, begin=True)
    with database.reading() as session:
        schema = session.scalars(text("SELECT name FROM sqlite_master")).all()
    assert f"passages_fts_{b'ada'.hex()}" in schema
    assert not [name for name in schema if b"bob".hex() in name]


def test_word_forms_are_found(database: Database) -> None:
    fill(database, ["The caches were shared.", "Ponds are deep."])
    assert find(database, "sharing a cache") == ["The caches were shared."]


def test_the_passage_with_the_rarer_word_comes_first(database: Database) -> None:
    fill(database, ["cache cache", "cache quantisation", "cache of pages", "cache of bytes"])
    assert find(database, "cache quantisation")[0] == "cache quantisation"


def test_only_ready_documents_of_the_owner_and_the_chosen_ones_are_found(
    database: Database,
) -> None:
    mine = fill(database, ["mine: heron"])
    fill(database, ["hers: heron"], owner="her")
    fill(database, ["not yet: heron"], state="embedding")
    assert find(database, "heron") == ["mine: heron"]
    assert find(database, "heron", documents=[mine]) == ["mine: heron"]
    assert find(database, "heron", documents=["other"]) == []


def test_removed_passages_leave_no_word_behind(database: Database) -> None:
    id = fill(database, ["a bittern", "a heron"])
    with database.session() as session:
        index.remove(session, "local", store.passage_ids(session, id))
    with database.reading() as session:
        assert index.ids(session) == []
    assert find(database, "bittern") == []


@pytest.mark.parametrize(
    "question",
    ['"', "a OR", "NEAR(x y)", "x*", "words:x", "-x ^y", "(", "'; --", "AND", "\0", "😀"],
)
def test_no_question_is_a_syntax_error(database: Database, question: str) -> None:
    find(database, question)


@given(st.text(max_size=60))
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_text_at_all_is_a_syntax_error(database: Database, question: str) -> None:
    find(database, question)


def test_each_term_may_be_found_alone() -> None:
    wanted = Terms(9, {"heron": 3, "池塘": 2, "池": 4, "gone": 0}, frozenset(["heron"]))
    assert fts5_query(wanted) == '"heron" OR "heron" OR "池塘" OR "池"*'
