"""Questions that the sample library answers, and questions that it does not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chat.relevance import is_relevant
from chat.services import Services

HELD = [
    "How large is the KV cache of a 7B model for 1,024 tokens?",
    "Which pages are evicted first when free pages run out?",
    "What happens to the partial last page when a conversation forks?",
    "Why does the number of query heads not matter for GQA?",
    "How much memory does PagedAttention waste?",
    "64 个查询头的模型有什么错误？ KV",
]
NOT_HELD = [
    "What is the best recipe for apple pie?",
    "Who won the football world cup in 2014?",
    "How do I renew my passport?",
    "When does the train to Berlin leave?",
    "How many legs does a spider have?",
    "How large is the moon?",
    "苹果派怎么做？",
]


@pytest.fixture(scope="module")
def judge(make_world: Callable[..., Any], library_dir: Path) -> Callable[..., bool]:
    world = make_world()
    for name in ("kv-cache-size.md", "paged-attention.md"):
        world.add(library_dir / name)
    services = Services(world.database, world.library, world.engine, None, None, None)  # type: ignore[arg-type]

    def relevant(question: str, previous: str | None = None) -> bool:
        found = world.library.search(question, earlier=[previous] if previous else ()).passages
        return is_relevant(question, previous, found, services.cosines(question, found))

    return relevant


@pytest.mark.parametrize("question", HELD)
def test_what_the_documents_hold_is_relevant(judge: Callable[..., bool], question: str) -> None:
    assert judge(question)


@pytest.mark.parametrize("question", NOT_HELD)
def test_what_the_documents_do_not_hold_is_not(judge: Callable[..., bool], question: str) -> None:
    assert not judge(question)
    assert not judge(question, previous=HELD[0])


def test_a_question_that_leans_on_the_one_before_is_relevant_with_it(
    judge: Callable[..., bool],
) -> None:
    assert judge("Why?", previous=HELD[0])
