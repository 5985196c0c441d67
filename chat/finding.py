"""What a turn finds in the documents before the model answers: passages, and how they speak to it.

A follow-up is searched in the light of the questions before it, and alone where that finds no
answer. Search and evidence run no model; a rewrite of the follow-up, where it is wanted, does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from chat.context import Context
from chat.judged import Judged, quotes
from chat.kinds import Kind, kind_of
from chat.options import AskOptions
from chat.prompt import render
from chat.rewrite import Rewriter
from chat.services import Services

if TYPE_CHECKING:
    from retrieval.evidence import Evidence
    from retrieval.views import Found

# Text of more characters a token is not written by people; it spares encoding a book in vain.
_MOST_CHARACTERS_A_TOKEN = 8


class Findings(NamedTuple):
    """``reads_whole``: the passages are a whole document, all of which fits the context."""

    judged: Judged = Judged()
    reads_whole: bool = False
    retrieve_s: float = 0.0
    rewrite_s: float = 0.0


class _Searched(NamedTuple):
    """What one search brought; ``gate`` is TurnView.gate."""

    passages: tuple[Found, ...]
    evidence: Evidence
    gate: float
    seconds: float


@dataclass
class Finder:
    """Searches for one turn; ``stop`` may come from any thread."""

    services: Services
    turn_id: str
    owner: str
    question: str
    kind: Kind
    context: Context
    options: AskOptions

    _rewriter: Rewriter = field(init=False)

    def __post_init__(self) -> None:
        self._rewriter = Rewriter(self.services.engine, self.turn_id)

    def stop(self) -> None:
        self._rewriter.stop()

    def find(self) -> Findings:
        """Raises RetrievalError."""
        # Thanks and greetings between two questions are about neither.
        earlier = tuple(
            one
            for one in self.context.earlier
            if kind_of(one, follows=True) not in ("talk", "conversation")
        )
        rewritten = self._rewritten(self.context._replace(earlier=earlier))
        searched = self._search((*earlier, rewritten) if rewritten else earlier)
        seconds = searched.seconds
        if earlier and searched.gate < 0 and self.kind != "summary":
            # It may be about something else than what came before it.
            alone = self._search(())
            seconds += alone.seconds
            searched = max(searched, alone, key=lambda one: one.gate)
        gate = None if self.kind == "summary" else searched.gate
        found, is_whole = searched.passages, False
        if self.options.whole and self.kind in ("summary", "counting") and found:
            found, is_whole = self._whole(found)
        quoted = quotes(searched.evidence, found)
        if gate is not None and gate < 0:
            quoted = quoted[:1]
        elif self.options.answer == "generate":
            quoted = ()
        judged = Judged(found, quoted, gate, rewritten)
        return Findings(judged, is_whole, seconds, self._rewriter.seconds)

    def _rewritten(self, context: Context) -> str | None:
        mode = self.options.rewrite
        wanted = mode == "on" or (mode == "auto" and not self.services.model_is_small)
        if not wanted or not context.earlier or self.kind == "summary":
            return None
        return self._rewriter.rewritten(self.question, context)

    def _search(self, earlier: tuple[str, ...]) -> _Searched:
        library = self.services.library
        result = library.search(
            self.question,
            earlier=earlier,
            owner=self.owner,
            limit=self.options.passages,
            documents=self.options.documents,
        )
        evidence = library.evidence(result)
        embedder = result.asked.embedder if result.asked else ""
        line = self.services.gates.threshold(embedder, evidence.by_meaning)
        return _Searched(result.passages, evidence, evidence.gate - line, result.seconds)

    def _whole(self, found: tuple[Found, ...]) -> tuple[tuple[Found, ...], bool]:
        """All passages of the best one's document, if the model's context can hold them."""
        engine = self.services.engine
        room = engine.context_tokens - len(self.context.static_tokens) - self.options.max_tokens
        # The last one first, since the prompt has the first one last.
        whole = self.services.passages_of(found[0].document_id, self.owner)[::-1]
        if sum(len(passage.text) for passage in whole) > room * _MOST_CHARACTERS_A_TOKEN:
            return found, False
        fits = len(engine.format.user(render(whole, self.question), True)) <= room
        return (whole, True) if fits else (found, False)
