import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import DBAPIError

from retrieval import store
from retrieval.database import Database, is_storage_full


def add(database: Database, name: str) -> str:
    with database.session() as session:
        document = store.new_document("local", name, "txt", name, 1)
        session.add(document)
    return document.id


def test_a_failed_transaction_leaves_nothing(database: Database) -> None:
    def fail() -> None:
        with database.session() as session:
            session.add(store.new_document("local", "a", "txt", "a", 1))
            session.flush()
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError):
        fail()
    with database.reading() as session:
        assert store.views(session, "local") == []


def test_threads_that_read_and_then_write_never_collide(database: Database) -> None:
    id = add(database, "a")
    errors: list[Exception] = []

    def count_up() -> None:
        try:
            for _ in range(25):
                with database.session() as session:
                    document = session.get_one(store.Document, id)
                    document.size_bytes += 1
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=count_up) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with database.reading() as session:
        assert session.get_one(store.Document, id).size_bytes == 101


def test_a_reader_is_not_held_up_by_a_writer(database: Database) -> None:
    add(database, "a")
    with database.session() as writing, database.reading() as reading:
        writing.add(store.new_document("local", "b", "txt", "b", 1))
        writing.flush()
        assert [view.name for view in store.views(reading, "local")] == ["a"]


def test_times_come_back_in_utc(database: Database) -> None:
    id = add(database, "a")
    with database.reading() as session:
        added_at = session.scalar(select(store.Document.added_at).where(store.Document.id == id))
    assert added_at is not None
    assert added_at.tzinfo is UTC
    assert abs((datetime.now(UTC) - added_at).total_seconds()) < 60


def test_sqlite_saying_that_the_disk_is_full_is_understood(database: Database) -> None:
    def fill() -> None:
        with database.session() as session:
            session.execute(text("PRAGMA max_page_count = 1"))
            document = store.new_document("local", "a", "txt", "a", 1)
            session.add(document)
            session.flush()
            rows = [{"document_id": document.id, "page": n, "text": "x" * 4000} for n in range(50)]
            store.insert_rows(session, store.PageText, rows)

    with pytest.raises(DBAPIError) as caught:
        fill()
    assert is_storage_full(caught.value)


def test_other_errors_are_not_taken_for_a_full_disk(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/nothing-there/x.db")
    with pytest.raises(DBAPIError) as caught, database.reading() as session:
        session.execute(text("SELECT 1"))
    assert not is_storage_full(caught.value)
    assert not is_storage_full(PermissionError(13, "denied"))
