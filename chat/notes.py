"""What a turn says of itself besides the answer: fixed sentences, stored in English.

The page shows them in its own language (`chat.ui.sentences`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chat.views import where

if TYPE_CHECKING:
    from chat.judged import Quote
    from retrieval.views import Found

NOT_READY = "The documents are still being read. Ask again in a moment."
NOT_SUPPORTED = "No passage supports this answer."
REPEATS_ITSELF = "The model began to repeat itself, so the answer was ended there."
INTERRUPTED = "Pageturn ended while this answer was being written."
NOT_SAVED = (
    "This answer is not saved yet: the disk is full, or something else holds the database. It is "
    "kept in memory, and saving it is tried again until it succeeds."
)
NOT_WRITTEN = (
    "The answer ended here because the database could not be written: the disk is full, or "
    "something else holds the database."
)
ANSWERED_ANYWAY = (
    "Nothing in the documents searched ({count:,}) seems to answer this; the model was asked all "
    "the same."
)
ONLY_QUOTES = (
    "Only the documents' own sentences are shown here. Ask something that they may hold, or let "
    "the model answer (in the answer settings)."
)
_FOR_QUESTIONS = "I am here for questions about your documents"
_CLOSEST = " The closest sentence is "


def nothing_found(documents: int, quotes: Sequence[Quote]) -> str:
    """The answer where the documents have none: how many were searched, and what comes closest."""
    searched = "the one document" if documents == 1 else f"the {documents:,} documents"
    said = f"Nothing in {searched} searched answers this."
    for quote in quotes[:1]:
        words = " ".join(quote.words.split())
        at = where(quote.passage.page, quote.passage.page_label, quote.passage.ocr)
        said += f"{_CLOSEST}“{words}” ({quote.passage.title}, {at})."
    return said


def small_talk(title: str | None) -> str:
    """The answer to small talk of a model that has none: what may be asked, and a title as hint."""
    about = f", about “{title}” for example" if title else ""
    return f"{_FOR_QUESTIONS}{about}."


def without_closest(answer: str) -> str:
    """The same where the closest sentence stands beside it."""
    return answer.partition(_CLOSEST)[0]


def passages_read(read: Sequence[Found], of: int) -> str:
    """How much of what a question is about the model has read."""
    titles = list(dict.fromkeys(passage.title for passage in read))
    about = f"“{titles[0]}”" if len(titles) == 1 else f"{len(titles)} documents"
    return f"{len(read):,} of {of:,} passages of {about} were read."
