"""What the model reads: the static part, a turn's own part, and what fits the context.

Everything that changes comes last, and the static part is the same for every conversation: its KV
is computed once. Within a turn the best passage stands last, next to the question, where a small
model attends most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from chat.errors import QuestionTooLong

# Worded by trial: of 30 questions about the sample library, SmolLM2-135M answered 12 to 14 in the
# right words with this one and two passages, and 9 to 12 with four other wordings. Four passages
# instead of two, one, and more instructions beside the question all gave fewer on half of them.
SYSTEM_PROMPT = (
    "You answer questions using the passages. Quote the exact words, numbers and units. Be brief."
)
# An answer may be promised at most this part of the context, whatever length is asked for.
LARGEST_ANSWER_PART = 1 / 4
# After a trim this part of the context is taken: the next trim is then far away.
KEPT_PART = 1 / 2


class PromptPassage(Protocol):
    @property
    def title(self) -> str: ...
    @property
    def heading(self) -> str: ...
    @property
    def text(self) -> str: ...


class Fit(NamedTuple):
    """A user message that fits, and what had to give way for it."""

    tokens: list[int]
    passages: int
    leaving_turns: int
    max_answer_tokens: int


def render(passages: Sequence[PromptPassage], question: str) -> str:
    """The user message: the passages, the best of them last, then the question."""
    numbered = [
        f"Passage {number}: {passage.heading or passage.title}\n{passage.text}"
        for number, passage in enumerate(reversed(passages), start=1)
    ]
    return "\n\n".join([*numbered, f"Question: {question}"])


def fit(
    message: Callable[[int, bool], list[int]],
    *,
    passages: int,
    static_tokens: int,
    turn_tokens: Sequence[int],
    context_tokens: int,
    max_answer_tokens: int,
) -> Fit:
    """Choose how many passages and how much history the next turn has room for.

    Passages go first, down to half of them; then the oldest turns, all at once, until at most
    KEPT_PART of the context is taken by history, so that trims are rare and the KV that is lost by
    one is computed once; then the other passages.

    ``message(n, first)`` gives the tokens of the user message with the best n passages, directly
    after the static part or not; ``turn_tokens`` the length of each turn that is in the context,
    oldest first. Raises QuestionTooLong if not even the question alone fits.
    """
    answer = min(max_answer_tokens, max(1, int(context_tokens * LARGEST_ANSWER_PART)))
    room = context_tokens - static_tokens - answer

    def best(history: int, leaving: int, at_least: int) -> Fit | None:
        first = leaving == len(turn_tokens)
        for count in range(passages, at_least - 1, -1):
            tokens = message(count, first)
            if len(tokens) + history <= room:
                return Fit(tokens, count, leaving, answer)
        return None

    history = sum(turn_tokens)
    if fitting := best(history, 0, at_least=(passages + 1) // 2):
        return fitting
    leaving = 0
    while leaving < len(turn_tokens):
        history -= turn_tokens[leaving]
        leaving += 1
        if history <= (context_tokens - static_tokens) * KEPT_PART and (
            fitting := best(history, leaving, at_least=(passages + 1) // 2)
        ):
            return fitting
    if fitting := best(0, leaving, at_least=0):
        return fitting
    raise QuestionTooLong(len(message(0, True)), room)
