"""What the documents say to a question before a model does: sentences, and if they answer it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from chat.views import CitationView

if TYPE_CHECKING:
    from retrieval.evidence import Evidence, Sentence
    from retrieval.views import Found

# One sentence is enough where the next one is this much further from the question.
CLEARLY_BEST = 0.35
MOST_QUOTES = 2


class Quote(NamedTuple):
    """A sentence of the passage at ``rank``; ``start``/``end`` are its range in the page's text.

    ``text`` is the passage, with the rest of a sentence that reaches beyond it;
    ``char_start``/``char_end`` is the range of that.
    """

    rank: int
    passage: Found
    start: int
    end: int
    char_start: int
    char_end: int
    text: str

    @property
    def words(self) -> str:
        return self.text[self.start - self.char_start : self.end - self.char_start]

    def view(self) -> CitationView:
        passage = self.passage
        return CitationView(
            document=passage.document_id,
            title=passage.title,
            page=passage.page,
            char_start=self.char_start,
            char_end=self.char_end,
            text=self.text,
            support_start=self.start,
            support_end=self.end,
            page_label=passage.page_label,
            ocr=passage.ocr,
        )


class Judged(NamedTuple):
    """The passages of a question and the sentences quoted of them, both best first.

    ``gate`` and ``rewritten`` are TurnView's.
    """

    found: tuple[Found, ...] = ()
    quotes: tuple[Quote, ...] = ()
    gate: float | None = None
    rewritten: str | None = None

    def without(self, documents: set[str]) -> Judged:
        """What is left of it without documents that were removed meanwhile."""
        found = tuple(p for p in self.found if p.document_id not in documents)
        ranks = {passage.passage_id: rank for rank, passage in enumerate(found)}
        quotes = tuple(
            quote._replace(rank=ranks[quote.passage.passage_id])
            for quote in self.quotes
            if quote.passage.passage_id in ranks
        )
        return self._replace(found=found, quotes=quotes)


def quotes(evidence: Evidence, found: tuple[Found, ...]) -> tuple[Quote, ...]:
    """The one or two sentences that speak to the question most."""
    best = evidence.sentences[:MOST_QUOTES]
    ranks = {passage.passage_id: rank for rank, passage in enumerate(found)}
    return tuple(
        _quote(sentence, ranks[sentence.passage.passage_id])
        for sentence in best
        if sentence.passage.passage_id in ranks
        and sentence.score >= best[0].score - CLEARLY_BEST
        and sentence.score > 0
    )


def _quote(sentence: Sentence, rank: int) -> Quote:
    passage, (start, end) = sentence.passage, sentence.span
    before = sentence.text[: max(passage.char_start - start, 0)]
    after = sentence.text[len(sentence.text) - max(end - passage.char_end, 0) :]
    return Quote(
        rank,
        passage,
        start,
        end,
        min(start, passage.char_start),
        max(end, passage.char_end),
        f"{before}{passage.text}{after}",
    )
