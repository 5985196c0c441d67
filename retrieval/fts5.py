"""The lexical index in SQLite's FTS5.

Each owner's passages are in a table of their own. How much a term tells is counted in what the
asker may see, so that nobody's ranking or evidence says what another's documents hold.
"""

import json
import math
from collections.abc import Iterable, Sequence

from sqlalchemy import bindparam, text
from sqlalchemy.orm import Session

from retrieval.lexical import CJK_CHARACTER, LexicalHit, Terms
from retrieval.owners import visible_to

TABLES = "passages_fts_"
# So much of an index is merged in one transaction: others write in between.
_MERGED_PAGES = 200


class Fts5Index:
    """Ranked by BM25, a table for each owner. Implements `LexicalIndex`."""

    def add(self, session: Session, owner: str, words: Iterable[tuple[int, str]]) -> None:
        rows = [{"id": id, "words": passage} for id, passage in words]
        if not rows:
            return
        table = _table(owner)
        session.execute(
            text(
                f"CREATE VIRTUAL TABLE IF NOT EXISTS {table} "
                "USING fts5(words, tokenize = 'unicode61 remove_diacritics 0')"
            )
        )
        session.execute(text(f"INSERT INTO {table}(rowid, words) VALUES (:id, :words)"), rows)

    def remove(self, session: Session, owner: str, ids: Sequence[int]) -> None:
        if not ids or not (tables := _tables(session, [owner])):
            return
        [table] = tables
        session.execute(text(f"DELETE FROM {table} WHERE rowid = :id"), [{"id": id} for id in ids])

    def compact(self, session: Session, begin: bool) -> bool:
        left = [self._compact(session, table, begin) for table in _tables(session)]
        return any(left)

    def _compact(self, session: Session, table: str, begin: bool) -> bool:
        if not _passages(session, table):
            # With the table its name goes, which is the owner's.
            session.execute(text(f"DROP TABLE {table}"))
            return False
        # FTS5 only marks entries as deleted; merging its segments drops the words themselves. It
        # is done once a step changes nothing more than the table that was asked.
        changes = text("SELECT total_changes()")
        before = session.scalar(changes)
        session.execute(
            text(f"INSERT INTO {table}({table}, rank) VALUES ('merge', :pages)"),
            {"pages": -_MERGED_PAGES if begin else _MERGED_PAGES},
        )
        return (session.scalar(changes) or 0) - (before or 0) > 1

    def clear(self, session: Session) -> None:
        for table in _tables(session):
            session.execute(text(f"DROP TABLE {table}"))

    def ids(self, session: Session) -> list[int]:
        tables = _tables(session)
        return sorted(
            id for table in tables for id in session.scalars(text(f"SELECT rowid FROM {table}"))
        )

    def terms(
        self, session: Session, owner: str, own: Sequence[str], carried: Sequence[str]
    ) -> Terms:
        every = list(dict.fromkeys([*own, *carried]))
        tables = _tables(session, visible_to(owner))
        counts = [_counts(session, table, every) for table in tables]
        having = {term: sum(count[term] for count in counts) for term in every}
        passages = sum(_passages(session, table) for table in tables)
        return Terms(passages, having, frozenset(own))

    def search(
        self,
        session: Session,
        terms: Terms,
        owner: str,
        documents: Sequence[str] | None,
        limit: int,
    ) -> list[LexicalHit]:
        tables = _tables(session, visible_to(owner))
        if not terms.ranked_by or not tables:
            return []
        ranked, values = _ranked(session, tables, terms)
        chosen = "" if documents is None else "AND d.id IN :documents "
        statement = text(
            f"SELECT p.id, r.score FROM ({ranked} ORDER BY score DESC, id LIMIT :ranked) r "
            "JOIN passages p ON p.id = r.id JOIN documents d ON d.id = p.document_id "
            f"WHERE d.owner IN :owners AND d.state = 'ready' {chosen}"
            "ORDER BY r.score DESC, p.id LIMIT :limit"
        ).bindparams(bindparam("owners", expanding=True))
        values |= {"owners": visible_to(owner), "limit": limit}
        if documents is not None:
            statement = statement.bindparams(bindparam("documents", expanding=True))
            values["documents"] = list(documents)
        # Which document a passage is of takes longer to ask than its rank: first the best are
        # asked, and only where too few of them are left, every match (-1).
        matches = sum(terms.having.values())
        hits: list[LexicalHit] = []
        for asked in (5 * limit, -1):
            rows = session.execute(statement, values | {"ranked": asked})
            hits = [LexicalHit(*row) for row in rows]
            if len(hits) == limit or matches <= asked:
                break
        return hits


