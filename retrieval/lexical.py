"""Search by words. SQLite's FTS5 today, behind an interface so that another database can join.

Chinese, Japanese and Korean do not put spaces between words; every run of their characters is
indexed as overlapping pairs ("键值缓存" -> "键值 值缓 缓存"), so that a word of two characters or
more is found wherever it stands. The cutting is ours, the same for passages and questions: FTS5
only sees words with spaces between them.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Protocol

from sqlalchemy import bindparam, text
from sqlalchemy.orm import Session

from retrieval.owners import visible_to

FTS5_TABLE = "passages_fts"
CREATE_FTS5 = (
    f"CREATE VIRTUAL TABLE IF NOT EXISTS {FTS5_TABLE} "
    "USING fts5(words, tokenize = 'porter unicode61 remove_diacritics 2')"
)

# Han, kana, Hangul; their half- and full-width variants are folded by NFKC before.
_CJK = (
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_RUN = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+")
_CJK_CHARACTER = re.compile(rf"[{_CJK}]")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")

_STOP_WORDS = frozenset(
    """a about an and are as at be been but by can could did do does for from had has have how i if
    in into is it its me my no not of on or our shall should so than that the their them then there
    these they this those to was we were what when where which who whom whose why will with would
    you your tell please explain describe
    多少 怎样 如何 哪些 哪个 哪里 请问 可以 我们 这个 那个 一个 有多 です ます ました か
    """.split()  # noqa: SIM905
)
# Particles: a pair that holds one joins two words rather than being one.
_STOP_CHARACTERS = frozenset("的了是吗呢么什为和をはがの")


def words(text: str) -> list[str]:
    """The words of a text, folded (NFKC, case), CJK runs as pairs; single characters stay."""
    folded = _THOUSANDS.sub("", unicodedata.normalize("NFKC", text).casefold())
    found: list[str] = []
    for run in _RUN.findall(folded):
        if len(run) > 2 and _CJK_CHARACTER.match(run):
            found.extend(run[i : i + 2] for i in range(len(run) - 1))
        else:
            found.append(run)
    return found


def query_words(question: str) -> list[str]:
    """The words of a question worth looking for, each once; all of them if none is."""
    every = list(dict.fromkeys(words(question)))
    telling = [
        word for word in every if word not in _STOP_WORDS and _STOP_CHARACTERS.isdisjoint(word)
    ]
    return telling or every


def fts5_query(question: str) -> str:
    """An FTS5 expression that is valid whatever the person typed; "" if there is no word."""
    terms = []
    for word in query_words(question):
        # words() yields letters and digits only, so no quote can be inside the quotes.
        prefix = "*" if len(word) == 1 and _CJK_CHARACTER.match(word) else ""
        terms.append(f'"{word}"{prefix}')
    return " OR ".join(terms)


class LexicalIndex(Protocol):
    """Each call works inside the session's transaction, so index and passages cannot disagree."""

    def create(self, session: Session) -> None: ...
    def add(self, session: Session, texts: Iterable[tuple[int, str]]) -> None: ...
    def remove(self, session: Session, ids: Sequence[int]) -> None: ...
    def clear(self, session: Session) -> None: ...
    def ids(self, session: Session) -> list[int]: ...
    def search(
        self,
        session: Session,
        question: str,
        owner: str,
        documents: Sequence[str] | None,
        limit: int,
    ) -> list[int]:
        """Ids of passages of ready documents that the owner sees, best first."""
        ...


class Fts5Index:
    """The lexical index in SQLite's FTS5, ranked by BM25."""

    def create(self, session: Session) -> None:
        session.execute(text(CREATE_FTS5))

    def add(self, session: Session, texts: Iterable[tuple[int, str]]) -> None:
        rows = [{"id": id, "words": " ".join(words(passage))} for id, passage in texts]
        if rows:
            session.execute(
                text(f"INSERT INTO {FTS5_TABLE}(rowid, words) VALUES (:id, :words)"), rows
            )

    def remove(self, session: Session, ids: Sequence[int]) -> None:
        if not ids:
            return
        session.execute(
            text(f"DELETE FROM {FTS5_TABLE} WHERE rowid = :id"), [{"id": id} for id in ids]
        )
        # FTS5 only marks entries as deleted; merging its segments drops the words themselves.
        session.execute(text(f"INSERT INTO {FTS5_TABLE}({FTS5_TABLE}) VALUES ('optimize')"))

    def clear(self, session: Session) -> None:
        session.execute(text(f"DROP TABLE IF EXISTS {FTS5_TABLE}"))
        self.create(session)

    def ids(self, session: Session) -> list[int]:
        return list(session.scalars(text(f"SELECT rowid FROM {FTS5_TABLE} ORDER BY rowid")))

    def search(
        self,
        session: Session,
        question: str,
        owner: str,
        documents: Sequence[str] | None,
        limit: int,
    ) -> list[int]:
        query = fts5_query(question)
        if not query:
            return []
        chosen = "" if documents is None else "AND d.id IN :documents "
        statement = text(
            f"SELECT p.id FROM {FTS5_TABLE} "
            f"JOIN passages p ON p.id = {FTS5_TABLE}.rowid "
            "JOIN documents d ON d.id = p.document_id "
            f"WHERE {FTS5_TABLE} MATCH :query "
            f"AND d.owner IN :owners AND d.state = 'ready' {chosen}"
            f"ORDER BY bm25({FTS5_TABLE}), p.id LIMIT :limit"
        ).bindparams(bindparam("owners", expanding=True))
        values: dict[str, object] = {"query": query, "owners": visible_to(owner), "limit": limit}
        if documents is not None:
            statement = statement.bindparams(bindparam("documents", expanding=True))
            values["documents"] = list(documents)
        return list(session.scalars(statement, values))
