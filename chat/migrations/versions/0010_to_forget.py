"""What is left to forget is written down with the removal, and outlives the process."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "to_forget",
        sa.Column("kind", sa.String(16), primary_key=True),
        sa.Column("name", sa.String(255), primary_key=True),
    )


def downgrade() -> None:
    op.drop_table("to_forget")