def _table(owner: str) -> str:
    """An owner may have any name; these letters and digits stand for just one."""
    return TABLES + owner.encode().hex()


def _tables(session: Session, owners: Sequence[str] | None = None) -> list[str]:
    """The tables that there are, of these owners or of all."""
    named = session.scalars(
        text("SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL TABLE%' ORDER BY name")
    )
    wanted = None if owners is None else {_table(owner) for owner in owners}
    return [
        name for name in named if name.startswith(TABLES) and (wanted is None or name in wanted)
    ]


def _passages(session: Session, table: str) -> int:
    # FTS5 keeps a row for each text here; to count the index itself would read all of it.
    return session.scalar(text(f"SELECT count(*) FROM {table}_docsize")) or 0


def _counts(session: Session, table: str, terms: Sequence[str]) -> dict[str, int]:
    """How many passages of a table have each term."""
    counts = session.scalars(
        text(
            f"SELECT (SELECT count(*) FROM {table} WHERE {table} MATCH value) "
            "FROM json_each(:terms) ORDER BY key"
        ),
        {"terms": json.dumps(list(map(_quoted, terms)))},
    )
    return dict(zip(terms, counts, strict=True))


def _ranked(session: Session, tables: Sequence[str], terms: Terms) -> tuple[str, dict[str, object]]:
    """A query of (id, score) for each passage that has a term, and the values in it.

    FTS5 weighs terms by what its own table holds. That is right where one table is all that is
    seen. Where two are, each term is asked for alone, its weight divided out and the weight that
    it has in both together put in its place.
    """
    if len(tables) == 1:
        [table] = tables
        query = f"SELECT rowid AS id, -bm25({table}) * :unit AS score FROM {table} "
        values: dict[str, object] = {"unit": terms.unit, "query": fts5_query(terms)}
        return query + f"WHERE {table} MATCH :query", values
    parts: list[str] = []
    values = {}
    for table in tables:
        passages, having = _passages(session, table), _counts(session, table, terms.ranked_by)
        for term, count in having.items():
            if count:
                n = len(parts)
                parts.append(
                    f"SELECT rowid AS id, -bm25({table}) * :weight_{n} AS score FROM {table} "
                    f"WHERE {table} MATCH :term_{n}"
                )
                weight = _bm25_idf(terms.passages, terms.having[term]) * terms.share(term)
                values[f"weight_{n}"] = weight / _bm25_idf(passages, count)
                values[f"term_{n}"] = _quoted(term)
    # Materialised, since bm25() is to be had only where the table itself is read.
    found = f"WITH found AS MATERIALIZED ({' UNION ALL '.join(parts)}) "
    return found + "SELECT id, sum(score) AS score FROM found GROUP BY id", values


def _bm25_idf(passages: int, having: int) -> float:
    """The weight that FTS5's bm25() gives a term (Robertson and Zaragoza, "The Probabilistic
    Relevance Framework", 2009), which it keeps from being negative."""
    return max(math.log((passages - having + 0.5) / (having + 0.5)), 1e-6)


def fts5_query(terms: Terms) -> str:
    """An FTS5 expression for any of the terms that some passage has; "" if there is none."""
    asked = [term for term in terms.ranked_by for _ in range(terms.times(term))]
    return " OR ".join(map(_quoted, asked))


def _quoted(term: str) -> str:
    """A term is letters and digits only, so no quote can be inside the quotes. A single CJK
    character is looked for at the beginning of the pairs."""
    return f'"{term}"{"*" if len(term) == 1 and CJK_CHARACTER.match(term) else ""}'
