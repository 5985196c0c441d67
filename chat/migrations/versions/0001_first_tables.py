"""Documents, their passages and the lexical index; conversations, their turns and citations.

The column types are written out here rather than taken from the models: a migration says what the
layout was, whatever the models become.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_TIME = sa.DateTime(timezone=True)
_PASSAGE_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _create_library()
    if op.get_bind().dialect.name == "sqlite":
        op.execute(
            "CREATE VIRTUAL TABLE passages_fts "
            "USING fts5(words, tokenize = 'porter unicode61 remove_diacritics 2')"
        )
    _create_conversations()


def downgrade() -> None:
    for table in ("citations", "turns", "sessions"):
        op.drop_table(table)
    if op.get_bind().dialect.name == "sqlite":
        op.execute("DROP TABLE passages_fts")
    for table in ("passages", "page_texts", "documents"):
        op.drop_table(table)


def _create_library() -> None:
    op.create_table(
        "documents",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("owner", sa.String(255), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("format", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("notes", sa.JSON, nullable=False),
        sa.Column("content_hash", sa.String(64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("embedder", sa.String(64)),
        sa.Column("added_at", _TIME, nullable=False),
        sa.UniqueConstraint("owner", "content_hash", name="uq_documents_owner_content_hash"),
    )
    op.create_index("ix_documents_state", "documents", ["state"])
    op.create_index("ix_documents_content_hash", "documents", ["content_hash"])
    op.create_table(
        "page_texts",
        sa.Column(
            "document_id",
            sa.String(16),
            sa.ForeignKey("documents.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("page", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("text", sa.Text, nullable=False),
    )
    op.create_table(
        "passages",
        sa.Column("id", _PASSAGE_ID, primary_key=True),
        sa.Column(
            "document_id",
            sa.String(16),
            sa.ForeignKey("documents.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("page", sa.Integer, nullable=False),
        sa.Column("char_start", sa.Integer, nullable=False),
        sa.Column("char_end", sa.Integer, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("heading", sa.Text, nullable=False),
        sa.Column("vector", sa.LargeBinary),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_passages_document_id", "passages", ["document_id"])


def _create_conversations() -> None:
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("owner", sa.String(255), nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("static_tokens", sa.LargeBinary, nullable=False),
        sa.Column("head_turn_id", sa.String(32)),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("updated_at", _TIME, nullable=False),
    )
    op.create_index("ix_sessions_owner", "sessions", ["owner"])
    op.create_table(
        "turns",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column(
            "session_id",
            sa.String(32),
            sa.ForeignKey("sessions.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("parent_id", sa.String(32), sa.ForeignKey("turns.id", ondelete="CASCADE")),
        sa.Column("question", sa.Text, nullable=False),
        sa.Column("answer", sa.Text, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("finish_reason", sa.String(16)),
        sa.Column("error", sa.Text),
        sa.Column("prompt_tokens", sa.LargeBinary, nullable=False),
        sa.Column("answer_tokens", sa.LargeBinary, nullable=False),
        sa.Column("left_context", sa.Boolean, nullable=False),
        sa.Column("stats", sa.JSON),
        sa.Column("notes", sa.JSON, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("finished_at", _TIME),
    )
    op.create_index("ix_turns_session_id", "turns", ["session_id"])
    op.create_index("ix_turns_parent_id", "turns", ["parent_id"])
    op.create_index("ix_turns_state", "turns", ["state"])
    op.create_table(
        "citations",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column(
            "turn_id",
            sa.String(32),
            sa.ForeignKey("turns.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("rank", sa.Integer, nullable=False),
        sa.Column("document_id", sa.String(16), nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("page", sa.Integer, nullable=False),
        sa.Column("char_start", sa.Integer, nullable=False),
        sa.Column("char_end", sa.Integer, nullable=False),
        sa.Column("heading", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("in_prompt", sa.Boolean, nullable=False),
        sa.Column("marker", sa.Integer),
        sa.Column("support_start", sa.Integer),
        sa.Column("support_end", sa.Integer),
        sa.Column("removed", sa.Boolean, nullable=False),
    )
    op.create_index("ix_citations_turn_id", "citations", ["turn_id"])
    op.create_index("ix_citations_document_id", "citations", ["document_id"])
