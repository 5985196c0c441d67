"""Many people at once on one server: is anything lost, does anybody read what is another's?

    python -m benchmarks.load [--users N] [--questions N] [--tokens N] [--json FILE]

A server in a process of its own, and a thread for each person, who adds a document with a secret
word in it, then asks about it in one conversation, all at the same time. What the server accepted
is compared afterwards with what its database holds; answers, quotations and what search brought
are read for the words of others. Memory is the server's resident memory: when it is ready, when
every document is indexed, and at its peak. A turn that the engine's queue had no room for is
counted as refused: the question is kept, and says so.
"""

import argparse
import json
import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
from sqlalchemy import select

from benchmarks.report import Report
from benchmarks.serving import serving
from chat.tables import Turn
from host.client import Client
from host.datafolder import DataFolder
from host.errors import HostError
from host.workspace import DATABASE_FILE
from retrieval import store
from retrieval.database import Database

_SECRET = re.compile(r"reed\d{4}")
_POLL_S = 0.1


@dataclass
class Seen:
    """What one person was told."""

    owner: str
    word: str
    documents: list[str] = field(default_factory=list)
    turns: dict[str, str] = field(default_factory=dict)
    first_word_s: list[float] = field(default_factory=list)
    answered: int = 0
    refused: int = 0
    failed: list[str] = field(default_factory=list)
    foreign: int = 0

    def read(self, text: str) -> None:
        self.foreign += sum(word != self.word for word in _SECRET.findall(text))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--users", type=int, default=100)
    parser.add_argument("--questions", type=int, default=3, help="of each person")
    parser.add_argument("--tokens", type=int, default=16, help="of an answer, at most")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), options.users, options.questions, options.tokens, report)
    report.show("Many people at once")
    report.write(options.json)


def measure(folder: Path, users: int, questions: int, tokens: int, report: Report) -> None:
    """Add one row with everything that was seen."""
    data_dir = folder / "data"
    people = [Seen(f"user{n}", f"reed{n:04}") for n in range(users)]
    with serving(data_dir) as (process, _), watched(process) as memory:
        ready_bytes = memory.now()
        start = time.perf_counter()
        with ThreadPoolExecutor(users) as threads:
            list(threads.map(lambda person: add(data_dir, folder, person), people))
            indexed_s = time.perf_counter() - start
            indexed_bytes = memory.now()
            start = time.perf_counter()
            list(threads.map(lambda person: ask(data_dir, person, questions, tokens), people))
        asked_s = time.perf_counter() - start
    waits = np.array([wait for person in people for wait in person.first_word_s] or [np.nan])
    answered = sum(person.answered for person in people)
    report.add(
        f"{users} people, {questions} questions each",
        "Pageturn",
        answered=answered,
        refused=sum(person.refused for person in people),
        failed=sum(len(person.failed) for person in people),
        lost=lost(data_dir, people),
        foreign=sum(person.foreign for person in people),
        indexed_s=indexed_s,
        asked_s=asked_s,
        turns_per_s=answered / asked_s,
        first_word_median_s=float(np.median(waits)),
        first_word_p95_s=float(np.quantile(waits, 0.95)),
        ready_bytes=ready_bytes,
        indexed_bytes=indexed_bytes,
        peak_bytes=memory.peak,
    )
    for reason in sorted({reason for person in people for reason in person.failed}):
        print(f"failed: {reason}", file=sys.stderr)


class Memory:
    """The resident memory of a process."""

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
        self.peak = 0

    def now(self) -> int:
        resident = int(self._process.memory_info().rss)
        self.peak = max(self.peak, resident)
        return resident


@contextmanager
def watched(process: psutil.Process) -> Iterator[Memory]:
    memory, done = Memory(process), threading.Event()

    def watch() -> None:
        while not done.wait(_POLL_S):
            memory.now()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield memory
    finally:
        done.set()
        thread.join()


def add(data_dir: Path, folder: Path, person: Seen) -> None:
    file = folder / f"{person.owner}.md"
    file.write_text(
        f"# The pond of {person.word}\n\nThe heron of {person.word} waits for frogs in the north.\n"
    )
    with _client(data_dir) as client:
        for event in client.add([file], person.owner):
            if event["event"] == "file" and event["outcome"] == "indexed":
                person.documents.append(event["document"]["id"])


def ask(data_dir: Path, person: Seen, questions: int, tokens: int) -> None:
    session = None
    with _client(data_dir) as client:
        for _ in range(questions):
            start, told = time.perf_counter(), False
            question = f"Where does the heron of {person.word} wait?"
            try:
                for event in client.ask(
                    question, session=session, options={"max_tokens": tokens}, owner=person.owner
                ):
                    if event["event"] == "started":
                        session = event["session"]
                    if event["event"] in ("quoted", "delta") and not told:
                        person.first_word_s.append(time.perf_counter() - start)
                        told = True
                    if event["event"] == "finished":
                        _note(person, event["turn"])
            except HostError as error:
                person.failed.append(str(error))


def _note(person: Seen, turn: dict[str, object]) -> None:
    person.turns[str(turn["turn"])] = str(turn["answer"])
    person.read(json.dumps(turn))
    if turn["state"] == "done":
        person.answered += 1
    elif "waiting already" in str(turn["error"]):
        person.refused += 1
    else:
        person.failed.append(str(turn["error"]))


def _client(data_dir: Path) -> Client:
    info = DataFolder(data_dir).server()
    if info is None:
        raise RuntimeError("The server has ended.")
    return Client(info)


def lost(data_dir: Path, people: list[Seen]) -> int:
    """How much of what was acknowledged the database does not hold."""
    database = Database(f"sqlite:///{data_dir / DATABASE_FILE}")
    with database.reading() as session:
        documents = set(session.scalars(select(store.Document.id)))
        answers = {turn.id: turn.answer for turn in session.scalars(select(Turn))}
    database.close()
    missing = sum(not person.documents for person in people)
    missing += sum(id not in documents for person in people for id in person.documents)
    missing += sum(
        answers.get(id) != answer for person in people for id, answer in person.turns.items()
    )
    return missing


if __name__ == "__main__":
    main()
