"""Reads sets of questions with known answers, each in the layout in which it is published.

corpora/*.md + questions.jsonl              gold ranges in the corpus files (Chroma's chunking set)
*.json.gz or *.json, {"data": [...]}        SQuAD: paragraphs, questions, answers; a file a case
corpus.jsonl.gz + queries.jsonl + qrels.tsv  BEIR
corpus.jsonl.gz + NAME_queries.jsonl + NAME_qrels.tsv   MTRAG: conversations; a NAME a case
"""

import csv
import gzip
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple


class Text(NamedTuple):
    """A document, or one paragraph of a library of paragraphs."""

    id: str
    title: str
    text: str


class Range(NamedTuple):
    """A gold stretch `text[start:end]` of the text with this id."""

    text_id: str
    start: int
    end: int


class Earlier(NamedTuple):
    """A turn before the question; `answer` is "" where the set does not hold it."""

    question: str
    answer: str


@dataclass(frozen=True)
class Question:
    """`relevant` are ids of texts, `ranges` gold ranges, `answers` the right answers' words.

    `answerable` is what the set says of it, "" where it says nothing.
    """

    id: str
    text: str
    relevant: frozenset[str]
    ranges: tuple[Range, ...] = ()
    answers: tuple[str, ...] = ()
    earlier: tuple[Earlier, ...] = ()
    answerable: str = ""


@dataclass(frozen=True)
class EvalSet:
    """Questions to one library of texts; sets with the same texts have the same `library`.

    `files` says that each text is a Markdown file of its own rather than a paragraph.
    """

    name: str
    library: str
    texts: tuple[Text, ...]
    questions: tuple[Question, ...]
    files: bool = False


def read_sets(folder: Path) -> list[EvalSet]:
    """The sets in a folder or, where there is none, in the folders in it. Raises ValueError."""
    found = list(_read(folder))
    if not found:
        found = [
            set for inner in sorted(folder.iterdir()) if inner.is_dir() for set in _read(inner)
        ]
    if not found:
        raise ValueError(f"{folder} holds no set in a layout that is known here:{__doc__}")
    return found


def _read(folder: Path) -> Iterator[EvalSet]:
    if (folder / "corpora").is_dir():
        yield _chunking(folder)
    for path in sorted([*folder.glob("*.json.gz"), *folder.glob("*.json")]):
        data = json.loads(_text(path))
        if isinstance(data, dict) and "data" in data:
            yield _squad(folder, path, data)
    corpus = _existing(folder, "corpus.jsonl")
    if corpus is not None:
        texts = tuple(
            Text(row["_id"], row.get("title") or "", row["text"]) for row in _rows(corpus)
        )
        for queries in sorted([*folder.glob("*queries.jsonl"), *folder.glob("*queries.jsonl.gz")]):
            yield _judged(folder, queries, texts)


def _chunking(folder: Path) -> EvalSet:
    texts = tuple(
        Text(path.stem, path.stem, path.read_text(encoding="utf-8"))
        for path in sorted((folder / "corpora").glob("*.md"))
    )
    questions = []
    for number, row in enumerate(_rows(folder / "questions.jsonl")):
        gold = [Range(row["corpus"], r["start_index"], r["end_index"]) for r in row["references"]]
        questions.append(
            Question(str(number), row["question"], frozenset({row["corpus"]}), tuple(gold))
        )
    return EvalSet(folder.name, folder.name, texts, tuple(questions), files=True)


def _squad(folder: Path, path: Path, data: Mapping[str, Any]) -> EvalSet:
    texts: list[Text] = []
    questions: list[Question] = []
    for article in data["data"]:
        for paragraph in article["paragraphs"]:
            id = f"{len(texts)}"
            # The title is no part of what is read: half of the questions repeat it.
            texts.append(Text(id, "", paragraph["context"]))
            for qa in paragraph["qas"]:
                ranges = tuple(
                    Range(id, a["answer_start"], a["answer_start"] + len(a["text"]))
                    for a in qa["answers"]
                )
                answers = tuple(dict.fromkeys(a["text"] for a in qa["answers"]))
                questions.append(
                    Question(str(qa["id"]), qa["question"], frozenset({id}), ranges, answers)
                )
    part = path.name.removesuffix(".gz").removesuffix(".json").removeprefix(f"{folder.name}.")
    name = f"{folder.name}/{part}"
    return EvalSet(name, name, tuple(texts), tuple(questions))


def _judged(folder: Path, queries: Path, texts: tuple[Text, ...]) -> EvalSet:
    part = queries.name.removesuffix(".gz").removesuffix("queries.jsonl").rstrip("_")
    qrels = folder / (f"{part}_qrels.tsv" if part else "qrels.tsv")
    relevant: dict[str, set[str]] = defaultdict(set)
    with qrels.open(encoding="utf-8", newline="") as file:
        for query, text, score in list(csv.reader(file, delimiter="\t"))[1:]:
            if int(score) > 0:
                relevant[query].add(text)
    questions = tuple(
        Question(
            row["_id"],
            text,
            frozenset(relevant[row["_id"]]),
            earlier=earlier,
            answerable=row.get("answerability", ""),
            answers=tuple(filter(None, [row.get("reference_answer", "").strip()])),
        )
        for row in _rows(queries)
        for earlier, text in [_conversation(row)]
    )
    name = f"{folder.name}/{part}" if part else folder.name
    return EvalSet(name, folder.name, texts, questions)


def _conversation(row: Mapping[str, Any]) -> tuple[tuple[Earlier, ...], str]:
    """The turns before the question, and the question."""
    if "turns" in row:
        earlier: list[Earlier] = []
        for turn in row["turns"][:-1]:
            if turn["speaker"] == "user":
                earlier.append(Earlier(turn["text"].strip(), ""))
            elif earlier:
                earlier[-1] = earlier[-1]._replace(answer=turn["text"].strip())
        return tuple(earlier), row["turns"][-1]["text"].strip()
    if "questions" in row:
        asked = [part.strip() for part in row["questions"].split("|user|:") if part.strip()]
        return tuple(Earlier(question, "") for question in asked[:-1]), asked[-1]
    return (), row["text"].strip()


def _existing(folder: Path, name: str) -> Path | None:
    for path in (folder / f"{name}.gz", folder / name):
        if path.is_file():
            return path
    return None


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in _text(path).splitlines() if line.strip())


def _text(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
