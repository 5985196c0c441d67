"""A document of the shared library in the conversations of several people."""

from collections.abc import Callable

import pytest

from retrieval.owners import SHARED
from tests.chat.conftest import World

FACT = "# Lighthouse\n\nThe lighthouse of Skagen was built in 1858 and is 46 metres tall."
QUESTION = "When was the lighthouse of Skagen built?"


@pytest.fixture(scope="module")
def shared(make_world: Callable[..., World]) -> World:
    world = make_world()
    world.write("lighthouse.md", FACT, owner=SHARED)
    return world


def test_removing_it_reaches_every_conversation_that_read_it(shared: World) -> None:
    turns = {owner: shared.ask(QUESTION, owner=owner) for owner in ("ada", "bob")}
    document = shared.library.documents(SHARED)[0].id
    for turn in turns.values():
        assert {found.document for found in (*turn.citations, *turn.retrieved)} == {document}
    read = {owner: len(shared.row(turn.turn).prompt_tokens) for owner, turn in turns.items()}
    shared.library.remove(document, SHARED)
    for owner, turn in turns.items():
        [now] = shared.conversations.turns(turn.session, owner)
        assert all(citation.removed for citation in now.citations)
        assert now.retrieved == ()
        assert len(shared.row(turn.turn).prompt_tokens) < read[owner]
