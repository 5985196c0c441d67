"""What a turn quotes before the model speaks, what the model's sentences rest on, and whether the
documents hold an answer at all, by a threshold for each embedding model."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("turns", sa.Column("gate", sa.Float))
    op.add_column("turns", sa.Column("sentences", sa.JSON))
    op.add_column("citations", sa.Column("quoted", sa.Integer))
    op.create_table(
        "gates",
        sa.Column("embedder", sa.String(64), primary_key=True),
        sa.Column("questions", sa.String(64), nullable=False),
        sa.Column("meaning", sa.Float, nullable=False),
        sa.Column("words", sa.Float, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("gates")
    op.drop_column("citations", "quoted")
    op.drop_column("turns", "sentences")
    op.drop_column("turns", "gate")
