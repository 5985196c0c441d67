"""The database's layout and its history (Alembic): retrieval's tables and chat's are one database.

A new revision: write a file into versions/ by hand, beginning with what
``alembic.autogenerate.compare_metadata`` finds (a test runs it and expects nothing).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from chat.errors import DatabaseDamaged, DatabaseTooNew

if TYPE_CHECKING:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    from retrieval.database import Database


def migrate(database: Database) -> None:
    """Bring a new or older database to this version's layout; quick where nothing is to be done.

    Everything happens in one transaction, so that a failure leaves the database as it was; and a
    copy of an older one is put beside it first. Raises DatabaseTooNew, DatabaseDamaged.
    """
    from alembic import command
    from alembic.runtime.migration import MigrationContext
    from alembic.util import CommandError

    config, script = _history()
    writing = database.engine.execution_options(sqlite_begin="BEGIN IMMEDIATE")
    with writing.begin() as connection:
        try:
            now = MigrationContext.configure(connection).get_current_revision()
        except CommandError as error:  # its own table says what it never writes
            raise DatabaseDamaged(str(error)) from error
        if now is not None:
            _require_known(now, script)
        head = script.get_current_head()
        if now != head:
            if now is not None:
                database.copy_before(str(head))
            config.attributes["connection"] = connection
            command.upgrade(config, "head")


def require_known(revision: str) -> None:
    """Raises DatabaseTooNew for the layout of a later version."""
    _require_known(revision, _history()[1])


def _require_known(revision: str, script: ScriptDirectory) -> None:
    if revision not in {known.revision for known in script.walk_revisions()}:
        raise DatabaseTooNew(revision)


def _history() -> tuple[Config, ScriptDirectory]:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return config, ScriptDirectory.from_config(config)
