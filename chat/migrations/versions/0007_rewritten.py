"""The question that stands alone which the model made of a follow-up."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("turns", sa.Column("rewritten", sa.Text))


def downgrade() -> None:
    op.drop_column("turns", "rewritten")
