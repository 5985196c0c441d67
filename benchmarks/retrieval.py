"""How well search finds what is known to be right, in sets of real questions.

    python -m benchmarks.retrieval --set DIR [--questions N] [--keep DIR] [--json FILE]

A set's texts are indexed as the product indexes documents, and each question is searched by the
product's own search, a follow-up in the light of its conversation: by both sides (`hybrid`), by
words (`lexical`) and by meaning (`dense`), in one run. Two simpler ways to put the same two sides
together are beside them: `fusion` adds up the reciprocal ranks that they give, and `joined` does so
for the last two questions of a conversation as one text. The layouts: benchmarks/eval_sets.py.

`recall`, `precision` and `iou` are of the first five passages. A set with gold ranges in files is
measured by character, by Chroma's definitions (what passages have in common counts again for
each); any other by its texts. `ndcg_at_10` (binary gains) and `recall_at_5` are over texts.
"""

import argparse
import math
import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from statistics import mean

from benchmarks.eval_library import library_of, text_id
from benchmarks.eval_sets import EvalSet, Question, Range, read_sets
from benchmarks.report import Report
from host.models import resolve
from host.settings import load
from retrieval.embedder import Embedder
from retrieval.library import Library
from retrieval.search import EARLIER, Scope, Side, search
from retrieval.views import Found

SHOWN = 5
RANKED = 10
# A text is cut into passages; the first ten texts are among the first so many of them.
PASSAGES = 60
BLOCK = 32
# Cormack, Clarke and Buettcher, "Reciprocal rank fusion outperforms Condorcet and individual rank
# learning methods" (SIGIR 2009).
RANK_CONSTANT = 60


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--set", type=Path, required=True, help="a set, or a folder of sets")
    parser.add_argument("--questions", type=int, help="at most so many of each case")
    parser.add_argument("--keep", type=Path, help="folder of the indexes, for the next run")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    settings = load({})
    embedder = Embedder(resolve(settings.embedder, settings.models_dir), settings.device)
    report = Report()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        for set in read_sets(options.set):
            with library_of(set, folder / set.library.replace("/", "-"), embedder) as library:
                measure(set, library, options.questions, report)
    report.show("Retrieval")
    report.write(options.json)


def measure(set: EvalSet, library: Library, limit: int | None, report: Report) -> None:
    """Add a row for each system, and by how much `hybrid` is ahead of the others."""
    asked = [question for question in set.questions if question.relevant]
    if limit is not None and limit < len(asked):
        asked = [asked[i * len(asked) // limit] for i in range(limit)]
    scores: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    joins = any(question.earlier for question in asked)
    for number, question in enumerate(asked):
        if number % BLOCK == 0:  # together it takes a fraction of the time, and each is remembered
            block = asked[number : number + BLOCK]
            library.embedder.encode_questions([text for one in block for text in texts(one)])
        for name, found in ranked(set, library, question, joins).items():
            for field, value in score(set, question, found).items():
                scores[name][field].append(value)
    means = {
        name: {field: mean(values) for field, values in fields.items()}
        for name, fields in scores.items()
    }
    for name, fields in means.items():
        report.add(set.name, name, questions=len(asked), **fields)
    main_field = "recall" if set.files else "ndcg_at_10"
    reached = {name: fields[main_field] for name, fields in means.items()}
    hybrid = reached.pop("hybrid")
    reached["better_side"] = max(reached.pop("lexical"), reached.pop("dense"))
    for name, other in reached.items():
        report.ratios[f"{set.name}_{main_field}_hybrid_minus_{name}"] = hybrid - other


def texts(question: Question) -> list[str]:
    """What is embedded for a question: itself, those before it, and it joined to the last one."""
    earlier = [turn.question for turn in question.earlier]
    return [question.text, joined(question), *earlier[-EARLIER:]]


def joined(question: Question) -> str:
    return "\n".join([*(turn.question for turn in question.earlier[-1:]), question.text])


def ranked(
    set: EvalSet, library: Library, question: Question, joins: bool
) -> dict[str, Sequence[Found]]:
    """What each system finds, best first."""
    earlier = [turn.question for turn in question.earlier]

    def find(text: str, earlier: Sequence[str], side: Side) -> Sequence[Found]:
        return search(
            library._database,
            library._indexes,
            text,
            earlier=earlier,
            scope=Scope("local", None),
            limit=PASSAGES,
            side=side,
        ).passages

    lexical = find(question.text, earlier, "words")
    dense = find(question.text, earlier, "meaning")
    systems = {
        "hybrid": find(question.text, earlier, "both"),
        "lexical": lexical,
        "dense": dense,
        "fusion": by_reciprocal_rank(set, lexical, dense),
    }
    if joins:
        text = joined(question)
        systems["joined"] = by_reciprocal_rank(
            set, find(text, (), "words"), find(text, (), "meaning")
        )
    return systems


def by_reciprocal_rank(set: EvalSet, *sides: Sequence[Found]) -> list[Found]:
    """What the sides found, a text (or, in a set of files, a passage) once."""
    first: dict[str | int, Found] = {}
    scores: dict[str | int, float] = defaultdict(float)
    for side in sides:
        ids = [found.passage_id if set.files else text_id(set, found) for found in side]
        first = dict(zip(reversed(ids), reversed(side), strict=True)) | first
        for rank, id in enumerate(dict.fromkeys(ids), 1):
            scores[id] += 1 / (RANK_CONSTANT + rank)
    return [first[id] for id in sorted(scores, key=lambda id: -scores[id])]


def score(set: EvalSet, question: Question, found: Sequence[Found]) -> dict[str, float]:
    if set.files:
        shown = [Range(text_id(set, p), p.char_start, p.char_end) for p in found[:SHOWN]]
        return overlap(question.ranges, shown)
    texts = list(dict.fromkeys(text_id(set, passage) for passage in found))
    hits = len(question.relevant.intersection(texts[:SHOWN]))
    recall = hits / len(question.relevant)
    return {
        "recall": recall,
        "precision": hits / SHOWN,
        "iou": hits / (SHOWN + len(question.relevant) - hits),
        "ndcg_at_10": ndcg(texts[:RANKED], question.relevant),
        "recall_at_5": recall,
    }


def overlap(gold: Iterable[Range], shown: Sequence[Range]) -> dict[str, float]:
    """Recall, precision and intersection over union, by character (Smith and Troynikov,
    "Evaluating chunking strategies for retrieval", Chroma 2024)."""
    gold_places = {(r.text_id, place) for r in gold for place in range(r.start, r.end)}
    shown_places = {(r.text_id, place) for r in shown for place in range(r.start, r.end)}
    hit = len(gold_places & shown_places)
    shown_length = sum(r.end - r.start for r in shown)
    return {
        "recall": hit / len(gold_places),
        "precision": hit / shown_length if shown_length else 0.0,
        "iou": hit / (shown_length + len(gold_places) - hit),
    }


def ndcg(ranked: Sequence[str], relevant: Collection[str]) -> float:
    gained = sum(1 / math.log2(rank + 1) for rank, id in enumerate(ranked, 1) if id in relevant)
    possible = range(1, min(len(relevant), RANKED) + 1)
    return gained / sum(1 / math.log2(rank + 1) for rank in possible)


if __name__ == "__main__":
    main()
