"""The data folder and who holds it: one lock, and a note that says how to reach the server.

data_dir/lock         held (flock) by a server as long as it lives, and by a command on its own
                      while it writes; the system lets go of it when a process dies
data_dir/server.json  written by the server that holds the lock: pid, host, port, token;
                      mode 0600. Whoever takes the lock removes it first, so a note beside a
                      lock that is held belongs to the holder, and any other one is stale
"""

import json
import os
import secrets
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from filelock import FileLock, Timeout

from host.errors import DataFolderBusy, DataFolderUnusable

_POLL_S = 0.2


@dataclass(frozen=True)
class ServerInfo:
    """How the commands of the same user reach a running server."""

    pid: int
    host: str
    port: int
    token: str

    @property
    def address(self) -> str:
        """The address for a person and for the commands on this machine."""
        return address(self.host, self.port)


def address(host: str, port: int) -> str:
    """http://host:port/, with an address that can be opened where `host` means "every one"."""
    if host in ("0.0.0.0", "::", ""):
        host = "127.0.0.1"
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def new_token() -> str:
    """A secret for one server process: 256 random bits."""
    return secrets.token_urlsafe(32)


class DataFolder:
    """One data folder, as this process sees it. Use it as a context manager to let go of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(path / "lock", thread_local=False)
        self._note = path / "server.json"

    def __enter__(self) -> "DataFolder":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def prepare(self) -> None:
        """Make the folder where needed and try a write. Raises DataFolderUnusable."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as error:
            raise DataFolderUnusable(
                f"The data folder {self.path} cannot be written ({error.strerror}). "
                "Give a folder of your own with --data-dir."
            ) from error

    def acquire(self) -> bool:
        """Take the lock if it is free; a stale note goes away. False: another process has it."""
        try:
            self._lock.acquire(blocking=False)
        except Timeout:
            return False
        self._note.unlink(missing_ok=True)
        return True

    def release(self) -> None:
        """Remove the note and let go of the lock; nothing happens where it is not held."""
        if self._lock.is_locked:
            self._note.unlink(missing_ok=True)
            self._lock.release()

    def server(self) -> ServerInfo | None:
        """The server that holds the folder, if one does."""
        info = self._read_note()
        if info is None or self._lock.is_locked:
            return None
        if self.acquire():  # nobody held it: the note was left by a kill
            self.release()
            return None
        return info

    def publish(self, host: str, port: int) -> ServerInfo:
        """Write the note; the lock must be held. It appears whole, and readable by us alone."""
        info = ServerInfo(os.getpid(), host, port, new_token())
        descriptor, temporary = tempfile.mkstemp(dir=self.path)  # made with mode 0600
        with os.fdopen(descriptor, "w") as file:
            json.dump(asdict(info), file)
        os.replace(temporary, self._note)
        return info

    def acquire_to_serve(self, wait_s: float = 2.0) -> None:
        """Take the lock for a server. Raises DataFolderBusy, which names the server there is."""
        if self._acquire_within(wait_s):
            return
        info = self.server()
        if info is None:
            raise DataFolderBusy(
                f"Another command is writing to {self.path}. Wait until it has finished, or give "
                "another folder with --data-dir."
            )
        raise DataFolderBusy(
            f"A server holds {self.path} already: {info.address} (process {info.pid}). Open that "
            "address, stop the process, or give another folder with --data-dir."
        )

    def acquire_or_find_server(
        self, say: Callable[[str], None], wait_s: float = 15.0
    ) -> ServerInfo | None:
        """For a command that writes: the server to send it to, or None with the lock held.

        `say` is called once when there is something to wait for. Raises DataFolderBusy.
        """
        deadline = time.monotonic() + wait_s
        said = False
        while not self.acquire():
            info = self.server()
            if info is not None:
                return info
            if time.monotonic() > deadline:
                raise DataFolderBusy(
                    f"Another command has been writing to {self.path} for {wait_s:.0f} seconds. "
                    "Run this one again when it has finished."
                )
            if not said:
                say(f"Another command is writing to {self.path}; waiting for it.")
                said = True
            time.sleep(_POLL_S)
        return None

    def _acquire_within(self, wait_s: float) -> bool:
        deadline = time.monotonic() + wait_s
        while not self.acquire():
            if time.monotonic() > deadline or self._read_note() is not None:
                return False
            time.sleep(_POLL_S)
        return True

    def _read_note(self) -> ServerInfo | None:
        try:
            return ServerInfo(**json.loads(self._note.read_text()))
        except (OSError, ValueError, TypeError):
            return None  # absent, not ours to read, or no note at all: there is no server for us
