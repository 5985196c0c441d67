"""Who has logged in: a file of hashes that outlives the server, and ends with the accounts."""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Protocol

LOGIN_S = 30 * 86400
_log = logging.getLogger("pageturn")


class Accounts(Protocol):
    """Where people and their passwords are kept."""

    def verify(self, name: str, password: str) -> bool:
        """Whether this is the person's password; slow on purpose."""
        ...

    def credential(self, name: str) -> str | None:
        """Changes with the person's password; None for nobody."""
        ...


@dataclass(frozen=True)
class _LoggedIn:
    name: str
    credential: str  # a hash of what the account had
    until_s: float  # of the wall clock, since 1970


class Logins:
    """Logins of 30 days by the token in the cookie; thread-safe.

    Whoever is removed, or gets another password, is logged out everywhere by that. Only hashes of
    tokens are kept, in memory and in the file: reading it lets nobody in. Without a path a login
    ends with the process.
    """

    def __init__(
        self, accounts: Accounts, path: Path | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._accounts = accounts
        self._path = path
        self._clock = clock
        self._lock = Lock()
        # Names the cookie: two servers on one host must not take each other's for theirs.
        self.cookie_id = secrets.token_hex(8)
        self._logins: dict[str, _LoggedIn] = {}
        if path is not None:
            self._read(path)

    def begin(self, name: str) -> str:
        """Log somebody in whose password was right; returns the token for their cookie."""
        token = secrets.token_urlsafe(32)
        until_s = self._clock() + LOGIN_S
        with self._lock:
            self._logins[_hash(token)] = _LoggedIn(name, self._credential(name), until_s)
            self._write()
        return token

    def get(self, token: str | None) -> str | None:
        """The name that a token stands for; None where its login has ended. Gradio calls this."""
        login = self._logins.get(_hash(token)) if token else None
        return login.name if login is not None and self._holds(login) else None

    def end(self, name: str) -> None:
        """Log a person out, in every browser."""
        with self._lock:
            self._logins = {key: one for key, one in self._logins.items() if one.name != name}
            self._write()

    def _holds(self, login: _LoggedIn) -> bool:
        """Whether a login is not over: by its time, or with what the account had."""
        if login.until_s <= self._clock() or not login.credential:
            return False
        return login.credential == self._credential(login.name)

    def _credential(self, name: str) -> str:
        """A hash that changes with the person's password; empty for nobody."""
        credential = self._accounts.credential(name)
        return _hash(credential) if credential else ""

    def _read(self, path: Path) -> None:
        """What is no such file is forgotten: people log in again."""
        try:
            stored = json.loads(path.read_text("utf-8"))
            logins = {key: _LoggedIn(**one) for key, one in stored["logins"].items()}
            self._logins, self.cookie_id = logins, str(stored["cookie_id"])
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            _log.warning("The file of logins is left aside, all log in again (%s).", error)

    def _write(self) -> None:
        """Replace the file as a whole, without the logins that are over."""
        self._logins = {key: one for key, one in self._logins.items() if self._holds(one)}
        if self._path is None:
            return
        logins = {key: asdict(login) for key, login in self._logins.items()}
        text = json.dumps({"cookie_id": self.cookie_id, "logins": logins})
        try:
            new = self._path.with_suffix(".new")
            new.unlink(missing_ok=True)
            new.touch(mode=0o600)
            new.write_text(text, "utf-8")
            new.replace(self._path)
        except OSError as error:  # who logs in is in, and out again after a restart
            _log.warning("The file of logins cannot be written (%s).", error.strerror)


def _hash(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()
