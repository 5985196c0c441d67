"""The same real engine, embedder and worlds that the tests of conversations have."""

from tests.chat.conftest import embedder, engine, make_world

__all__ = ["embedder", "engine", "make_world"]
