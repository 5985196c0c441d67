"""What a conversation looks like from outside: frozen values, free of the database."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from chat.stats import TurnStats

if TYPE_CHECKING:
    from engine import SessionInfo

# What is shown: the documents' own sentences, the model's text, or both.
AnswerMode = Literal["auto", "evidence", "generate"]
# Whether the model makes a follow-up stand alone before it is searched; auto: a large one does.
RewriteMode = Literal["auto", "on", "off"]
TurnState = Literal["pending", "done", "stopped", "interrupted", "error"]


@dataclass(frozen=True)
class CitationView:
    """A passage and, where it was cited, the words in it that support the answer.

    ``char_start``/``char_end`` are the passage's range in the text of its page, and
    ``support_start``/``support_end`` the supporting words' range in that same text, so
    ``text[support_start - char_start : support_end - char_start]`` are those words.
    ``marker`` is what stands in the answer, such as ``[1]``. Markers number the cited passages
    of a turn from 1; a passage that supports two sentences by different words has an entry for
    each of them, under one marker. A passage that was found and not cited has neither marker
    nor support. ``removed``: the document is gone, and this text is all that is left of it.
    ``page_label`` is what the page calls itself where that is not its number, else "": "iii", or
    the name of a chapter or a sheet in quotation marks; ``ocr``: its text was recognised in a
    picture and may hold mistakes.
    """

    document: str
    title: str
    page: int
    char_start: int
    char_end: int
    text: str
    marker: str | None = None
    support_start: int | None = None
    support_end: int | None = None
    removed: bool = False
    page_label: str = ""
    ocr: bool = False

    @property
    def support_text(self) -> str:
        """The supporting words ("" where there are none)."""
        if self.support_start is None or self.support_end is None:
            return ""
        return self.text[self.support_start - self.char_start : self.support_end - self.char_start]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class SentenceView:
    """A sentence of the model's answer; `citation` holds the words it follows from, if any do."""

    text: str
    citation: CitationView | None

    @property
    def supported(self) -> bool:
        return self.citation is not None

    def to_json(self) -> dict[str, Any]:
        citation = self.citation.to_json() if self.citation else None
        return {"text": self.text, "supported": self.supported, "citation": citation}


def is_name(page_label: str) -> bool:
    """Whether a page is called by a name, as chapters and sheets are, rather than numbered."""
    return page_label.startswith("“")


def where(page: int, label: str = "", ocr: bool = False) -> str:
    """Where a passage stands, in English: "page iii (3 in the file), read by OCR"."""
    if is_name(label):
        named = label
    else:
        named = f"page {label} ({page} in the file)" if label else f"page {page}"
    return f"{named}, read by OCR" if ocr else named


@dataclass(frozen=True)
class TurnView:
    """One question and what became of it.

    ``answer`` has its citation markers in it once the turn is done. ``finish_reason`` is the
    engine's ("stop", "length", "cancelled"), "repetition" where the model went round in circles
    and was ended, "not_found" where the documents hold nothing and it was not asked, "evidence"
    where only quotations were wanted, "talk" where small talk got a fixed answer,
    "interrupted" after a kill, "error", or None while pending. ``versions`` are the turns that
    were asked in this one's place, itself included, oldest first: retries and edited questions.

    ``evidence`` are the sentences of the documents that speak to the question most, found without
    the model; each is the support of a citation without a marker. ``gate`` says how far their
    score is above what questions with an answer have (below 0: there is probably none), None where
    that was not asked: small talk, a summary, a question about the conversation. ``rewritten`` is
    the question that stands alone which the model made of a follow-up, and which was searched for
    as well. ``sentences`` are those of the model's text that say something.
    """

    session: str
    turn: str
    question: str
    answer: str
    state: TurnState
    created_at: datetime
    finish_reason: str | None = None
    error: str | None = None
    citations: tuple[CitationView, ...] = ()
    retrieved: tuple[CitationView, ...] = ()
    evidence: tuple[CitationView, ...] = ()
    gate: float | None = None
    rewritten: str | None = None
    sentences: tuple[SentenceView, ...] = ()
    stats: TurnStats | None = None
    notes: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()

    @property
    def answerable(self) -> bool | None:
        """Whether the documents hold an answer, as far as that was judged."""
        return None if self.gate is None else self.gate >= 0

    def to_json(self) -> dict[str, Any]:
        """The object of ``ask --json``."""
        return {
            "session": self.session,
            "turn": self.turn,
            "question": self.question,
            "answer": self.answer,
            "answerable": self.answerable,
            "gate": self.gate,
            "rewritten": self.rewritten,
            "evidence": [quote.to_json() for quote in self.evidence],
            "sentences": [sentence.to_json() for sentence in self.sentences],
            "citations": [citation.to_json() for citation in self.citations],
            "retrieved": [passage.to_json() for passage in self.retrieved],
            "stats": self.stats.to_json() if self.stats else None,
            "finish_reason": self.finish_reason,
            "state": self.state,
            "error": self.error,
            "notes": list(self.notes),
            "created_at": self.created_at.isoformat(),
            "versions": list(self.versions),
        }


@dataclass(frozen=True)
class SessionView:
    """A conversation as a list shows it; ``running`` while it answers."""

    session: str
    title: str
    model: str
    turns: int
    created_at: datetime
    updated_at: datetime
    running: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "created_at": self.created_at.isoformat(),
            "updated_at": self.updated_at.isoformat(),
        }


@dataclass(frozen=True)
class HeldView:
    """A conversation with what the engine holds for it; ``running`` while it answers.

    Pages that conversations share count for each of them.
    """

    session: str
    title: str
    info: SessionInfo
    running: bool

    @property
    def tokens(self) -> int:
        return self.info.tokens

    @property
    def kv_tokens(self) -> int:
        """Leading tokens that need no computing when the conversation goes on."""
        return self.info.kv_tokens

    @property
    def pages(self) -> int:
        return self.info.pages

    @property
    def kv_bytes(self) -> int:
        return self.info.kv_bytes


class Quotes(NamedTuple):
    """How often conversations quote a document."""

    conversations: int
    passages: int
