"""The passages beside the answer: cited ones with the supporting words marked, then the rest."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

from chat.ui.i18n import EN, Words
from chat.ui.text import escape
from chat.views import CitationView, TurnView, is_name


def empty(words: Words = EN) -> str:
    """The panel before there is an answer."""
    return f'<p class="pt-hint">{words("sources_empty")}</p>'


class Span(NamedTuple):
    """Characters [start, end) of a passage's text."""

    start: int
    end: int


def sources(turn: TurnView | None, words: Words = EN, drawn: Container[str] = frozenset()) -> str:
    """The panel for one turn; ``drawn`` are the documents whose pages can be shown as pictures."""
    if turn is None:
        return empty(words)
    parts = [f'<section class="pt-sources-of" data-shown-turn="{escape(turn.turn)}">']
    parts.append(f'<p class="pt-asked" dir="auto">{escape(turn.question)}</p>')
    cards = _Cards(turn.evidence, words, drawn)
    cited = [cards.card(entries) for entries in _by_marker(turn.citations)]
    parts += [*cards.alone(), *cited]
    if not cited:
        parts.append(f'<p class="pt-none">{_why_none(turn, words)}</p>')
    others = [passage for passage in turn.retrieved if not cards.quotes(passage)]
    parts.append(_also_found(others, words, drawn, folded=bool(cited or turn.evidence)))
    parts.append("</section>")
    return "".join(parts)


def reading(
    turn_id: str,
    question: str,
    passages: Iterable[CitationView],
    words: Words = EN,
    evidence: Sequence[CitationView] = (),
) -> str:
    """The panel while the model reads what search found: no passage is cited yet."""
    found = list(passages)
    said = words.count(len(found), "passages_found") if found else words("found_none")
    quoting = _Cards(evidence, words, ())
    cards = "".join(quoting.card([passage]) for passage in found)
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


class _Cards:
    """Cards of a turn's passages, in which the sentences that it quotes are marked as well."""

    def __init__(
        self, evidence: Sequence[CitationView], words: Words, drawn: Container[str]
    ) -> None:
        self._evidence = {quote_name(place): quote for place, quote in enumerate(evidence)}
        self._words, self._drawn = words, drawn
        self._placed: set[str] = set()

    def quotes(self, passage: CitationView) -> dict[str, CitationView]:
        """The quoted sentences of this passage, by their names."""
        return {
            name: quote
            for name, quote in self._evidence.items()
            if (quote.document, quote.page) == (passage.document, passage.page)
            and quote.char_start <= passage.char_start
            and passage.char_end <= quote.char_end
        }

    def card(self, entries: Sequence[CitationView]) -> str:
        quoted = self.quotes(entries[0])
        self._placed |= quoted.keys()
        return _card([*entries, *quoted.values()], self._words, self._drawn, tuple(quoted))

    def alone(self) -> list[str]:
        """Those of quoted sentences whose passages have no other card."""
        cards = []
        for name, quote in self._evidence.items():
            if name not in self._placed:
                together = self.quotes(quote)
                self._placed |= together.keys()
                entries = list(together.values())
                cards.append(_card(entries, self._words, self._drawn, tuple(together)))
        return cards


def _card(
    entries: Sequence[CitationView],
    words: Words,
    drawn: Container[str] = frozenset(),
    quoted: Sequence[str] = (),
) -> str:
    """One passage; its entries differ in their supporting words only, or have more around it."""
    passage = max(entries, key=lambda entry: len(entry.text))
    number = (entries[0].marker or "").strip("[]")
    spans = [
        Span(entry.support_start - passage.char_start, entry.support_end - passage.char_start)
        for entry in entries
        if entry.support_start is not None and entry.support_end is not None
    ]
    sign = escape(number) or ("”" if quoted else "")
    badge = f'<span class="pt-number">{sign}</span>' if sign else ""
    shows_page = passage.document in drawn and not passage.removed
    removed = (
        f'<span class="pt-removed" title="{words("removed_hint")}">{words("removed")}</span>'
        if passage.removed
        else ""
    )
    ocr = (
        f'<span class="pt-badge" title="{words("by_ocr_hint")}">{words("by_ocr")}</span>'
        if passage.ocr
        else ""
    )
    return (
        f'<article class="pt-card" data-number="{escape(number)}" '
        f'data-quotes="{escape(" ".join(quoted))}">'
        f'<header>{badge}<span class="pt-title" dir="auto">{escape(passage.title)}</span>'
        f'<span class="pt-where">{escape(page_name(passage, words))}</span>{ocr}{removed}</header>'
        f'<blockquote dir="auto">{marked(passage.text, spans)}</blockquote>'
        f"{_page_picture(entries, words) if shows_page else ''}</article>"
    )


def quote_name(place: int) -> str:
    """What stands for the number of a marker in the address of a quoted sentence."""
    return f"q{place + 1}"


def page_name(passage: CitationView, words: Words) -> str:
    """What its page is called: by its number and, if that is another, its label; or by its name."""
    if is_name(passage.page_label):
        return passage.page_label
    if passage.page_label:
        return words("page_labelled", label=passage.page_label, page=passage.page)
    return words("page", page=passage.page)


def _page_picture(entries: Sequence[CitationView], words: Words) -> str:
    """The page as it looks, fetched once it is unfolded."""
    passage = entries[0]
    ranges = [
        f"{entry.support_start}-{entry.support_end}"
        for entry in entries
        if entry.support_start is not None and entry.support_end is not None
    ]
    address = f"pages/{passage.document}/{passage.page}.png"
    if ranges:
        address += f"?words={','.join(ranges)}"
    said = escape(words("page_image", page=passage.page, title=passage.title))
    return (
        f'<details class="pt-page-picture"><summary>{words("show_page")}</summary>'
        f'<a href="{address}" target="_blank"><img loading="lazy" src="{address}" alt="{said}" '
        f'data-failed="{escape(words("page_image_failed"))}"></a></details>'
    )


def _also_found(
    passages: Sequence[CitationView], words: Words, drawn: Container[str], *, folded: bool
) -> str:
    if not passages:
        return ""
    cards = "".join(_card([passage], words, drawn) for passage in passages)
    return (
        f'<details class="pt-also"{"" if folded else " open"}>'
        f"<summary>{words('also_found')} <span>{len(passages)}</span></summary>"
        f'<p class="pt-hint">{words("also_found_hint")}</p>{cards}</details>'
    )


def _why_none(turn: TurnView, words: Words) -> str:
    if turn.state == "pending":
        return words("none_pending")
    if turn.finish_reason == "not_found":
        return words("none_not_found")
    return words("none_supported" if turn.retrieved else "none_at_all")
