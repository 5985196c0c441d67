"""The benchmark of whole turns, on a set written for the test: the real product, few questions."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import answers
from benchmarks.eval_sets import EvalSet, Question, Range, Text, read_sets
from benchmarks.report import Report
from chat.options import AskOptions
from engine import Engine, EngineConfig
from retrieval.embedder import Embedder

FACTS = [
    ("The old ferry burns twelve litres of diesel an hour. Two brothers built it in 1964.",
     "How much diesel does the old ferry burn?", "twelve litres"),
    ("The tower clock was made in Bern. Its longest hand weighs nine kilograms.",
     "How heavy is the longest hand of the tower clock?", "nine kilograms"),
    ("Reed for the thatched roofs is cut in January. A roof of it lasts forty years.",
     "How long does a thatched roof of reed last?", "forty years"),
    ("The bakery opens at five in the morning. Its rye bread rises for eighteen hours.",
     "How long does the rye bread of the bakery rise?", "eighteen hours"),
    ("The lighthouse keeper writes down the wind each evening. His lamp shines eleven miles far.",
     "How far does the lamp of the lighthouse shine?", "eleven miles"),
    ("Salt was dried in flat pans behind the dyke. The last pan was closed in 1911.",
     "When was the last salt pan closed?", "1911"),
]  # fmt: skip


@pytest.fixture(scope="module")
def engine(chat_model: str) -> Iterator[Engine]:
    engine = Engine(EngineConfig(chat_model, device="cpu", kv_memory="64MiB"))
    yield engine
    engine.check()
    engine.shutdown()


@pytest.fixture(scope="module")
def embedder(embedder_folder: str) -> Embedder:
    return Embedder(embedder_folder, "cpu")


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> EvalSet:
    folder = tmp_path_factory.mktemp("facts")
    paragraphs = [
        {
            "context": text,
            "qas": [
                {
                    "id": str(number),
                    "question": question,
                    "answers": [{"text": right, "answer_start": text.index(right)}],
                }
            ],
        }
        for number, (text, question, right) in enumerate(FACTS)
    ]
    data = {"data": [{"title": "", "paragraphs": paragraphs}]}
    (folder / "facts.json").write_text(json.dumps(data), encoding="utf-8")
    (set,) = read_sets(folder)
    return set


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the libraries, which are made once."""
    return tmp_path_factory.mktemp("libraries")


def test_quotations_and_refusals_of_a_set_are_measured_without_the_model(
    facts: EvalSet, folder: Path, embedder: Embedder, engine: Engine
) -> None:
    report = Report()
    answers.measure(facts, folder, embedder, engine, AskOptions(answer="evidence"), None, report)
    whole, half = report.rows
    assert whole["questions"] == half["questions"] == 6
    assert whole["evidence_contains_answer"] == 1.0
    assert whole["evidence_s"] > 0
    assert whole["answer_f1"] is whole["supported_fraction"] is None
    assert half["unanswerable"] == 3
    assert half["refusal_auc"] > 0.9
    assert half["refusal_precision"] == 1.0
    assert half["refusal_recall"] > 0.6


def test_a_generated_answer_has_its_sentences_and_citations_measured(
    facts: EvalSet, folder: Path, embedder: Embedder, engine: Engine
) -> None:
    how = AskOptions(max_tokens=16, read=1)
    with answers.conversations_on(
        facts, folder / facts.library.replace("/", "-"), embedder, engine
    ) as (library, talks):
        asked = [answers.ask(talks, facts.questions[0], how)]
        row = answers.whole(facts, library, asked)
        assert talks.sessions() == []
    assert asked[0].turn.sentences
    assert 0.0 <= row["supported_fraction"] <= 1.0
    assert row["answer_f1"] > 0.0


def test_what_a_set_calls_unanswerable_is_compared_with_what_it_calls_answerable(
    facts: EvalSet, folder: Path, embedder: Embedder, engine: Engine
) -> None:
    lacking = Question("x", "Who won the chess tournament in Vienna?", frozenset())
    unclear = Question("y", "How high is it?", frozenset())
    told = replace(
        facts,
        questions=(
            *(replace(question, answerable="ANSWERABLE") for question in facts.questions),
            replace(lacking, answerable="UNANSWERABLE"),
            replace(unclear, answerable="UNDERSPECIFIED"),
        ),
    )
    report = Report()
    answers.measure(told, folder, embedder, engine, AskOptions(answer="evidence"), None, report)
    (row,) = report.rows
    assert (row["answerable"], row["unanswerable"]) == (6, 1)
    assert row["refusal_auc"] == row["refusal_precision"] == row["refusal_recall"] == 1.0


def test_a_citation_is_right_if_it_holds_the_whole_gold_range(
    facts: EvalSet, folder: Path, embedder: Embedder, engine: Engine
) -> None:
    question = facts.questions[0]
    with answers.conversations_on(
        facts, folder / facts.library.replace("/", "-"), embedder, engine
    ) as (library, talks):
        turn = answers.finished(talks, question.text, None, AskOptions(answer="evidence"))
        quote = next(one for one in turn.evidence if "twelve litres" in one.support_text)
        assert answers.is_gold(facts, library, question, quote)
        start, end = quote.support_start, quote.support_end
        assert start is not None
        assert end is not None
        cut = replace(quote, support_end=quote.char_start + FACTS[0][0].index("litres"))
        assert not answers.is_gold(facts, library, question, cut)
        elsewhere = replace(question, ranges=(Range("1", start, end),))
        assert not answers.is_gold(facts, library, elsewhere, quote)


def test_half_of_a_set_says_which_of_its_questions_lost_their_text() -> None:
    texts = tuple(Text(str(number), "", "text") for number in range(4))
    questions = tuple(Question(text.id, "?", frozenset({text.id})) for text in texts)
    half = answers.without_every_second(EvalSet("s", "s", texts, questions))
    assert [text.id for text in half.texts] == ["0", "2"]
    kinds = ["ANSWERABLE", "UNANSWERABLE"] * 2
    assert [question.answerable for question in half.questions] == kinds


def test_the_area_counts_pairs_in_the_right_order_and_half_of_the_ties() -> None:
    assert answers.auc([2.0, 3.0], [1.0, 2.0]) == 3.5 / 4
    assert answers.auc([], [1.0]) is None


def test_an_answer_is_compared_by_words_with_the_right_answer_that_fits_best() -> None:
    question = Question("q", "?", frozenset(), answers=("twelve litres", "blue"))
    assert answers.f1("It burns twelve litres.", question) == 2 * 2 / (3 + 2)
    assert answers.f1("It is green.", question) == 0.0
    assert answers.holds("It burns  Twelve\nlitres an hour.", question.answers)
    assert not answers.holds("It burns ten litres.", question.answers)
