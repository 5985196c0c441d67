"""A conversation remembers how its questions are to be answered, and from which documents."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("sessions", sa.Column("options", sa.JSON))


def downgrade() -> None:
    op.drop_column("sessions", "options")
