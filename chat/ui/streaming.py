"""A turn that is being written, as what the page shows of it."""

from __future__ import annotations

import time
from collections.abc import Container, Iterator
from typing import TYPE_CHECKING, Any

from chat.events import Delta, Finished, Quoted, Retrieved, Started, Written
from chat.ui.cost import progress_row
from chat.ui.i18n import EN, Words
from chat.ui.quotes import quotes
from chat.ui.screen import KEEP, Streamed
from chat.ui.sources import reading, sources
from chat.ui.text import safe_markdown
from chat.views import CitationView

if TYPE_CHECKING:
    from chat.events import Event
    from retrieval.views import Found

# An update costs the server and the browser a few milliseconds, on cores that the engine computes
# on, and more the longer the answer is, since a browser draws all of it. Text is read as fluently
# at four updates a second as at twenty.
_PAUSE_S = 0.25
_PAUSE_S_A_CHARACTER = 0.00005


def streamed(
    events: Iterator[Event],
    question: str,
    words: Words = EN,
    drawn: Container[str] = frozenset(),
    *,
    quotes_lead: bool = True,
) -> Iterator[Streamed]:
    """The events of a turn as screens: the session, what is written so far, the sources."""
    turn_id, written, drawn_at = "", "", 0.0
    found: list[CitationView] = []
    checked = Written("", 0)
    announced: Any = KEEP  # the quotes, with the line that says that the model's words follow
    for event in events:
        match event:
            case Started(session_id, turn_id):
                yield Streamed(session=session_id)
            case Retrieved(passages, _):
                found = [_found(passage) for passage in passages]
                yield Streamed(
                    progress=progress_row(
                        words.count(len(found), "reading_passages") if found else words("writing")
                    ),
                    sources=reading(turn_id, question, found, words),
                )
            case Quoted(evidence, answerable, _):
                announced = quotes(
                    turn_id, evidence, answerable, words, answered=True, announced=quotes_lead
                )
                yield Streamed(
                    quotes=quotes(turn_id, evidence, answerable, words),
                    sources=reading(turn_id, question, found, words, evidence),
                )
            case Written():
                checked = event
            case Delta(text):
                written += text
                pause_s = _PAUSE_S + _PAUSE_S_A_CHARACTER * len(written)
                if time.monotonic() - drawn_at >= pause_s:
                    shown = safe_markdown(checked.text + written[checked.characters :])
                    screen = Streamed(live=shown)
                    if not drawn_at:
                        row = progress_row(words("writing"))
                        screen = screen._replace(quotes=announced, progress=row)
                    drawn_at = time.monotonic()
                    yield screen
            case Finished(turn):
                yield Streamed(sources=sources(turn, words, drawn))


def _found(passage: Found) -> CitationView:
    return CitationView(
        document=passage.document_id,
        title=passage.title or passage.name,
        page=passage.page,
        char_start=passage.char_start,
        char_end=passage.char_end,
        text=passage.text,
        page_label=passage.page_label,
        ocr=passage.ocr,
    )
