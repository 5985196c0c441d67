"""The sentences of each passage are kept with their vectors."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_PASSAGE_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "passage_sentences",
        sa.Column(
            "passage_id",
            _PASSAGE_ID,
            sa.ForeignKey("passages.id", ondelete="CASCADE"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("spans", sa.LargeBinary, nullable=False),
        sa.Column("vectors", sa.LargeBinary, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("passage_sentences")
