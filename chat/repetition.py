"""When a model has begun to go round in circles, as small ones do."""

from __future__ import annotations

from collections.abc import Sequence

from retrieval.sentences import sentences

# A long stretch written twice over is a circle; a short one (a table's rule, a list of zeros) only
# after many rounds.
LONG_TOKENS = 16
ROUNDS_TOKENS = 48
_ENDS = tuple(".!?…。！？")


def circle_start(tokens: Sequence[int]) -> int | None:
    """How many of an answer's tokens to keep if its end repeats itself; None if it does not.

    x x x | a b c | a b c        the end is one stretch, over and over:
          |       ^ kept up to   keep its first round
    """
    size = len(tokens)
    for length in range(1, size // 2 + 1):
        if tokens[-1] != tokens[-1 - length] or (
            tokens[size - length :] != tokens[size - 2 * length : size - length]
        ):
            continue
        start = size - 2 * length
        while start >= length and tokens[start - length : start] == tokens[size - length :]:
            start -= length
        if length >= LONG_TOKENS or size - start >= ROUNDS_TOKENS:
            return start + length
    return None


def whole_sentences(text: str) -> str:
    """A text that was cut somewhere, without the sentence that it breaks off in.

    A text of one sentence stays: there is nothing better.
    """
    spans = sentences(text)
    if len(spans) < 2 or text[: spans[-1].end].rstrip("*_\"'”’)」』）").endswith(_ENDS):
        return text
    return text[: spans[-2].end]
