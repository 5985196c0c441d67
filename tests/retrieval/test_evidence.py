"""The sentences that answer a question, and how sure it is that there is one."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from retrieval.embedder import Embedder
from retrieval.evidence import Asked, coverage, evidence
from retrieval.library import Library
from retrieval.sentence_rows import StoredSentences
from retrieval.sentences import Span
from retrieval.views import Found

TEXTS = {
    "heron.md": "# Herons\n\nThe heron stands in water. Its nest is built of reed. It eats fish.",
    "ferry.md": "# Ferry\n\nThe ferry burns 12 litres an hour. It was built in 1964 at Dr. Ames's "
    "yard. The captain is old.",
    "chi.md": "# 池塘\n\n苍鹭站在浅水里。它在池塘边筑巢。渡船每小时耗油十二升。",
}


@pytest.fixture(scope="module")
def library(
    make_library: Callable[[], Library], tmp_path_factory: pytest.TempPathFactory
) -> Library:
    library = make_library()
    folder = tmp_path_factory.mktemp("in")
    for name, text in TEXTS.items():
        (folder / name).write_text(text, encoding="utf-8")
        assert library.wait(library.add(folder / name).id, 120).state == "ready"
    return library


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("How much does the ferry burn?", "The ferry burns 12 litres an hour."),
        ("Where was the ferry made?", "It was built in 1964 at Dr. Ames's yard."),
        ("What do herons feed on?", "It eats fish."),
        ("苍鹭在哪里筑巢？", "它在池塘边筑巢。"),
    ],
)
def test_the_answering_sentence_is_among_the_first_two_with_its_exact_place(
    library: Library, question: str, answer: str
) -> None:
    found = library.evidence(library.search(question))
    assert answer in [sentence.text for sentence in found.sentences[:2]]
    for sentence in found.sentences:
        page = library.page_text(sentence.passage.document_id, sentence.passage.page)
        assert page[sentence.span.start : sentence.span.end] == sentence.text


def test_no_model_runs_for_the_evidence(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    found = library.search("How much does the ferry burn?")

    def run(*_: object, **__: object) -> None:
        raise AssertionError("a model ran")

    monkeypatch.setattr(Embedder, "_encode", run)
    assert library.evidence(found).sentences


def test_a_question_that_the_documents_answer_opens_the_gate_wider(library: Library) -> None:
    def gate(question: str) -> float:
        return library.evidence(library.search(question)).gate

    answerable = [
        gate("How much does the ferry burn an hour?"),
        gate("What is the heron's nest built of?"),
    ]
    unanswerable = [
        gate("Who won the chess tournament in Vienna?"),
        gate("How tall is the lighthouse?"),
    ]
    assert min(answerable) > 1.5 * max(unanswerable)


def test_a_question_in_an_unknown_script_is_judged_by_words_alone(library: Library) -> None:
    asked = library.evidence(library.search("渡船每小时耗油多少？"))
    assert not asked.by_meaning
    assert asked.sentences[0].text == "渡船每小时耗油十二升。"
    assert {sentence.cosine for sentence in asked.sentences} == {None}
    assert asked.gate > library.evidence(library.search("谁写了这本书？")).gate


def test_nothing_found_is_no_evidence(library: Library) -> None:
    nothing = library.evidence(library.search("heron", owner="nobody"))
    assert (nothing.sentences, nothing.gate) == ((), 0.0)


def passage(id: int, start: int, end: int) -> Found:
    return Found(id, "d", "t", "n", 1, start, end, "", "", 1.0, 1, 1)


def test_a_sentence_of_two_passages_comes_once_and_whole() -> None:
    vector = np.array([1.0, 0.0], dtype=np.float32)
    asked = Asked("heron pond", {"heron": 2.0, "pond": 1.0}, vector, "model")
    across = StoredSentences(
        (Span(5, 25),), ("The heron in the pond",), np.array([[0.6, 0.8]], np.float32)
    )
    found = evidence(asked, [passage(1, 0, 15), passage(2, 15, 30)], {1: across, 2: across})
    (sentence,) = found.sentences
    assert sentence.passage.passage_id == 1
    assert sentence.span == (5, 25)
    assert sentence.score == pytest.approx(1.0 + 0.6)
    assert found.gate == sentence.score


def test_a_sentence_gets_half_of_what_the_words_before_it_cover() -> None:
    asked = Asked("heron nest", {"heron": 2.0, "nest": 1.0, "pond": 1.0}, None, "model")
    stored = StoredSentences(
        (Span(0, 3), Span(4, 10), Span(11, 20)), ("A heron.", "A nest.", "Is it a nest?"), None
    )
    heading = replace(passage(1, 0, 20), heading="# Ponds")
    found = evidence(asked, [heading], {1: stored})
    covered = {sentence.text: sentence.coverage for sentence in found.sentences}
    assert covered == {"A heron.": (2 / 4 + 3 / 4) / 2, "A nest.": (1 / 4 + 4 / 4) / 2}


def test_rare_terms_count_more_and_a_question_without_terms_is_not_covered() -> None:
    weights = {"heron": 3.0, "pond": 1.0}
    assert coverage(weights, {"heron", "stand"}) == 0.75
    assert coverage(weights, {"pond"}) == 0.25
    assert coverage({}, {"pond"}) == 0.0
