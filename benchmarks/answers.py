"""What whole turns are worth: evidence, refusal, support, on sets of real questions.

    python -m benchmarks.answers --set DIR [--questions N] [--answer MODE] [--keep DIR]
                                 [--json FILE]

Each question is a turn of the product on the set's texts as one library, a follow-up in its
conversation, whose earlier turns are asked without the model. Without the model at all
(`--answer evidence`) thousands of questions take minutes. The layouts: benchmarks/eval_sets.py.

- `whole`: every text is there. `evidence_contains_answer`: one of the quoted sentences holds a
  right answer, each quoted from where it says (checked); `citation_precision`: of the ranges that
  the answer cites, those that overlap a gold range or, where a set has none, are of a gold text;
  `supported_fraction`: of the model's sentences; `answer_f1`: by words, with the best right answer;
  `evidence_s`: median.
- `gold removed`: every second text is left out of the library. What it would have answered must be
  refused: `refusal_auc` of the gate between those questions and the others; `refusal_precision`
  and `refusal_recall` at the product's own line. Where a set says itself which questions are
  unanswerable, they are compared with the answerable ones on the whole library instead.
"""

import argparse
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from statistics import mean, median
from typing import Any

from benchmarks.eval_library import library_of, page_text
from benchmarks.eval_sets import EvalSet, Question, read_sets
from benchmarks.report import Report
from chat.citations import without_markers
from chat.conversation import Conversations
from chat.events import Finished
from chat.options import AskOptions
from chat.views import CitationView, TurnView
from chat.words import content_words
from engine import Engine, EngineConfig
from host.models import resolve
from host.settings import load
from retrieval.embedder import Embedder
from retrieval.library import Library


@dataclass(frozen=True)
class Asked:
    question: Question
    turn: TurnView


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--set", type=Path, required=True, help="a set, or a folder of sets")
    parser.add_argument("--questions", type=int, help="at most so many of each case")
    parser.add_argument("--answer", default="auto", help="auto, evidence or generate")
    parser.add_argument("--keep", type=Path, help="folder of the indexes, for the next run")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    settings, report = load({}), Report()
    embedder = Embedder(resolve(settings.embedder, settings.models_dir), settings.device)
    engine = Engine(EngineConfig(resolve(settings.model, settings.models_dir)))
    how = AskOptions(answer=options.answer)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        for set in read_sets(options.set):
            measure(set, folder, embedder, engine, how, options.questions, report)
    engine.shutdown()
    report.show("Answers")
    report.write(options.json)


def measure(
    set: EvalSet,
    folder: Path,
    embedder: Embedder,
    engine: Engine,
    how: AskOptions,
    limit: int | None,
    report: Report,
) -> None:
    """Add a row for the whole library and, unless the set says what is unanswerable, for half."""
    name = set.library.replace("/", "-")
    told = any(question.answerable for question in set.questions)
    with conversations_on(set, folder / name, embedder, engine) as (library, talks):
        asked = [ask(talks, question, how) for question in some(set, limit)]
        row = whole(set, library, asked)
    if told:
        row |= refusal(asked, told=True)
    report.add(f"{set.name}, whole", how.answer, **row)
    if set.files or told:
        return
    half = without_every_second(set)
    with conversations_on(half, folder / f"{name}-half", embedder, engine) as (_, talks):
        asked = [ask(talks, question, how) for question in some(half, limit)]
    report.add(f"{set.name}, gold removed", how.answer, **refusal(asked, told=False))


@contextmanager
def conversations_on(
    set: EvalSet, folder: Path, embedder: Embedder, engine: Engine
) -> Iterator[tuple[Library, Conversations]]:
    with library_of(set, folder, embedder) as library:
        talks = Conversations(library._database, library, engine)
        try:
            yield library, talks
        finally:
            talks.close()


