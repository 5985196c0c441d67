"""The words of each owner's passages are indexed in a table of their own.

Those tables are made and filled from the passages at the next start, like any index that does not
fit the database.
"""

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_OLD = (
    "CREATE VIRTUAL TABLE passages_fts "
    "USING fts5(words, tokenize = 'unicode61 remove_diacritics 0')"
)


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        op.execute("DROP TABLE passages_fts")


def downgrade() -> None:
    bind = op.get_bind()
    if bind.dialect.name == "sqlite":
        named = (
            "SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL TABLE passages_fts_%'"
        )
        for table in bind.exec_driver_sql(named).scalars().all():
            op.execute(f"DROP TABLE {table}")
        op.execute(_OLD)
