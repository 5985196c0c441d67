"""A turn that is being written, as what the page shows of it."""

from __future__ import annotations

import time
from collections.abc import Container, Iterator
from typing import TYPE_CHECKING

from chat.events import Delta, Finished, Retrieved, Started
from chat.ui import transcript
from chat.ui.cost import progress_row
from chat.ui.i18n import EN, Words
from chat.ui.screen import Streamed
from chat.ui.sources import reading, sources
from chat.ui.text import safe_markdown
from chat.views import CitationView

if TYPE_CHECKING:
    from chat.events import Event
    from retrieval.views import Found

_UPDATE_S = 0.1  # a browser that draws more often than this is slower and shows no more
# A browser draws all messages at every update, on cores that the engine computes on: long
# conversations are drawn less often, so that drawing takes about the same share of the time.
_UPDATE_S_A_MESSAGE = 0.004


def streamed(
    events: Iterator[Event],
    question: str,
    before: list[transcript.Message],
    words: Words = EN,
    drawn: Container[str] = frozenset(),
) -> Iterator[Streamed]:
    """The events of a turn as screens: session, transcript and sources."""
    turn_id, written, drawn_at = "", "", 0.0
    pause_s = max(_UPDATE_S, _UPDATE_S_A_MESSAGE * len(before))
    asked = [*before, transcript.question(question)]
    for event in events:
        match event:
            case Started(session_id, turn_id):
                yield Streamed(session=session_id)
            case Retrieved(passages, _):
                found = [_found(passage) for passage in passages]
                row = progress_row(
                    words.count(len(found), "reading_passages") if found else words("writing")
                )
                yield Streamed(
                    transcript=[*asked, transcript.below(row)],
                    sources=reading(turn_id, question, found, words),
                )
            case Delta(text):
                written += text
                if time.monotonic() - drawn_at >= pause_s:
                    drawn_at = time.monotonic()
                    yield Streamed(
                        transcript=[
                            *asked,
                            *transcript.answer(safe_markdown(written)),
                            transcript.below(progress_row(words("writing"))),
                        ]
                    )
            case Finished(turn):
                yield Streamed(
                    transcript=[*before, *transcript.turn_messages(turn, words)],
                    sources=sources(turn, words, drawn),
                )


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
