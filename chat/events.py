"""What ``Conversations.ask`` yields: Started, Retrieved, Quoted, then Delta and Written as the
model writes, then Finished."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from chat.views import CitationView, TurnView

if TYPE_CHECKING:
    from retrieval.views import Found


@dataclass(frozen=True)
class Started:
    """The turn is saved; from here on nothing that happens loses it."""

    session_id: str
    turn_id: str


@dataclass(frozen=True)
class Retrieved:
    """What search brought, best first."""

    passages: tuple[Found, ...]
    retrieve_s: float


@dataclass(frozen=True)
class Quoted:
    """The documents' own sentences on the question, before the model says a word.

    ``answerable`` is TurnView.answerable, ``evidence_s`` the time since the question.
    """

    evidence: tuple[CitationView, ...]
    answerable: bool | None
    evidence_s: float


@dataclass(frozen=True)
class Delta:
    """A piece of the answer as the model writes it, without citation markers."""

    text: str


@dataclass(frozen=True)
class Written:
    """Sentences of the answer are complete and checked: its text so far with their markers, which
    stands for the first ``characters`` of the deltas."""

    text: str
    characters: int


@dataclass(frozen=True)
class Finished:
    """The turn as it was saved; its answer, with markers, replaces the text of the deltas."""

    turn: TurnView


Event: TypeAlias = Started | Retrieved | Quoted | Delta | Written | Finished
