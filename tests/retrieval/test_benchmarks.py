"""The benchmarks of search and of indexing, on sets and files written for the test."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import ingest, retrieval
from benchmarks.eval_library import library_of
from benchmarks.eval_sets import Earlier, Range, read_sets
from benchmarks.report import Report
from retrieval.embedder import Embedder

POND = "The northern pond is three metres deep. Herons stand in its reed all year."
FERRY = "The ferry burns twelve litres an hour. It was built in 1964 by two brothers."


def rows(path: Path, *values: dict[str, Any]) -> None:
    text = "".join(json.dumps(value) + "\n" for value in values)
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


@pytest.fixture
def sets(tmp_path: Path) -> Path:
    """One small set in each layout."""
    chunking = tmp_path / "sets/chunking"
    (chunking / "corpora").mkdir(parents=True)
    (chunking / "corpora/ponds.md").write_text(f"# Ponds\n\n{POND}\n")
    start = len("# Ponds\n\n")
    gold = {"content": POND[:38], "start_index": start, "end_index": start + 38}
    rows(
        chunking / "questions.jsonl",
        {"corpus": "ponds", "question": "How deep is the pond?", "references": [gold]},
    )
    squad = tmp_path / "sets/squad"
    squad.mkdir()
    paragraphs = [
        {
            "context": context,
            "qas": [{"id": str(n), "question": question, "answers": [answer]}],
        }
        for n, (context, question, answer) in enumerate(
            [
                (POND, "How deep is the pond?", {"text": "three metres", "answer_start": 21}),
                (FERRY, "When was the ferry built?", {"text": "1964", "answer_start": 55}),
            ]
        )
    ]
    rows(squad / "squad.en.json.gz", {"data": [{"title": "t", "paragraphs": paragraphs}]})
    talk = tmp_path / "sets/talk"
    talk.mkdir()
    corpus = [
        {"_id": "p", "title": "Ponds", "text": POND},
        {"_id": "f", "title": "", "text": FERRY},
    ]
    rows(talk / "corpus.jsonl.gz", *corpus)
    turns = [("user", "Is there a ferry?"), ("agent", "Yes."), ("user", "When was it built?")]
    rows(
        talk / "un_queries.jsonl",
        {
            "_id": "q",
            "answerability": "ANSWERABLE",
            "turns": [{"speaker": who, "text": text} for who, text in turns],
        },
    )
    (talk / "un_qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq\tf\t1\nq\tp\t0\n")
    return tmp_path / "sets"


def test_every_layout_is_read(sets: Path) -> None:
    chunking, squad, talk = read_sets(sets)
    assert (chunking.name, squad.name, talk.name) == ("chunking", "squad/en", "talk/un")
    (range_,) = chunking.questions[0].ranges
    assert chunking.texts[0].text[range_.start : range_.end] == POND[:38]
    assert [text.text for text in squad.texts] == [POND, FERRY]
    assert squad.questions[1].answers == ("1964",)
    for question in squad.questions:
        (gold,) = question.ranges
        assert squad.texts[int(gold.text_id)].text[gold.start : gold.end] in question.answers
    (question,) = talk.questions
    assert question.text == "When was it built?"
    assert question.earlier == (Earlier("Is there a ferry?", "Yes."),)
    assert question.relevant == {"f"}


def test_a_folder_without_a_set_is_refused_with_the_layouts_that_are_known(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"corpus\.jsonl"):
        read_sets(tmp_path)


def test_each_case_is_measured_by_both_sides_by_each_and_by_simpler_ways_to_put_them_together(
    sets: Path, tmp_path: Path, embedder: Embedder
) -> None:
    report = Report()
    for set in read_sets(sets):
        with library_of(set, tmp_path / set.library.replace("/", "-"), embedder) as library:
            retrieval.measure(set, library, None, report)
    systems = [(row["case"], row["system"]) for row in report.rows]
    names = ("hybrid", "lexical", "dense", "fusion")
    alone = [(case, name) for case in ("chunking", "squad/en") for name in names]
    assert systems == [*alone, *(("talk/un", name) for name in (*names, "joined"))]
    assert report.ratios["talk/un_ndcg_at_10_hybrid_minus_joined"] == 0.0
    hybrid = {row["case"]: row for row in report.rows if row["system"] == "hybrid"}
    assert hybrid["chunking"]["recall"] == 1.0
    assert 0.3 < hybrid["chunking"]["precision"] < 1.0
    assert hybrid["squad/en"]["ndcg_at_10"] == hybrid["talk/un"]["recall_at_5"] == 1.0


def test_fusion_ranks_what_both_sides_have_above_what_one_has(
    sets: Path, tmp_path: Path, embedder: Embedder
) -> None:
    squad = next(set for set in read_sets(sets) if set.name == "squad/en")
    with library_of(squad, tmp_path / "squad", embedder) as library:
        both = library.search("When was the ferry built?", limit=2).passages
    ferry, pond = sorted(both, key=lambda found: found.page, reverse=True)
    assert retrieval.by_reciprocal_rank(squad, [pond, ferry], [ferry]) == [ferry, pond]
    assert retrieval.by_reciprocal_rank(squad, [pond, ferry], [pond, pond, ferry]) == [pond, ferry]


def test_what_passages_have_in_common_counts_once_as_found_and_twice_as_shown() -> None:
    shown = [Range("a", 0, 40), Range("a", 20, 60), Range("b", 0, 20)]
    assert retrieval.overlap([Range("a", 30, 70)], shown) == {
        "recall": 30 / 40,
        "precision": 30 / 100,
        "iou": 30 / 110,
    }


def test_ndcg_is_one_for_the_best_order_and_less_for_a_later_place() -> None:
    assert retrieval.ndcg(["a", "b", "x"], {"a", "b"}) == 1.0
    assert retrieval.ndcg(["x", "a"], {"a"}) == pytest.approx(1 / 1.5849625)
    assert retrieval.ndcg(["x"], {"a"}) == 0.0


def test_indexing_is_measured_stage_by_stage(
    tmp_path: Path, embedder_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGETURN_EMBEDDER", embedder_folder)
    monkeypatch.setattr(ingest.indexing, "parse", ingest.indexing.parse)
    ingest.write_pdf(tmp_path / "a.pdf", ingest.pages_of_prose(3))
    report = Report()
    ingest.measure([tmp_path / "a.pdf"], tmp_path / "data", report)
    seconds = {row["system"]: row["seconds"] for row in report.rows}
    assert set(seconds) == {"parsing", "embedding", "storing", "all"}
    assert 0 < seconds["embedding"] < seconds["all"]
    assert sum(seconds.values()) - seconds["all"] <= seconds["all"]
    assert {row["pages"] for row in report.rows} == {3}
    assert 0 < report.ratios["outside_embedder_fraction"] < 1
    assert report.ratios["peak_bytes"] > 10**8
