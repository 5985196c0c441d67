"""The file of accounts: a line `name:hash` for each person, the hash bcrypt's.

The file is read again whenever it has changed, so `python app.py user add` and an editor both work
beside a running server. What an editor has saved by half, or is about to save, is no reason to
throw people out: the accounts that were read before hold until the file is whole again. Passwords
are never stored, only their hashes.
"""

import logging
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import bcrypt
from filelock import FileLock, Timeout

from host.errors import AccountRefused
from host.workspace import OWNER
from retrieval import durable
from retrieval.owners import SHARED

_log = logging.getLogger("pageturn")
MIN_PASSWORD_CHARS = 8
MAX_PASSWORD_BYTES = 72  # bcrypt reads no more
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_HASH = re.compile(r"\$2[aby]\$\d\d\$[./A-Za-z0-9]{53}")  # whole: half a line is none
# Owners that are no person: whoever had such a name would have all that is theirs.
_TAKEN = {
    SHARED: "is the library that everyone reads",
    OWNER: "is whoever runs the server without accounts",
}
# Tells a file without accounts from one that is about to be saved, which is empty for a moment.
_NO_ACCOUNTS = "# No accounts.\n"
_ROUNDS = 12
_LOCK_S = 10.0
# What an unknown name's password is compared with, so that the time does not tell who exists.
_NOBODY = "$2b$12$" + "." * 22 + "BmsGVtLWGSF4XWVdqO6aHxLU5x9YTT6"


class _Version(NamedTuple):
    """What a file is told apart by from another of the same name."""

    changed_ns: int
    size_bytes: int
    inode: int


class Users:
    """The accounts in `path`; thread-safe. Every change replaces the whole file, under a lock that
    other processes heed, too."""

    def __init__(self, path: Path, rounds: int = _ROUNDS) -> None:
        self._path = path
        self._rounds = rounds
        # The newest version of the file that was looked at, and the accounts of the last good one.
        self._seen: _Version | None = None
        self._good: dict[str, str] | None = None

    def require(self) -> None:
        """Raises AccountRefused if nobody could log in, or a line of the file is no account."""
        if not self._accounts():
            raise AccountRefused(
                f"There is no account in {self._path}. Make one with: "
                f"python app.py user add NAME --auth {self._path}"
            )

    def names(self) -> list[str]:
        return list(self._accounts())

    def credential(self, name: str) -> str | None:
        """The hash of a person's password; None for nobody. A new password is a new hash."""
        return self._accounts().get(name)

    def verify(self, name: str, password: str) -> bool:
        """Whether this is the person's password; takes about a quarter of a second, on purpose."""
        hashed = self.credential(name)
        secret = password.encode()[:MAX_PASSWORD_BYTES]
        right = bcrypt.checkpw(secret, (hashed or _NOBODY).encode())
        return right and hashed is not None and len(password.encode()) <= MAX_PASSWORD_BYTES

    def add(self, name: str, password: str) -> bool:
        """Add a person, or give one another password (then False). Raises AccountRefused."""
        check_name(name)
        if len(password) < MIN_PASSWORD_CHARS:
            raise AccountRefused(f"A password has at least {MIN_PASSWORD_CHARS} characters.")
        if len(password.encode()) > MAX_PASSWORD_BYTES:
            raise AccountRefused(f"A password has at most {MAX_PASSWORD_BYTES} bytes.")
        hashed = bcrypt.hashpw(password.encode(), bcrypt.gensalt(self._rounds)).decode()
        with self._changing() as accounts:
            is_new = name not in accounts
            accounts[name] = hashed
        return is_new

    def remove(self, name: str) -> bool:
        """Remove an account, which ends its logins; False if there was none.

        Raises AccountRefused.
        """
        if name not in self._accounts():
            return False
        with self._changing() as accounts:
            return accounts.pop(name, None) is not None

    def _accounts(self) -> dict[str, str]:
        """The accounts by name; those of the last good file where this one is none.

        Empty where there never was a file. Raises AccountRefused where there never was a good one.
        """
        version = self._version()
        if self._good is not None and version == self._seen:
            return self._good
        try:
            read = self._read()
            if version is not None and not version.size_bytes and self._good:
                raise AccountRefused(f"The file of accounts {self._path} is empty.")
        except AccountRefused as error:
            if self._good is None:
                raise
            _log.warning("%s Until then the accounts that were read before hold.", error)
        else:
            self._good = read
        self._seen = version
        return self._good

    def _version(self) -> _Version | None:
        """None for no file. Read before the content: what changes in between is read again."""
        try:
            status = self._path.stat()
        except OSError:
            return None
        return _Version(status.st_mtime_ns, status.st_size, status.st_ino)

    def _read(self) -> dict[str, str]:
        """The accounts that the file holds now. Raises AccountRefused."""
        try:
            return _parse(self._path.read_text("utf-8"), self._path)
        except FileNotFoundError:
            if not self._good:
                return {}
            raise AccountRefused(f"The file of accounts {self._path} is missing.") from None
        except (OSError, UnicodeDecodeError) as error:
            raise AccountRefused(
                f"The file of accounts {self._path} cannot be read ({error})."
            ) from error

    @contextmanager
    def _changing(self) -> Iterator[dict[str, str]]:
        """The accounts as they are in the file, to be changed; written at the end.

        Nobody else who changes them comes in between. Raises AccountRefused, also for a file that
        is not whole: it must not be replaced by what was read before.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{self._path}.lock", timeout=_LOCK_S):
                accounts = self._read()
                yield accounts
                self._write(accounts)
        except Timeout:
            raise AccountRefused(
                f"Another command is changing {self._path}. Run this one again."
            ) from None
        except OSError as error:
            raise AccountRefused(
                f"The file of accounts {self._path} cannot be written ({error.strerror})."
            ) from error

    def _write(self, accounts: dict[str, str]) -> None:
        """Replace the file as a whole, readable by its owner alone."""
        lines = (f"{name}:{hashed}\n" for name, hashed in accounts.items())
        descriptor, temporary = tempfile.mkstemp(dir=self._path.parent)  # mode 0600
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write("".join(lines) or _NO_ACCOUNTS)
        durable.replace(Path(temporary), self._path)


def check_name(name: str) -> None:
    """Raises AccountRefused unless this can be the name of a person."""
    if name.lower() in _TAKEN:
        raise AccountRefused(f"{name!r} {_TAKEN[name.lower()]}; take another name.")
    if not _NAME.fullmatch(name):
        raise AccountRefused(
            f"{name!r} cannot be a user's name: take up to 64 letters, digits and . _ @ -"
        )


def no_such_user(name: str) -> AccountRefused:
    return AccountRefused(f"There is no user {name!r}. List them with: python app.py user list")


def _parse(text: str, path: Path) -> dict[str, str]:
    accounts = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, hashed = line.partition(":")
        name_is_right = _NAME.fullmatch(name) and name not in _TAKEN
        if not name_is_right or not _HASH.fullmatch(hashed.strip()):
            raise AccountRefused(
                f"Line {number} of {path} is no account (name:bcrypt hash). Mend or delete it."
            )
        accounts[name] = hashed.strip()
    return accounts
