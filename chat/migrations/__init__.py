"""The database's layout and its history (Alembic): retrieval's tables and chat's are one database.

A new revision: write a file into versions/ by hand, beginning with what
``alembic.autogenerate.compare_metadata`` finds (a test runs it and expects nothing).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from chat.errors import DatabaseTooNew

if TYPE_CHECKING:
    from retrieval.database import Database


def migrate(database: Database) -> None:
    """Bring a new or older database to this version's layout; quick where nothing is to be done.

    Everything happens in one transaction, so that a failure leaves the database as it was.
    Raises DatabaseTooNew.
    """
    from alembic import command
    from alembic.config import Config
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    script = ScriptDirectory.from_config(config)
    writing = database.engine.execution_options(sqlite_begin="BEGIN IMMEDIATE")
    with writing.begin() as connection:
        now = MigrationContext.configure(connection).get_current_revision()
        known = {revision.revision for revision in script.walk_revisions()}
        if now is not None and now not in known:
            raise DatabaseTooNew(now)
        if now != script.get_current_head():
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
