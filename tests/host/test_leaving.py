"""A kill in the middle of `user remove` leaves nothing of the person past the next start."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from app import main
from chat.context import Context
from chat.store import ConversationStore, new_id
from host.settings import Settings
from host.users import Users
from host.workspace import Workspace

KILLED = """
import os, signal, sys
from app import main
from host.users import Users
from host.workspace import Workspace
from retrieval.library import Library

where, *arguments = sys.argv[1:]
there = {"account": Users, "owner": Workspace, "document": Library}
name = {"account": "remove", "owner": "remove_owner", "document": "remove"}
setattr(there[where], name[where], lambda *_: os.kill(os.getpid(), signal.SIGKILL))
main(arguments)
"""


@pytest.mark.parametrize("killed_at", ["account", "owner", "document"])
def test_a_person_who_was_being_removed_is_gone_after_the_next_start(
    tmp_path: Path, killed_at: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data, accounts = tmp_path / "var", tmp_path / "users"
    Users(accounts, rounds=4).add("ada", "long enough")
    note = tmp_path / "note.md"
    note.write_text("# Tea\n")
    for owner in ("ada", "bob"):
        begin(data, note, owner)
    where = ["--auth", str(accounts), "--data-dir", str(data)]
    child = subprocess.run(
        [sys.executable, "-c", KILLED, killed_at, "user", "remove", "ada", *where],
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert child.returncode == -signal.SIGKILL
    assert main(["documents", "--data-dir", str(data)]) == 0  # anything that holds the folder
    workspace = Workspace(Settings(data_dir=data))
    assert counts(workspace, "ada") == (0, 0)
    assert counts(workspace, "bob") == (1, 1)
    workspace.close()
    assert main(["user", "remove", "ada", *where]) == (0 if killed_at == "account" else 1)
    capsys.readouterr()


def begin(data: Path, note: Path, owner: str) -> None:
    """A document and a conversation of a person's."""
    data.mkdir(exist_ok=True)
    workspace = Workspace(Settings(data_dir=data))
    workspace.migrate()
    workspace.library.add(note, owner=owner)
    opening = Context("model", (), (), ())
    ConversationStore(workspace.database).begin(new_id(), owner, "What is tea?", opening)
    workspace.close()


def counts(workspace: Workspace, owner: str) -> tuple[int, int]:
    documents = [view for view in workspace.library.documents(owner) if view.owner == owner]
    return len(documents), len(ConversationStore(workspace.database).sessions(owner))
