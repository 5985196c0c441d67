import errno
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect, text

import chat.migrations
from chat.errors import DatabaseTooNew
from chat.migrations import migrate
from retrieval.database import Base, Database


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(f"sqlite:///{tmp_path / 'pageturn.db'}")


def tables(database: Database) -> set[str]:
    return set(inspect(database.engine).get_table_names())


def test_a_new_database_gets_the_tables_that_the_models_describe(database: Database) -> None:
    migrate(database)
    with database.engine.connect() as connection:
        context = MigrationContext.configure(
            connection,
            opts={
                "compare_type": True,
                "include_object": lambda _, name, *rest: not name.startswith("passages_fts"),
            },
        )
        assert compare_metadata(context, Base.metadata) == []


def test_words_that_were_indexed_for_all_owners_together_are_dropped(database: Database) -> None:
    at_layout(database, "0008")
    with database.session() as session:
        session.execute(text("INSERT INTO passages_fts(rowid, words) VALUES (1, 'heron')"))
    migrate(database)
    assert not {name for name in tables(database) if name.startswith("passages_fts")}


def test_migrating_again_changes_nothing(database: Database) -> None:
    migrate(database)
    before = tables(database)
    migrate(database)
    assert tables(database) == before


def test_an_older_database_is_brought_up_to_date(database: Database) -> None:
    migrate(database)
    config = Config()
    config.set_main_option("script_location", str(Path(chat.migrations.__file__).parent))
    with database.engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    assert tables(database) == {"alembic_version"}
    migrate(database)
    assert {"documents", "passages", "sessions", "turns", "citations"} <= tables(database)


def test_a_later_versions_database_is_refused_and_left_alone(database: Database) -> None:
    migrate(database)
    with database.session() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(DatabaseTooNew, match="later"):
        migrate(database)
    with database.reading() as session:
        assert session.scalar(text("SELECT version_num FROM alembic_version")) == "9999"


def at_layout(database: Database, version: str) -> None:
    """Make the tables as an earlier version had them."""
    config = Config()
    config.set_main_option("script_location", str(Path(chat.migrations.__file__).parent))
    with database.engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, version)


def at_first_layout(database: Database) -> None:
    """Make the tables as the first version had them, with a row in them."""
    at_layout(database, "0001")
    with database.session() as session:
        session.execute(
            text(
                "INSERT INTO sessions (id, owner, title, model, static_tokens, created_at, "
                "updated_at) VALUES ('s', 'local', 'An old talk', 'm', '', "
                "'2025-01-01 00:00:00', '2025-01-01 00:00:00')"
            )
        )


def titles(database: Database) -> list[str]:
    with database.reading() as session:
        return list(session.scalars(text("SELECT title FROM sessions")))


def version(database: Database) -> str | None:
    with database.reading() as session:
        return session.scalar(text("SELECT version_num FROM alembic_version"))


def test_an_older_database_is_copied_before_it_is_changed(
    database: Database, tmp_path: Path
) -> None:
    at_first_layout(database)
    migrate(database)
    assert version(database) != "0001"
    assert titles(database) == ["An old talk"]
    [copy] = tmp_path.glob("pageturn.db.before-*")
    old = Database(f"sqlite:///{copy}")
    assert version(old) == "0001"
    assert titles(old) == ["An old talk"]
    old.close()


def test_a_database_that_nothing_is_done_to_is_not_copied(
    database: Database, tmp_path: Path
) -> None:
    migrate(database)
    migrate(database)
    assert not list(tmp_path.glob("*.before-*"))


def test_a_copy_that_cannot_be_made_leaves_the_old_database_as_it_was(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_first_layout(database)

    def no_room(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("retrieval.database.snapshot", no_room)
    with pytest.raises(OSError, match="No space"):
        migrate(database)
    assert version(database) == "0001"
    assert titles(database) == ["An old talk"]
    assert not list(tmp_path.glob("*.before-*"))
