"""What the library shows of itself: values that stay true after the session is closed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from retrieval.evidence import Asked

DocumentState = Literal["queued", "parsing", "embedding", "ready", "refused"]


@dataclass(frozen=True)
class DocumentView:
    """One document as a person sees it.

    `reason` says why it was refused, or why indexing waits (disk full, no embedding model), or why
    indexing it again failed. `again` is how far that has come, while what was read before answers;
    `kept` is whether there is a stored copy to read again.
    `warnings` are what a person should know of a document that is read, e.g. pages without text.
    `pages`, `passages` and `characters` are 0 until the file is parsed; `seconds` is how long that
    took; `seconds_left` is how long embedding it will still take, while that is known. `duplicate`
    is set by `Library.add` when this owner had the content already.
    """

    id: str
    owner: str
    name: str
    title: str
    format: str
    state: DocumentState
    reason: str | None
    warnings: tuple[str, ...]
    pages: int
    passages: int
    passages_done: int
    size_bytes: int
    content_hash: str
    added_at: datetime
    pages_without_text: int = 0
    characters: int = 0
    seconds: float = 0.0
    seconds_left: float | None = None
    duplicate: bool = False
    again: DocumentState | None = None
    kept: bool = True

    @property
    def settled(self) -> bool:
        return self.state in ("ready", "refused") and self.again is None

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {
            "warnings": list(self.warnings),
            "added_at": self.added_at.isoformat(),
        }


@dataclass(frozen=True)
class Found:
    """A passage found for a question.

    `page` is 1-based; `char_start:char_end` cut `text` out of that page's extracted text.
    `heading` is the way of headings that leads to the passage (and, for the later rows of a
    table, the table's header). Ranks are 1-based, None where that side did not find it.
    `page_label` is what the page calls itself where that is not its number, else "": as it is
    printed ("iii"), or the name of a chapter or a sheet in quotation marks. `ocr` says that its
    text was recognised in a picture.
    """

    passage_id: int
    document_id: str
    title: str
    name: str
    page: int
    char_start: int
    char_end: int
    text: str
    heading: str
    score: float
    lexical_rank: int | None
    dense_rank: int | None
    page_label: str = ""
    ocr: bool = False


class SearchResult(NamedTuple):
    """`asked` is what `Library.evidence` goes on with; None where nothing was searched."""

    passages: tuple[Found, ...]
    seconds: float
    asked: Asked | None = None


class IndexCheck(NamedTuple):
    """How the indexes compare with the database, which is the truth."""

    documents: int
    passages: int
    vectors: int | None
    lexical: int
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.problems
