"""A document is indexed again in a draft beside it, so that what can be searched stays whole."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("documents", sa.Column("replaces", sa.String(16), nullable=True))


def downgrade() -> None:
    op.execute("DELETE FROM documents WHERE replaces IS NOT NULL")
    op.drop_column("documents", "replaces")
