"""What reading a document showed is kept with it; pages and citations know their printed label."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE documents RENAME COLUMN notes TO warnings")
    for name, kind in _REPORT:
        op.add_column("documents", sa.Column(name, kind, nullable=False, server_default="0"))
    for table, label in _LABELS:
        op.add_column(table, sa.Column(label, sa.Text, nullable=False, server_default=""))
        ocr = sa.Column("ocr", sa.Boolean, nullable=False, server_default=sa.false())
        op.add_column(table, ocr)


def downgrade() -> None:
    for table, label in _LABELS:
        op.drop_column(table, "ocr")
        op.drop_column(table, label)
    for name, _ in _REPORT:
        op.drop_column("documents", name)
    op.execute("ALTER TABLE documents RENAME COLUMN warnings TO notes")


_REPORT = (
    ("pages_without_text", sa.Integer),
    ("characters", sa.BigInteger),
    ("seconds", sa.Float),
)
_LABELS = (("page_texts", "label"), ("citations", "page_label"))
