"""A question on its way from the composer to the service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chat.options import AskOptions
from chat.views import TurnView


@dataclass(frozen=True)
class Asking:
    """A question, how it is to be answered, and the turn in whose place it is asked ("": none)."""

    question: str
    options: AskOptions
    instead_of: str = ""

    def follows(self, turns: Sequence[TurnView]) -> list[TurnView]:
        """The turns that stay above the question."""
        before = []
        for turn in turns:
            if turn.turn == self.instead_of:
                break
            before.append(turn)
        return before
