"""Search by words. SQLite's FTS5 today, behind an interface so that another database can join.

Chinese, Japanese and Korean do not put spaces between words; every run of their characters is
indexed as overlapping pairs ("键值缓存" -> "键值 值缓 缓存"), so that a word of two characters or
more is found wherever it stands. Other words lose their accents and English endings (Porter's
stemmer). The cutting is ours, the same for passages, questions and evidence: FTS5 only sees terms
with spaces between them.
"""

import json
import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

import Stemmer
from sqlalchemy import bindparam, text
from sqlalchemy.orm import Session

from retrieval.owners import visible_to

FTS5_TABLE = "passages_fts"
CREATE_FTS5 = (
    f"CREATE VIRTUAL TABLE IF NOT EXISTS {FTS5_TABLE} "
    "USING fts5(words, tokenize = 'unicode61 remove_diacritics 0')"
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


# Ranking takes time for each passage that has a term: beyond so many in all, the terms that nearly
# every passage has, and that tell least, are left out. So many take about 30 ms.
MAX_MATCHES = 40_000
# What the terms of earlier questions count beside those of the question itself.
CARRIED_SHARE = 0.5
# BM25 counts a term's further occurrences less and less: at most 1 + this many times.
_BM25_K1 = 1.2

# So much of the index is merged in one transaction: others write in between.
_MERGED_PAGES = 200

_stemmer = Stemmer.Stemmer("porter")


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


@lru_cache(50_000)
def _term(word: str) -> str:
    """A word without accents and ending."""
    if word.isascii():
        return str(_stemmer.stemWord(word))
    if _CJK_CHARACTER.match(word):
        return word
    plain = "".join(c for c in unicodedata.normalize("NFD", word) if not unicodedata.combining(c))
    return str(_stemmer.stemWord(unicodedata.normalize("NFC", plain)))


def terms(text: str) -> list[str]:
    """What the words of a text are indexed as, in order."""
    return [_term(word) for word in words(text)]


def indexed(text: str) -> str:
    """What FTS5 sees of a passage."""
    return " ".join(terms(text))


def query_terms(question: str) -> list[str]:
    """The terms of a question worth looking for, each once; all of them if none is."""
    every = words(question)
    telling = [
        word for word in every if word not in _STOP_WORDS and _STOP_CHARACTERS.isdisjoint(word)
    ]
    return list(dict.fromkeys(map(_term, telling or every)))


def fts5_query(terms: "Terms") -> str:
    """An FTS5 expression for any of the terms that some passage has; "" if there is none."""
    asked = [term for term in terms.ranked_by for _ in range(terms.times(term))]
    return " OR ".join(map(_quoted, asked))


def _quoted(term: str) -> str:
    """A term is letters and digits only, so no quote can be inside the quotes. A single CJK
    character is looked for at the beginning of the pairs."""
    return f'"{term}"{"*" if len(term) == 1 and _CJK_CHARACTER.match(term) else ""}'


class LexicalHit(NamedTuple):
    id: int
    score: float


class Terms(NamedTuple):
    """What to look for, and how many of all passages have each term.

    `own` are the terms of the question itself; the others were carried over from earlier ones,
    and count half.
    """

    passages: int
    having: dict[str, int]
    own: frozenset[str]

    def weight(self, term: str) -> float:
        """How much a term tells, its inverse document frequency. One that nobody has tells most:
        a question that asks for it is not answered."""
        share = 1.0 if term in self.own else CARRIED_SHARE
        return share * math.log((self.passages + 1) / (self.having[term] + 0.5))

    def times(self, term: str) -> int:
        """How often a term is asked for: FTS5 knows no weights, but counts each time."""
        return 2 if term in self.own and len(self.own) < len(self.having) else 1

    @property
    def unit(self) -> float:
        """What asking once counts, so that a term of the question's own counts 1."""
        return CARRIED_SHARE if len(self.own) < len(self.having) else 1.0

    @property
    def weights(self) -> dict[str, float]:
        return {term: self.weight(term) for term in self.having}

    @property
    def ranked_by(self) -> list[str]:
        """The terms that some passage has, most telling first, those that ranking has time for."""
        found = [term for term, count in self.having.items() if count]
        chosen: list[str] = []
        left = MAX_MATCHES
        for term in sorted(found, key=lambda term: (-self.weight(term), term)):
            matches = self.having[term] * self.times(term)
            if matches <= left or not chosen:
                chosen.append(term)
                left -= matches
        return chosen

    @property
    def best_possible(self) -> float:
        """The score of a passage that is full of every term."""
        return sum(self.weights.values()) * (1 + _BM25_K1)


class LexicalIndex(Protocol):
    """Each call works inside the session's transaction, so index and passages cannot disagree."""

    def create(self, session: Session) -> None: ...
    def add(self, session: Session, words: Iterable[tuple[int, str]]) -> None:
        """Take in passages, by id, as `indexed` cut them: outside of the transaction."""
        ...

    def remove(self, session: Session, ids: Sequence[int]) -> None: ...

    def compact(self, session: Session, begin: bool) -> bool:
        """Drop some more of the words that were only of removed passages; False once none is left.

        `begin` is for the first of these calls.
        """
        ...

    def clear(self, session: Session) -> None: ...
    def ids(self, session: Session) -> list[int]: ...
    def terms(self, session: Session, own: Sequence[str], carried: Sequence[str]) -> Terms: ...

    def search(
        self,
        session: Session,
        terms: Terms,
        owner: str,
        documents: Sequence[str] | None,
        limit: int,
    ) -> list[LexicalHit]:
        """Passages of ready documents that the owner sees, by falling BM25."""
        ...


class Fts5Index:
    """The lexical index in SQLite's FTS5, ranked by BM25."""

    def create(self, session: Session) -> None:
        session.execute(text(CREATE_FTS5))

    def add(self, session: Session, words: Iterable[tuple[int, str]]) -> None:
        rows = [{"id": id, "words": passage} for id, passage in words]
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

    def compact(self, session: Session, begin: bool) -> bool:
        # FTS5 only marks entries as deleted; merging its segments drops the words themselves. It
        # is done once a step changes nothing more than the table that was asked.
        changes = text("SELECT total_changes()")
        before = session.scalar(changes)
        session.execute(
            text(f"INSERT INTO {FTS5_TABLE}({FTS5_TABLE}, rank) VALUES ('merge', :pages)"),
            {"pages": -_MERGED_PAGES if begin else _MERGED_PAGES},
        )
        return (session.scalar(changes) or 0) - (before or 0) > 1

    def clear(self, session: Session) -> None:
        session.execute(text(f"DROP TABLE IF EXISTS {FTS5_TABLE}"))
        self.create(session)

    def ids(self, session: Session) -> list[int]:
        return list(session.scalars(text(f"SELECT rowid FROM {FTS5_TABLE} ORDER BY rowid")))

    def terms(self, session: Session, own: Sequence[str], carried: Sequence[str]) -> Terms:
        # FTS5 keeps a row for each text here; to count the index itself would read all of it.
        passages = session.scalar(text(f"SELECT count(*) FROM {FTS5_TABLE}_docsize")) or 0
        every = list(dict.fromkeys([*own, *carried]))
        counts = session.scalars(
            text(
                f"SELECT (SELECT count(*) FROM {FTS5_TABLE} WHERE {FTS5_TABLE} MATCH value) "
                "FROM json_each(:terms) ORDER BY key"
            ),
            {"terms": json.dumps(list(map(_quoted, every)))},
        )
        return Terms(passages, dict(zip(every, counts, strict=True)), frozenset(own))

    def search(
        self,
        session: Session,
        terms: Terms,
        owner: str,
        documents: Sequence[str] | None,
        limit: int,
    ) -> list[LexicalHit]:
        query = fts5_query(terms)
        if not query:
            return []
        chosen = "" if documents is None else "AND d.id IN :documents "
        statement = text(
            f"SELECT p.id, -r.bm25 * :share FROM (SELECT rowid, bm25({FTS5_TABLE}) AS bm25 "
            f"FROM {FTS5_TABLE} WHERE {FTS5_TABLE} MATCH :query "
            "ORDER BY bm25, rowid LIMIT :ranked) r JOIN passages p ON p.id = r.rowid "
            "JOIN documents d ON d.id = p.document_id "
            f"WHERE d.owner IN :owners AND d.state = 'ready' {chosen}"
            "ORDER BY r.bm25, p.id LIMIT :limit"
        ).bindparams(bindparam("owners", expanding=True))
        values: dict[str, object] = {"query": query, "owners": visible_to(owner), "limit": limit}
        values["share"] = terms.unit
        if documents is not None:
            statement = statement.bindparams(bindparam("documents", expanding=True))
            values["documents"] = list(documents)
        # Whose a passage is takes longer to ask than its rank: first the best of all owners are
        # asked, and only where too few of them are left, every match (-1).
        matches = sum(terms.having.values())
        hits: list[LexicalHit] = []
        for ranked in (5 * limit, -1):
            rows = session.execute(statement, values | {"ranked": ranked})
            hits = [LexicalHit(*row) for row in rows]
            if len(hits) == limit or matches <= ranked:
                break
        return hits
