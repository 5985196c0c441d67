"""How long search takes in a large library, and how long a question waits for its evidence.

    python -m benchmarks.search_scale [--passages N] [--questions N] [--keep DIR] [--json FILE]

The library is made up: words of invented syllables, as frequent as words are beside stop words
(Zipf), and directions around random centres in place of embeddings, of which a search only reads
the numbers. Embedding as many real passages would take hours, and changes nothing here.

`search` leaves out embedding the question, which has been done before; `follow-up` is a third
question, `some documents` a search in every second one. `evidence` scores the sentences of what
was found. `turn` is the time from `ask` to the quotations, embedding included, without the model.
The first questions of each kind warm the caches and are not counted.
"""

import argparse
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.report import Report
from chat.conversation import Conversations
from chat.events import Quoted
from chat.migrations import migrate
from chat.options import AskOptions
from engine import Engine, EngineConfig
from host.models import resolve
from host.settings import load
from retrieval import sentence_rows, store
from retrieval.database import Database
from retrieval.embedder import Embedder, Vectors
from retrieval.library import Library
from retrieval.vectors import to_bytes
from retrieval.views import SearchResult

WARM_UP = 20
DOCUMENTS = 50
VOCABULARY = 80_000
PASSAGE_WORDS = 120
PASSAGE_SENTENCES = 4
QUESTION_WORDS = (3, 10)
CENTRES = 3_000
_BATCH = 2_000
# The most frequent words of a language are stop words; the ranks of the others begin here.
_FIRST_RANK = 8

Row: TypeAlias = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--passages", type=int, default=100_000)
    parser.add_argument("--questions", type=int, default=100, help="of each kind")
    parser.add_argument("--keep", type=Path, help="folder of the library, for the next run")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    settings, report = load({}), Report()
    embedder = Embedder(resolve(settings.embedder, settings.models_dir), settings.device)
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.keep or Path(temporary)) / str(options.passages)
        folder.mkdir(parents=True, exist_ok=True)
        database = Database(f"sqlite:///{folder / 'pageturn.db'}")
        migrate(database)
        library = Library(database, folder, embedder)
        fill(library, options.passages)
        library.start()
        engine = Engine(EngineConfig(resolve(settings.model, settings.models_dir)))
        try:
            measure(library, Conversations(database, library, engine), options.questions, report)
        finally:
            engine.shutdown()
            library.close()
            database.close()
    report.show("Search in a large library")
    report.write(options.json)


class Prose:
    """Words without a meaning, drawn as often as words are used."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        ranks = np.arange(_FIRST_RANK, _FIRST_RANK + VOCABULARY)
        self._frequency = np.cumsum(1 / ranks) / np.sum(1 / ranks)

    def words(self, count: int) -> list[str]:
        ranks = np.searchsorted(self._frequency, self._random.random(count))
        return [_word(int(rank)) for rank in ranks]

    def questions(self, count: int) -> list[str]:
        lengths = self._random.integers(*QUESTION_WORDS, size=count, endpoint=True)
        return [" ".join(self.words(int(length))) + "?" for length in lengths]


def _word(rank: int) -> str:
    """Three syllables, so many as there are ranks to tell apart."""
    parts = []
    for _ in range(3):
        rank, syllable = divmod(rank, 17 * 5)
        parts.append("bcdfghjklmnprstvz"[syllable % 17] + "aeiou"[syllable // 17])
    return "".join(parts)


def fill(library: Library, passages: int, count: int = DOCUMENTS) -> None:
    """Store so many passages in `count` documents, unless they are there already."""
    if library.documents():
        return
    names = [f"document {number}" for number in range(count)]
    documents = [store.new_document("local", f"{name}.txt", "txt", name, 0) for name in names]
    for document in documents:
        document.state, document.embedder = "ready", library.embedder.fingerprint
    ids = [document.id for document in documents]
    made = Made(library.embedder.dim)
    with library._database.session() as session:
        session.add_all(documents)
    for start in range(1, passages + 1, _BATCH):
        numbers = range(start, min(start + _BATCH, passages + 1))
        pages, rows, sentences = zip(
            *(made.passage(ids, number) for number in numbers), strict=True
        )
        with library._database.session() as session:
            store.insert_rows(session, store.PageText, pages)
            store.insert_rows(session, store.Passage, rows)
            store.insert_rows(session, sentence_rows.PassageSentences, sentences)
    library.rebuild_index()


class Made:
    """Passages, a page each, with their sentences."""

    def __init__(self, dim: int) -> None:
        self._prose = Prose(seed=1)
        self._random = np.random.default_rng(1)
        self._centres = self._random.standard_normal((CENTRES, dim), dtype=np.float32)

    def passage(self, documents: Sequence[str], number: int) -> tuple[Row, Row, Row]:
        """The rows of page, passage and sentences, of the documents in turn."""
        spans, text = [], ""
        for _ in range(PASSAGE_SENTENCES):
            start = len(text)
            text += " ".join(self._prose.words(PASSAGE_WORDS // PASSAGE_SENTENCES)) + ". "
            spans.append((start, len(text) - 1))
        page, document = divmod(number, len(documents))
        place = {"document_id": documents[document], "page": page + 1}
        whole = {"char_start": 0, "char_end": len(text), "text": text, "heading": ""}
        own, *vectors = self._directions(1 + PASSAGE_SENTENCES)
        return (
            {**place, "text": text, "label": "", "ocr": False},
            {**place, **whole, "id": number, "vector": to_bytes(own)},
            {
                "passage_id": number,
                "spans": np.array(spans, dtype=sentence_rows.SPAN_DTYPE).tobytes(),
                "vectors": np.array(vectors, dtype=sentence_rows.SENTENCE_DTYPE).tobytes(),
            },
        )

    def _directions(self, count: int) -> Vectors:
        """Around one centre."""
        centre = self._centres[self._random.integers(CENTRES)]
        shape = (count, len(centre))
        vectors: Vectors = centre + self._random.standard_normal(shape, dtype=np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors


def measure(library: Library, talks: Conversations, count: int, report: Report) -> None:
    """Add a row for each kind of question."""
    case = f"{library.check().passages:,} passages"
    half = [view.id for view in library.documents()][::2]
    prose = Prose(seed=2)
    found: list[SearchResult] = []

    def asked(**how: Any) -> Iterator[float]:
        for question in prose.questions(WARM_UP + count):
            library.embedder.encode_questions([question, *how.get("earlier", ())])
            found.append(library.search(question, **how))
            yield found[-1].seconds

    quick = AskOptions(answer="evidence")
    kinds: dict[str, Iterable[float]] = {
        "search": asked(),
        "follow-up": asked(earlier=prose.questions(2)),
        "some documents": asked(documents=half),
        "evidence": (library.evidence(result).seconds for result in found),
        "turn": (waited(talks, text, quick) for text in prose.questions(WARM_UP + count)),
    }
    for name, times in kinds.items():
        counted = np.array(list(times)[WARM_UP:])
        report.add(
            case,
            name,
            questions=len(counted),
            median_s=float(np.median(counted)),
            p95_s=float(np.quantile(counted, 0.95)),
            longest_s=float(counted.max()),
        )


def waited(talks: Conversations, question: str, options: AskOptions) -> float:
    """Until the documents' own sentences are there."""
    start = time.perf_counter()
    events = talks.ask(question, options=options)
    for event in events:
        if isinstance(event, Quoted):
            break
    end = time.perf_counter()
    events.close()
    return end - start


if __name__ == "__main__":
    main()
