"""Alembic runs this to reach the database; ``migrate`` hands the connection over."""

from alembic import context

import retrieval.forgetting
import retrieval.removed
import retrieval.store  # noqa: F401
from retrieval.database import Base

context.configure(connection=context.config.attributes["connection"], target_metadata=Base.metadata)
with context.begin_transaction():
    context.run_migrations()
