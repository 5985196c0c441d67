"""The file of accounts: a line `name:hash` for each person, the hash bcrypt's.

The file is read again whenever it has changed, so `python app.py user add` and an editor both work
beside a running server. Passwords are never stored, only their hashes.
"""

import os
import re
import tempfile
from pathlib import Path

import bcrypt

from host.errors import AccountRefused
from retrieval.owners import SHARED

MIN_PASSWORD_CHARS = 8
MAX_PASSWORD_BYTES = 72  # bcrypt reads no more
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_ROUNDS = 12
# What an unknown name's password is compared with, so that the time does not tell who exists.
_NOBODY = "$2b$12$" + "." * 22 + "BmsGVtLWGSF4XWVdqO6aHxLU5x9YTT6"


class Users:
    """The accounts in `path`; thread-safe, since every change replaces the whole file."""

    def __init__(self, path: Path, rounds: int = _ROUNDS) -> None:
        self._path = path
        self._rounds = rounds
        self._read: tuple[tuple[int, int, int], dict[str, str]] | None = None

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
        accounts = self._accounts()
        is_new = name not in accounts
        self._write(accounts | {name: hashed})
        return is_new

    def remove(self, name: str) -> bool:
        """Remove an account, which ends its logins; False if there was none."""
        accounts = dict(self._accounts())
        if accounts.pop(name, None) is None:
            return False
        self._write(accounts)
        return True

    def _accounts(self) -> dict[str, str]:
        """The file's content by name; empty where there is no file. Raises AccountRefused."""
        try:
            status = self._path.stat()
            version = (status.st_mtime_ns, status.st_size, status.st_ino)
            if self._read is None or self._read[0] != version:
                self._read = (version, _parse(self._path.read_text("utf-8"), self._path))
            return self._read[1]
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError) as error:
            raise AccountRefused(
                f"The file of accounts {self._path} cannot be read ({error})."
            ) from error

    def _write(self, accounts: dict[str, str]) -> None:
        """Replace the file as a whole, readable by its owner alone."""
        text = "".join(f"{name}:{hashed}\n" for name, hashed in accounts.items())
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=self._path.parent)  # mode 0600
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(temporary, self._path)
        except OSError as error:
            raise AccountRefused(
                f"The file of accounts {self._path} cannot be written ({error.strerror})."
            ) from error


def check_name(name: str) -> None:
    """Raises AccountRefused unless this can be the name of a person."""
    if name == SHARED:
        raise AccountRefused(f"{SHARED!r} is the library that everyone reads; take another name.")
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
        if not _NAME.fullmatch(name) or name == SHARED or not hashed.startswith("$2"):
            raise AccountRefused(
                f"Line {number} of {path} is no account (name:bcrypt hash). Mend or delete it."
            )
        accounts[name] = hashed.strip()
    return accounts
