"""A document is indexed again in a draft beside it, so that what can be searched stays whole; and
passages that are gone are listed until the indexes hold nothing of them."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("documents", sa.Column("replaces", sa.String(16), nullable=True))
    id = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table("removed_passages", sa.Column("id", id, primary_key=True, autoincrement=False))


def downgrade() -> None:
    op.drop_table("removed_passages")
    op.execute("DELETE FROM documents WHERE replaces IS NOT NULL")
    op.drop_column("documents", "replaces")
