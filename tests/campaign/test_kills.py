"""Killed at random moments of everything that people do, and nothing acknowledged is lost."""

import hashlib
import multiprocessing
import random
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from sqlalchemy import select, text

from chat.tables import Conversation, Turn, TurnPassage
from engine import Engine
from host.workspace import Workspace
from tests.campaign.acting import (
    OWNERS,
    Kept,
    Memory,
    act_until_killed,
    content_hash,
    restore_until_killed,
    settings,
)

WAIT_S = 120


@pytest.mark.parametrize("kills", [10, pytest.param(100, marks=pytest.mark.slow)])
def test_what_was_acknowledged_outlives_a_kill_at_any_moment(
    kills: int, tmp_path: Path, models_dir: Path, engine: Engine
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    # A server of processes has imported everything, so that a kill costs little more than a start.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.campaign.acting", "chat.conversation", "engine.engine"])
    memory, draw, heard = Memory(), random.Random(kills), 0
    for n in range(kills):
        here, there = context.Pipe(duplex=False)
        restores = bool(memory.backups) and n % 4 == 3
        if restores:
            archive = draw.choice([*memory.backups])
            process = context.Process(target=restore_until_killed, args=(folder, archive, there))
        else:
            process = context.Process(
                target=act_until_killed, args=(folder, models_dir, memory, n, there)
            )
        process.start()
        there.close()
        try:
            assert here.poll(WAIT_S), "the process did not come up"
            assert here.recv() == ("ready",)
            heard += listen(here, memory, draw.uniform(0, 0.1 if restores else 2))
        finally:
            process.kill()
            process.join()
        heard += listen(here, memory, 0)
        check(folder, models_dir, engine, memory)
    assert heard > 3 * kills
    assert any(kept.must == "gone" for kept in memory.documents.values())
    assert memory.there()
    assert memory.backups


def listen(pipe: Connection, memory: Memory, wait_s: float) -> int:
    """Take in what the process tells for so long; returns how much that was."""
    multiprocessing.connection.wait([], wait_s)
    count = 0
    try:
        while pipe.poll():
            memory.hear(pipe.recv())
            count += 1
    except EOFError:
        pass
    return count


@contextmanager
def opened(folder: Path, models_dir: Path, engine: Engine) -> Iterator[Workspace]:
    """The folder as the next process opens it."""
    workspace = Workspace(settings(folder, models_dir))
    workspace.__dict__["engine"] = engine
    try:
        workspace.migrate()
        workspace.start_indexing()
        _ = workspace.conversations
        yield workspace
    finally:
        del workspace.__dict__["engine"]  # it is the next one's too
        workspace.close()


def check(folder: Path, models_dir: Path, engine: Engine, memory: Memory) -> None:
    """Compare the folder with what is remembered, and remember what it could not know."""
    with opened(folder, models_dir, engine) as workspace:
        with workspace.database.reading() as session:
            assert session.scalar(text("PRAGMA integrity_check")) == "ok"
        found = {
            view.content_hash: view
            for owner in OWNERS
            for view in workspace.library.documents(owner)
        }
        with workspace.database.reading() as session:
            turns = {turn.id: turn for turn in session.scalars(select(Turn))}
            owners = dict(session.execute(select(Conversation.id, Conversation.owner)).all())
        if memory.restoring is not None:
            restored = memory.restoring
            is_new = agrees(
                restored.documents, {word: content_hash(word) in found for word in memory.documents}
            )
            if is_new:
                memory.take(restored)
            memory.restoring = None
        for word, kept in memory.documents.items():
            settle(kept, content_hash(word) in found, f"document {word}")
        for id, kept in memory.turns.items():
            settle(kept, id in turns, f"turn {id}")
            if kept.must == "there":
                turn = turns[id]
                assert owners[turn.session_id] == kept.owner
                assert not kept.text or turn.answer == kept.text
        assert {turn.state for turn in turns.values()} <= {"done", "interrupted"}
        words = {content_hash(word): word for word in memory.documents}
        assert found.keys() == {content_hash(word) for word in memory.there()}
        for hash, view in found.items():
            ready = workspace.library.wait(view.id, WAIT_S)
            assert ready.state == "ready", ready.reason
            copy = folder / "files" / hash
            assert hashlib.sha256(copy.read_bytes()).hexdigest() == hash
            best = workspace.library.search(words[hash], owner=view.owner).passages[0]
            assert best.document_id == view.id
        gone = [view.id for view in found.values()]
        with workspace.database.reading() as session:
            cited = select(TurnPassage).where(
                TurnPassage.document_id.not_in(gone), ~TurnPassage.removed
            )
            assert session.scalars(cited).all() == [], "a removed document is still quoted as there"
        assert workspace.library.check().ok
        assert {path.name for path in (folder / "files").iterdir()} == found.keys()


def settle(kept: Kept, is_there: bool, what: str) -> None:
    if kept.must == "either":
        kept.must = "there" if is_there else "gone"
    assert is_there == (kept.must == "there"), f"{what} must be {kept.must}"


def agrees(documents: dict[str, Kept], there: dict[str, bool]) -> bool:
    return all(
        is_there == (word in documents and documents[word].must == "there")
        for word, is_there in there.items()
    )
