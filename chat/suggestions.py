"""What a person might ask first: taken from the titles and headings of their documents."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import select

from retrieval.store import PageText

if TYPE_CHECKING:
    from retrieval.database import Database
    from retrieval.views import DocumentView

_MOST_CHARS = 80
_READ_CHARS = 20_000
# Markdown's headings below the title; HTML and DOCX are extracted as Markdown.
_HEADING = re.compile(r"^#{2,4}[ \t]+(?=[^ \t])(.*)$", re.MULTILINE)
_LETTER = re.compile(r"[^\W\d_]")


class Topic(NamedTuple):
    """Something that a document says; ``heading`` is "" where only its title is known."""

    title: str
    heading: str

    @property
    def is_question(self) -> bool:
        return self.heading.rstrip().endswith(("?", "？"))


def topics(database: Database, documents: Sequence[DocumentView], limit: int) -> list[Topic]:
    """One topic of each of the newest ready documents, at most ``limit``; no model is asked.

    A heading that is a question itself comes first, then the first heading below the title.
    """
    found: list[Topic] = []
    ready = [document for document in documents if document.state == "ready"]
    for document in sorted(ready, key=lambda document: document.added_at, reverse=True):
        if len(found) == limit:
            break
        found.append(_topic(database, document))
    return found


def _topic(database: Database, document: DocumentView) -> Topic:
    with database.reading() as session:
        text = session.scalar(
            select(PageText.text).where(PageText.document_id == document.id, PageText.page == 1)
        )
    headings = [
        heading
        for line in _HEADING.findall((text or "")[:_READ_CHARS])
        if (heading := line.rstrip(" \t#"))
        and len(heading) <= _MOST_CHARS
        and _LETTER.search(heading)
    ]
    own = [Topic(document.title, heading) for heading in headings]
    return next((topic for topic in own if topic.is_question), None) or (
        own[0] if own else Topic(document.title, "")
    )