def some(set: EvalSet, limit: int | None) -> Sequence[Question]:
    """At most so many questions, spread over all of the set."""
    asked = set.questions
    if limit is None or limit >= len(asked):
        return asked
    return [asked[i * len(asked) // limit] for i in range(limit)]


def without_every_second(set: EvalSet) -> EvalSet:
    """The set with half of its texts; its questions say whether they are still answerable."""
    kept = set.texts[::2]
    ids = {text.id for text in kept}
    questions = [
        replace(question, answerable="ANSWERABLE" if question.relevant & ids else "UNANSWERABLE")
        for question in set.questions
    ]
    return replace(set, library=f"{set.library}-half", texts=kept, questions=tuple(questions))


def ask(talks: Conversations, question: Question, how: AskOptions) -> Asked:
    session = None
    for earlier in question.earlier:
        quick = replace(how, answer="evidence")
        session = finished(talks, earlier.question, session, quick).session
    turn = finished(talks, question.text, session, how)
    talks.delete(turn.session)
    return Asked(question, turn)


def finished(talks: Conversations, text: str, session: str | None, how: AskOptions) -> TurnView:
    turns = [
        event.turn
        for event in talks.ask(text, session_id=session, options=how)
        if isinstance(event, Finished)
    ]
    return turns[-1]


def whole(set: EvalSet, library: Library, asked: Sequence[Asked]) -> dict[str, Any]:
    """What evidence and answers are worth where the library holds the answer."""
    held = [one for one in asked if one.question.relevant]
    short = [one for one in held if one.question.ranges and not set.files]
    for one in held:
        for quote in (*one.turn.evidence, *one.turn.citations):
            page = library.page_text(quote.document, quote.page)
            assert page[quote.char_start : quote.char_end] == quote.text
            assert page[quote.support_start : quote.support_end] == quote.support_text != ""
    cited = [
        is_gold(set, library, one.question, citation)
        for one in held
        for citation in one.turn.citations
    ]
    sentences = [sentence.supported for one in held for sentence in one.turn.sentences]
    answered = [one for one in held if one.turn.sentences and one.question.answers]
    found: dict[str, Sequence[float]] = {
        "evidence_contains_answer": [
            any(holds(quote.support_text, one.question.answers) for quote in one.turn.evidence)
            for one in short
        ],
        "citation_precision": cited,
        "supported_fraction": sentences,
        "answer_f1": [f1(without_markers(one.turn.answer), one.question) for one in answered],
    }
    means = {name: mean(values) if values else None for name, values in found.items()}
    times = [one.turn.stats.evidence_s for one in held if one.turn.stats]
    return {"questions": len(asked), **means, "evidence_s": median(times) if times else None}


def refusal(asked: Sequence[Asked], *, told: bool) -> dict[str, Any]:
    """How well the gate tells questions without an answer from those with one.

    ``told``: by what the set says of them; partly answerable and unclear questions are left out.
    """
    judged = [one for one in asked if one.turn.gate is not None]
    held = [one for one in judged if one.question.answerable == "ANSWERABLE"]
    lacking = [one for one in judged if one.question.answerable == "UNANSWERABLE"]
    refused = [one for one in (*held, *lacking) if one.turn.answerable is False]
    right = [one for one in refused if one.question.answerable == "UNANSWERABLE"]
    return {
        ("answerable" if told else "questions"): len(held) if told else len(asked),
        "unanswerable": len(lacking),
        "refusal_auc": auc([gate(one) for one in held], [gate(one) for one in lacking]),
        "refusal_precision": len(right) / len(refused) if refused else None,
        "refusal_recall": len(right) / len(lacking) if lacking else None,
    }


def gate(one: Asked) -> float:
    assert one.turn.gate is not None
    return one.turn.gate


def auc(higher: Sequence[float], lower: Sequence[float]) -> float | None:
    """How often one of `higher` is above one of `lower`; a tie is half."""
    if not higher or not lower:
        return None
    won = sum((a > b) + (a == b) / 2 for a in higher for b in lower)
    return won / (len(higher) * len(lower))


def is_gold(set: EvalSet, library: Library, question: Question, citation: CitationView) -> bool:
    """Whether what is cited overlaps a gold range, or is of a gold text where there is none."""
    assert citation.support_start is not None
    assert citation.support_end is not None
    if set.files:
        name = PurePath(library.get(citation.document).name).stem
        return any(
            span.text_id == name
            and citation.support_start < span.end
            and span.start < citation.support_end
            for span in question.ranges
        )
    text = set.texts[citation.page - 1]
    if not question.ranges:
        return text.id in question.relevant
    before = len(page_text(text.title, "")) if text.title else 0
    return any(
        span.text_id == text.id
        and citation.support_start <= span.start + before
        and span.end + before <= citation.support_end
        for span in question.ranges
    )


def holds(text: str, answers: Sequence[str]) -> bool:
    plain = _plain(text)
    return any(_plain(answer) in plain for answer in answers)


def f1(answer: str, question: Question) -> float:
    return max(_f1(answer, right) for right in question.answers)


def _f1(answer: str, right: str) -> float:
    given, wanted = Counter(content_words(answer)), Counter(content_words(right))
    common = (given & wanted).total()
    if not common:
        return 0.0
    return 2 * common / (given.total() + wanted.total())


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text).casefold()


if __name__ == "__main__":
    main()
