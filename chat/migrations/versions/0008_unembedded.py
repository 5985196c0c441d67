"""The passages that wait for their vector are counted without reading all the others."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    waiting = sa.text("vector IS NULL")
    op.create_index(
        "ix_passages_unembedded",
        "passages",
        ["document_id"],
        sqlite_where=waiting,
        postgresql_where=waiting,
    )


def downgrade() -> None:
    op.drop_index("ix_passages_unembedded", table_name="passages")
