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
from retrieval.lexical import CREATE_FTS5


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


def test_the_lexical_index_is_the_one_that_retrieval_uses(database: Database) -> None:
    migrate(database)
    with database.engine.connect() as connection:
        made = connection.scalar(text("SELECT sql FROM sqlite_master WHERE name = 'passages_fts'"))
    assert made == CREATE_FTS5.replace("IF NOT EXISTS ", "")


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
