"""Whether the documents hold anything about a question at all.

A passage speaks to a question by meaning (the cosine of their embeddings) and by words (the part
of the question's words that it has). The best passage's cosine and half of its part of the words
are added up and compared with one threshold. That is low on purpose: a wrong "not found" hides
what is there, while an answer from weak passages still shows that nothing supports it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from chat.prompt import PromptPassage
from chat.words import content_words

MIN_RELEVANCE = 0.5
WORDS_WEIGHT = 0.5
# A question with fewer words of its own ("Why?", "And in 2023?") leans on the one before it.
OWN_WORDS = 2


def is_relevant(
    question: str,
    previous: str | None,
    found: Sequence[PromptPassage],
    cosines: Sequence[float] | None,
) -> bool:
    """Whether a passage that was found has to do with the question.

    ``cosines`` are those of the passages, or None if the embedder cannot read the question: then
    one word in common is enough.
    """
    words = set(content_words(question))
    if not found:
        return False
    if previous and len(words) < OWN_WORDS:
        return True
    if cosines is None:
        return relevance(words, found, [0.0] * len(found)) > 0
    return relevance(words, found, cosines) >= MIN_RELEVANCE


def relevance(
    words: Collection[str], sources: Sequence[PromptPassage], cosines: Sequence[float]
) -> float:
    """How much the best of the passages has to do with a question of these words."""
    asked = frozenset(words)
    best = 0.0
    for source, cosine in zip(sources, cosines, strict=True):
        held = frozenset(content_words(f"{source.title}\n{source.heading}\n{source.text}"))
        shared = len(asked & held) / len(asked) if asked else 0.0
        best = max(best, cosine + WORDS_WEIGHT * shared)
    return best
