"""What is deleted is gone: from the database and its log, the disk, and the KV pool."""

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from chat.errors import SessionNotFound
from chat.events import Delta, Retrieved, Started
from chat.options import AskOptions
from chat.prompt import render
from chat.tables import Turn
from engine import Engine
from retrieval import forgetting
from tests.chat.conftest import SHORT, SIZE_QUESTION, World, first

SECRET = "krebsscherentee"
QUESTION = f"{SIZE_QUESTION} ({SECRET})"
# An answer keeps what it says; nothing of it says where the tea stands.
TEA = f"# Tea\n\nIt stands by the yellow cupboard.\n\nThe {SECRET} costs 40 marks.\n"
BOATS = "# Boats\n\nThe ferry sails at nine.\n"
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


KILLED = """
import os, signal, sys
from pathlib import Path
from retrieval.database import Database
from retrieval.embedder import Embedder
from retrieval.library import Library

folder, embedder, document = sys.argv[1:]
database = Database(f"sqlite:///{folder}/pageturn.db")
library = Library(database, Path(folder), Embedder(embedder, device="cpu"))
library.on_removed.append(lambda *_: os.kill(os.getpid(), signal.SIGKILL))
library.remove(document)
"""


def test_a_kill_between_a_removal_and_what_it_tells_leaves_that_to_the_next_start(
    make_world: Callable[..., World], embedder_folder: str
) -> None:
    world = make_world()
    document = world.write("secret.md", TEA)
    world.write("other.md", BOATS)
    turn = world.ask(f"What does the {SECRET} cost?")
    assert reads(world, turn.turn, "cupboard")
    child = subprocess.run(
        [sys.executable, "-c", KILLED, str(world.folder), embedder_folder, document],
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert child.returncode == -signal.SIGKILL
    assert document not in [view.id for view in world.library.documents()]
    assert reads(world, turn.turn, "cupboard")  # nobody was left to forget it
    world.conversations.recover()
    assert not reads(world, turn.turn, "cupboard")
    (shown,) = world.conversations.turns(turn.session)
    assert document not in {passage.document for passage in shown.retrieved}
    assert all(quote.removed for quote in (*shown.citations, *shown.evidence))
    with world.database.reading() as session:
        assert forgetting.left(session, "document") == []


def test_a_document_removed_while_a_question_is_taken_in_is_not_read_for_it(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()
    document = world.write("secret.md", TEA)
    world.write("other.md", BOATS)
    turn = world.ask(f"What does the {SECRET} cost?")
    services = world.conversations._services
    begin, resume = services.store.begin, services.sessions.resume
    computed: list[list[int]] = []

    def removed_before(*args: Any) -> str:
        world.library.remove(document)  # the context is read, and no turn runs yet
        return begin(*args)

    def spied(session_id: str, owner: str, tokens: Sequence[int]) -> Any:
        computed.append(list(tokens))
        return resume(session_id, owner, tokens)

    monkeypatch.setattr(services.store, "begin", removed_before)
    monkeypatch.setattr(services.sessions, "resume", spied)
    follow = world.ask("When does the ferry sail?", turn.session)
    assert follow.state == "done"
    (tokens,) = computed
    assert "cupboard" not in world.engine.format.decode(tokens)
    assert document not in {quote.document for quote in (*follow.citations, *follow.retrieved)}


def test_what_cannot_be_forgotten_at_once_is_forgotten_later(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()
    document = world.write("secret.md", TEA)
    turn = world.ask(f"What does the {SECRET} cost?")
    contexts = world.conversations._services.contexts
    forget, failures = contexts.forget_document, [OperationalError("BEGIN", {}, OSError())]

    def forget_later(*args: Any) -> set[str]:
        if failures:
            raise failures.pop()
        return forget(*args)

    monkeypatch.setattr(contexts, "forget_document", forget_later)
    assert world.library.remove(document).id == document
    assert world.conversations._retries.wait("what removed documents left", 60)
    assert not failures
    assert not reads(world, turn.turn, "cupboard")


def test_the_first_turns_of_all_branches_stay_first_ones(make_world: Callable[..., World]) -> None:
    world = make_world()
    document = world.write("secret.md", TEA)
    turn = world.ask(f"What does the {SECRET} cost?")
    again = world.ask(f"What is the {SECRET}?", turn.session, instead_of=turn.turn)
    world.library.remove(document)
    for asked in (turn, again):
        rendered = world.engine.format.user(render((), asked.question), True)
        assert list(world.row(asked.turn).prompt_tokens) == list(rendered)


def reads(world: World, turn_id: str, word: str) -> bool:
    """Whether the model's message of a turn holds a word."""
    return word in world.engine.format.decode(world.row(turn_id).prompt_tokens)


def test_messages_are_rendered_anew_while_others_can_write(
    forgetful: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes long, and whoever writes meanwhile would wait for it."""
    monkeypatch.setattr("retrieval.database.BUSY_TIMEOUT_S", 0.2)
    session = forgetful.ask(SIZE_QUESTION, owner="gone").session
    [document] = forgetful.library.documents("gone")
    services, titles = forgetful.conversations._services, []

    def render(turn: Turn, first: bool) -> Sequence[int]:
        titles.append(f"title {len(titles)}")
        forgetful.conversations.rename(session, titles[-1], "gone")
        return services.user_message(turn, first)

    services.contexts.forget_document(document.id, render)
    assert titles
    assert forgetful.conversations.session(session, "gone").title == titles[-1]
