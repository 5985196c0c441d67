"""What is deleted is gone: from the database and its log, the disk, and the KV pool."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from chat.errors import SessionNotFound
from chat.events import Delta, Retrieved, Started
from chat.options import AskOptions
from engine import Engine
from tests.chat.conftest import SHORT, SIZE_QUESTION, World, first

SECRET = "krebsscherentee"
QUESTION = f"{SIZE_QUESTION} ({SECRET})"
LONG = AskOptions(max_tokens=120, passages=1)


def on_disk(folder: Path, word: str) -> list[str]:
    """The files below a folder that hold a word, the database's log among them."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if word.encode() in path.read_bytes().lower()]


def kept_pages(engine: Engine) -> int:
    """Pages that hold the KV of some text other than the static prompt."""
    kinds = Counter(engine.page_map())
    return kinds["active"] + kinds["idle"] + kinds["cached"]


@pytest.fixture
def forgetful(make_world: Callable[..., World], library_dir: Path) -> World:
    """A world with one document."""
    world = make_world()
    world.add(library_dir / "kv-cache-size.md", owner="gone")
    return world


def assert_nothing_is_left(world: World, pages_before: int) -> None:
    assert on_disk(world.folder, SECRET) == []
    assert [held.owner for held in world.engine.session_list()].count("gone") == 0
    assert kept_pages(world.engine) <= pages_before


def test_a_deleted_conversation_leaves_nothing(forgetful: World) -> None:
    chat, before = forgetful.conversations, kept_pages(forgetful.engine)
    turn = forgetful.ask(QUESTION, owner="gone")
    forgetful.ask(f"{QUESTION} again", turn.session, owner="gone", instead_of=turn.turn)
    chat.rename(turn.session, f"About {SECRET}", "gone")
    (forgetful.folder / "pageturn.db.before-0002").write_text(SECRET)  # a copy from an update
    assert on_disk(forgetful.folder, SECRET)
    assert kept_pages(forgetful.engine) > before
    chat.delete(turn.session, "gone")
    assert_nothing_is_left(forgetful, before)


def test_a_conversation_deleted_in_mid_answer_leaves_nothing(forgetful: World) -> None:
    before = kept_pages(forgetful.engine)
    events = forgetful.conversations.ask(QUESTION, owner="gone", options=LONG)
    session = first(events, Started).session_id
    first(events, Delta)
    forgetful.conversations.delete(session, "gone")
    assert [event for event in events if not isinstance(event, Delta)] == []
    assert_nothing_is_left(forgetful, before)
    with pytest.raises(SessionNotFound):
        forgetful.conversations.turns(session, "gone")


def test_a_conversation_deleted_before_the_model_began_leaves_nothing(forgetful: World) -> None:
    before = kept_pages(forgetful.engine)
    events = forgetful.conversations.ask(QUESTION, owner="gone", options=LONG)
    session = first(events, Started).session_id
    first(events, Retrieved)
    forgetful.conversations.delete(session, "gone")
    list(events)
    assert_nothing_is_left(forgetful, before)


def test_all_of_an_owners_conversations_go_and_nobody_elses(
    forgetful: World, library_dir: Path
) -> None:
    forgetful.add(library_dir / "kv-cache-size.md", owner="stays")
    kept = forgetful.ask(SIZE_QUESTION, owner="stays")
    before = kept_pages(forgetful.engine)
    for _ in range(2):
        forgetful.ask(QUESTION, owner="gone", options=SHORT)
    assert forgetful.conversations.delete_all("gone") == 2
    assert_nothing_is_left(forgetful, before)
    assert [view.session for view in forgetful.conversations.sessions("stays")] == [kept.session]
