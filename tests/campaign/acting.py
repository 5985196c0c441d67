"""A process that uses a data folder as people do, in a random order, until it is killed.

It tells what it begins and what was acknowledged, as people would remember it. `Memory` keeps that
for the test, and says what must be there after a kill, what must be gone, and what may be either.
"""

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, TypeAlias

from host.backup import backup
from host.restore import restore_into
from host.settings import Settings
from host.workspace import OWNER, Workspace

GUEST = "guest"
OWNERS = (OWNER, GUEST)
# How often each act is done beside the others.
ACTS = {"add": 6, "ask": 4, "remove": 2, "reindex": 2, "backup": 1, "remove_owner": 1}

Must: TypeAlias = Literal["there", "gone", "either"]
Told: TypeAlias = tuple[Any, ...]


def settings(folder: Path, models_dir: Path) -> Settings:
    return Settings(data_dir=folder, models_dir=models_dir, device="cpu", kv_memory="64MiB")


def document_text(word: str) -> str:
    """A document that a search for its own word finds."""
    return f"# The pond {word}\n\nThe heron of {word} waits at the edge of the water.\n"


def content_hash(word: str) -> str:
    return hashlib.sha256(document_text(word).encode()).hexdigest()


@dataclass
class Kept:
    """A document or a turn: whose it is, and whether it must be there."""

    owner: str
    must: Must
    text: str = ""


@dataclass
class Memory:
    """What was acknowledged: documents by their word, turns by id, backups with what is in them."""

    documents: dict[str, Kept] = field(default_factory=dict)
    turns: dict[str, Kept] = field(default_factory=dict)
    backups: dict[Path, "Memory"] = field(default_factory=dict)
    # A restore that was begun: what is there is all of this or all of what was before.
    restoring: "Memory | None" = None

    def there(self, owner: str | None = None) -> list[str]:
        return [
            word
            for word, kept in self.documents.items()
            if kept.must == "there" and owner in (None, kept.owner)
        ]

    def copy(self) -> "Memory":
        return Memory(
            {word: replace(kept) for word, kept in self.documents.items()},
            {id: replace(kept) for id, kept in self.turns.items()},
        )

    def hear(self, told: Told) -> None:
        match told:
            case ("add", word, owner):
                self.documents[word] = Kept(owner, "either")
            case ("added", word):
                self.documents[word].must = "there"
            case ("remove", word):
                self.documents[word].must = "either"
            case ("removed", word):
                self.documents[word].must = "gone"
            case ("asked", id, owner):
                self.turns[id] = Kept(owner, "either")
            case ("answered", id, text):
                self.turns[id].must, self.turns[id].text = "there", text
            case ("remove owner", owner):
                self._all_of(owner, "either")
            case ("removed owner", owner):
                self._all_of(owner, "gone")
            case ("backed up", path):
                self.backups[path] = self.copy()
            case ("restore", path):
                self.restoring = self.backups[path].copy()
            case ("restored",):
                assert self.restoring is not None
                self.take(self.restoring)
            case _:
                raise AssertionError(told)

    def _all_of(self, owner: str, must: Must) -> None:
        for kept in (*self.documents.values(), *self.turns.values()):
            if kept.owner == owner and kept.must != "gone":
                kept.must = must

    def take(self, restored: "Memory") -> None:
        """All is as it was in a backup; what came after it is gone."""
        for now, then in (
            (self.documents, restored.documents),
            (self.turns, restored.turns),
        ):
            for id, kept in now.items():
                now[id] = replace(then[id]) if id in then else replace(kept, must="gone")
        self.restoring = None


def act_until_killed(
    folder: Path, models_dir: Path, memory: Memory, seed: int, pipe: Connection
) -> None:
    """Do one thing after another; `memory` says what there is to do it with."""
    workspace = Workspace(settings(folder, models_dir))
    workspace.migrate()
    workspace.start_indexing()
    _ = workspace.conversations
    workspace.library.embedder.encode_question("loads the model")
    person = _Person(workspace, memory, random.Random(seed), f"r{seed}", pipe)
    pipe.send(("ready",))
    while True:
        person.act()


def restore_until_killed(folder: Path, archive: Path, pipe: Connection) -> None:
    pipe.send(("ready",))
    pipe.send(("restore", archive))
    restore_into(folder, archive, replace=True)
    pipe.send(("restored",))


class _Person:
    def __init__(
        self,
        workspace: Workspace,
        memory: Memory,
        draw: random.Random,
        name: str,
        pipe: Connection,
    ) -> None:
        self._workspace = workspace
        self._memory = memory
        self._draw = draw
        self._name = name
        self._pipe = pipe
        self._acts: dict[str, Callable[[str], None]] = {
            "add": self._add,
            "ask": self._ask,
            "remove": self._remove,
            "reindex": self._reindex,
            "backup": self._backup,
            "remove_owner": self._remove_owner,
        }
        self._count = 0

    def act(self) -> None:
        [act] = self._draw.choices([*ACTS], [*ACTS.values()])
        self._count += 1
        self._acts[act](self._draw.choice(OWNERS))

    def _tell(self, *told: Any) -> None:
        self._memory.hear(told)
        self._pipe.send(told)

    def _id(self, word: str) -> str | None:
        """The id of a document, None if it is not there after all."""
        owner = self._memory.documents[word].owner
        views = self._workspace.library.documents(owner)
        return next((view.id for view in views if view.content_hash == content_hash(word)), None)

    def _add(self, owner: str) -> None:
        word = f"{self._name}x{self._count}"
        file = self._workspace.settings.data_dir.parent / f"{word}.md"
        file.write_text(document_text(word))
        self._tell("add", word, owner)
        self._workspace.library.add(file, owner=owner)
        self._tell("added", word)

    def _ask(self, owner: str) -> None:
        if self._workspace.library.is_empty(owner):
            return
        word = self._draw.choice(self._memory.there(owner) or ["nobody"])
        question = f"Where does the heron of {word} wait?"
        answer = self._workspace.ask(question, options={"max_tokens": 8}, owner=owner)
        for event in answer:
            if event["event"] == "started":
                self._tell("asked", event["turn"], owner)
            elif event["event"] == "finished":
                turn = event["turn"]
                self._tell("answered", turn["turn"], turn["answer"])

    def _remove(self, owner: str) -> None:
        if words := self._memory.there(owner):
            word = self._draw.choice(words)
            id = self._id(word)
            assert id is not None, f"{word} was lost"
            self._tell("remove", word)
            self._workspace.remove(id, owner)
            self._tell("removed", word)

    def _reindex(self, owner: str) -> None:
        if words := self._memory.there(owner):
            id = self._id(self._draw.choice(words))
            assert id is not None
            self._workspace.library.reindex(id, owner)

    def _backup(self, _owner: str) -> None:
        target = self._workspace.settings.data_dir.parent / f"{self._name}-{self._count}.zip"
        backup(self._workspace.settings.data_dir, target)
        self._tell("backed up", target)

    def _remove_owner(self, _owner: str) -> None:
        self._tell("remove owner", GUEST)
        self._workspace.remove_owner(GUEST)
        self._tell("removed owner", GUEST)
