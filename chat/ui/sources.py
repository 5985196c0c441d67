"""The passages beside the answer: cited ones with the supporting words marked, then the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from chat.ui import figures
from chat.ui.text import escape
from chat.views import CitationView, TurnView

EMPTY = (
    '<p class="pt-hint">The passages that an answer rests on appear here, with the supporting '
    "words marked.</p>"
)


class Span(NamedTuple):
    """Characters [start, end) of a passage's text."""

    start: int
    end: int


def sources(turn: TurnView | None) -> str:
    """The panel for one turn."""
    if turn is None:
        return EMPTY
    parts = [f'<section class="pt-sources-of" data-shown-turn="{escape(turn.turn)}">']
    parts.append(f'<p class="pt-asked" dir="auto">{escape(turn.question)}</p>')
    cited = _by_marker(turn.citations)
    parts.extend(_card(entries) for entries in cited)
    if not cited:
        parts.append(f'<p class="pt-none">{_why_none(turn)}</p>')
    parts.append(_also_found(turn.retrieved, folded=bool(cited)))
    parts.append("</section>")
    return "".join(parts)


def reading(turn_id: str, question: str, passages: Iterable[CitationView]) -> str:
    """The panel while the model reads what search found: no passage is cited yet."""
    found = list(passages)
    said = (
        f"{figures.count(len(found), 'passage')} found. What the answer rests on is marked "
        "when it is complete."
        if found
        else "Search found no passage for this question."
    )
    cards = "".join(_card([passage]) for passage in found)
    return (
        f'<section class="pt-sources-of" data-shown-turn="{escape(turn_id)}">'
        f'<p class="pt-asked" dir="auto">{escape(question)}</p>'
        f'<p class="pt-none">{said}</p>{cards}</section>'
    )


def marked(text: str, spans: Iterable[Span]) -> str:
    """The text as HTML with the spans in <mark>; spans may overlap and reach past the ends."""
    parts: list[str] = []
    end = 0
    for span in sorted(spans):
        start, stop = max(span.start, end), min(span.end, len(text))
        if start >= stop:
            continue
        parts.append(escape(text[end:start]))
        parts.append(f"<mark>{escape(text[start:stop])}</mark>")
        end = stop
    parts.append(escape(text[end:]))
    return "".join(parts)


def _by_marker(citations: Sequence[CitationView]) -> list[list[CitationView]]:
    """The citations of each marker together, in the markers' order."""
    groups: dict[str, list[CitationView]] = {}
    for citation in citations:
        groups.setdefault(citation.marker or "", []).append(citation)
    return [groups[marker] for marker in sorted(groups, key=_number)]


def _number(marker: str) -> int:
    digits = marker.strip("[]")
    return int(digits) if digits.isdigit() else 0


def _card(entries: Sequence[CitationView]) -> str:
    """One passage; its entries differ in their supporting words only."""
    passage = entries[0]
    number = (passage.marker or "").strip("[]")
    spans = [
        Span(entry.support_start - passage.char_start, entry.support_end - passage.char_start)
        for entry in entries
        if entry.support_start is not None and entry.support_end is not None
    ]
    badge = f'<span class="pt-number">{escape(number)}</span>' if number else ""
    removed = (
        '<span class="pt-removed" title="The document was removed from the library. '
        'The conversation keeps what it quoted.">removed</span>'
        if passage.removed
        else ""
    )
    return (
        f'<article class="pt-card" data-number="{escape(number)}">'
        f'<header>{badge}<span class="pt-title" dir="auto">{escape(passage.title)}</span>'
        f'<span class="pt-where">page {passage.page:,}</span>{removed}</header>'
        f'<blockquote dir="auto">{marked(passage.text, spans)}</blockquote></article>'
    )


def _also_found(passages: Sequence[CitationView], *, folded: bool) -> str:
    if not passages:
        return ""
    cards = "".join(_card([passage]) for passage in passages)
    return (
        f'<details class="pt-also"{"" if folded else " open"}>'
        f"<summary>Also found <span>{len(passages)}</span></summary>"
        f'<p class="pt-hint">Found by search and not cited by this answer.</p>{cards}</details>'
    )


def _why_none(turn: TurnView) -> str:
    if turn.state == "pending":
        return "The answer is still being written."
    if turn.finish_reason == "not_found":
        return "The documents hold nothing on this question."
    if turn.retrieved:
        return "No passage supports a sentence of this answer closely enough to be cited."
    return "This answer rests on no passage."
