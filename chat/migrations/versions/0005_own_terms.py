"""The lexical index holds terms that are cut and stemmed by Pageturn itself.

It is filled again from the passages at the next start, like any that does not fit the database.
"""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _create("unicode61 remove_diacritics 0")


def downgrade() -> None:
    _create("porter unicode61 remove_diacritics 2")


def _create(tokenize: str) -> None:
    if op.get_bind().dialect.name == "sqlite":
        op.execute("DROP TABLE passages_fts")
        op.execute(f"CREATE VIRTUAL TABLE passages_fts USING fts5(words, tokenize = '{tokenize}')")
