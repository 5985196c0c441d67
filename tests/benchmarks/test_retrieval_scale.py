"""The benchmark of search in a large library, on a small one."""

from pathlib import Path

import pytest

from benchmarks import search_scale
from benchmarks.report import Report
from chat.conversation import Conversations
from chat.migrations import migrate
from engine import Engine, EngineConfig
from retrieval.database import Database
from retrieval.embedder import Embedder
from retrieval.library import Library


def test_every_kind_of_question_is_timed_in_a_library_that_search_can_read(
    tmp_path: Path, embedder_folder: str, chat_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_scale, "WARM_UP", 1)
    database = Database(f"sqlite:///{tmp_path / 'pageturn.db'}")
    migrate(database)
    library = Library(database, tmp_path, Embedder(embedder_folder, "cpu"))
    search_scale.fill(library, 120)
    search_scale.fill(library, 120)
    check = library.check()
    assert check.passages == check.vectors == check.lexical == 120
    assert len(library.documents()) == search_scale.DOCUMENTS
    assert all(view.passages == view.passages_done for view in library.documents())
    engine = Engine(EngineConfig(chat_model, device="cpu", kv_memory="64MiB"))
    report = Report()
    try:
        search_scale.measure(library, Conversations(database, library, engine), 3, report)
    finally:
        engine.shutdown()
        library.close()
        database.close()
    kinds = ["search", "follow-up", "some documents", "evidence", "turn"]
    assert [row["system"] for row in report.rows] == kinds
    assert [row["questions"] for row in report.rows] == [3, 3, 3, 11, 3]
    assert all(0 < row["median_s"] <= row["p95_s"] <= row["longest_s"] for row in report.rows)


def test_made_up_words_are_as_many_as_there_are_ranks() -> None:
    words = {search_scale._word(rank) for rank in range(search_scale.VOCABULARY)}
    assert len(words) == search_scale.VOCABULARY
