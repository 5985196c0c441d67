"""Search by words: what they are cut into, what each tells, and the interface of their index.

Chinese, Japanese and Korean do not put spaces between words; every run of their characters is
indexed as overlapping pairs ("键值缓存" -> "键值 值缓 缓存"), so that a word of two characters or
more is found wherever it stands. Other words lose their accents and English endings (Porter's
stemmer). The cutting is ours, the same for passages, questions and evidence: an index (`fts5.py`)
only sees terms with spaces between them.
"""

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

import Stemmer
from sqlalchemy.orm import Session

# Han, kana, Hangul; their half- and full-width variants are folded by NFKC before.
_CJK = (
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_RUN = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+")
CJK_CHARACTER = re.compile(rf"[{_CJK}]")
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
BM25_K1 = 1.2

_stemmer = Stemmer.Stemmer("porter")


def words(text: str) -> list[str]:
    """The words of a text, folded (NFKC, case), CJK runs as pairs; single characters stay."""
    folded = _THOUSANDS.sub("", unicodedata.normalize("NFKC", text).casefold())
    found: list[str] = []
    for run in _RUN.findall(folded):
        if len(run) > 2 and CJK_CHARACTER.match(run):
            found.extend(run[i : i + 2] for i in range(len(run) - 1))
        else:
            found.append(run)
    return found


@lru_cache(50_000)
def _term(word: str) -> str:
    """A word without accents and ending."""
    if word.isascii():
        return str(_stemmer.stemWord(word))
    if CJK_CHARACTER.match(word):
        return word
    plain = "".join(c for c in unicodedata.normalize("NFD", word) if not unicodedata.combining(c))
    return str(_stemmer.stemWord(unicodedata.normalize("NFC", plain)))


def terms(text: str) -> list[str]:
    """What the words of a text are indexed as, in order."""
    return [_term(word) for word in words(text)]


def indexed(text: str) -> str:
    """What an index sees of a passage."""
    return " ".join(terms(text))


def query_terms(question: str) -> list[str]:
    """The terms of a question worth looking for, each once; all of them if none is."""
    every = words(question)
    telling = [
        word for word in every if word not in _STOP_WORDS and _STOP_CHARACTERS.isdisjoint(word)
    ]
    return list(dict.fromkeys(map(_term, telling or every)))


class LexicalHit(NamedTuple):
    id: int
    score: float


class Terms(NamedTuple):
    """What to look for, and how many of the passages that the asker sees have each term.

    `own` are the terms of the question itself; the others were carried over from earlier ones,
    and count half.
    """

    passages: int
    having: dict[str, int]
    own: frozenset[str]

    def weight(self, term: str) -> float:
        """How much a term tells, its inverse document frequency. One that nobody has tells most:
        a question that asks for it is not answered."""
        return self.share(term) * math.log((self.passages + 1) / (self.having[term] + 0.5))

    def share(self, term: str) -> float:
        """What a term counts beside one of the question itself."""
        return 1.0 if term in self.own else CARRIED_SHARE

    def times(self, term: str) -> int:
        """How often a term is asked for: FTS5 knows no shares, but counts each time."""
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
        return sum(self.weights.values()) * (1 + BM25_K1)


class LexicalIndex(Protocol):
    """Each call works inside the session's transaction, so index and passages cannot disagree."""

    def add(self, session: Session, owner: str, words: Iterable[tuple[int, str]]) -> None:
        """Take in passages, by id, as `indexed` cut them: outside of the transaction."""
        ...

    def remove(self, session: Session, owner: str, ids: Sequence[int]) -> None: ...

    def compact(self, session: Session, begin: bool) -> bool:
        """Drop some more of the words that were only of removed passages; False once none is left.

        `begin` is for the first of these calls.
        """
        ...

    def clear(self, session: Session) -> None: ...

    def ids(self, session: Session) -> list[int]:
        """The passages of all owners, ascending."""
        ...

    def terms(
        self, session: Session, owner: str, own: Sequence[str], carried: Sequence[str]
    ) -> Terms:
        """What to look for, counted in what the owner sees and in nothing else."""
        ...

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
