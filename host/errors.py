"""Errors of the host, and how an error of any part becomes one sentence and an exit status."""

import sys
from typing import NamedTuple


class HostError(Exception):
    """A failure that its sentence explains; the command line prints it without a traceback."""

    exit_status = 1


class SettingRefused(HostError):
    """A setting that is unknown, out of range or contradicts another."""

    exit_status = 2


class DataFolderUnusable(HostError):
    """The data folder cannot be created or written."""


class DataFolderBusy(HostError):
    """Another process works on the data folder."""


class AccountRefused(HostError):
    """An account that does not exist, or cannot be made like this."""


class BackupFailed(HostError):
    """A backup could not be written, or what should be restored is none."""


class PortInUse(HostError):
    """The address that the server should listen on is taken or not ours."""


class ModelMissing(HostError):
    """A model is not on this machine; the sentence says what brings it."""


class FetchFailed(HostError):
    """A model could not be downloaded, or is not the one that was expected."""


class ServerFailed(HostError):
    """The server that holds the data folder refused a request or went away."""


class Explained(NamedTuple):
    """What a person is told about an error: one sentence, and the exit status of the command."""

    sentence: str
    exit_status: int


# The base error of each part, by module. They are looked up among the modules that are loaded
# already: an error can only come from such a one, and importing the engine here would load torch.
_BASES = (
    ("engine.errors", "EngineError"),
    ("retrieval.errors", "RetrievalError"),
    ("chat.errors", "ChatError"),
)
# What the disk and the database say, by the function of `retrieval.database` that knows it.
_STORAGE = (
    ("is_storage_full", "The disk is full. Free some space and try again; nothing is lost."),
    (
        "is_locked",
        "Another program is writing to the database and does not end. Close it and try again; "
        "nothing is lost.",
    ),
    (
        "is_damaged",
        "The database is damaged; nothing was changed. Put a backup in its place with: "
        "python app.py restore FILE.zip --replace",
    ),
)
_SETTING_ERRORS = ("SettingError", "PoolTooSmall", "BadOption")


def explain(error: BaseException) -> Explained | None:
    """The sentence for an error of a known type; None for a fault of the program itself."""
    if isinstance(error, HostError):
        return Explained(str(error), error.exit_status)
    for module, base in _BASES:
        known = getattr(sys.modules.get(module), base, None)
        if known is not None and isinstance(error, known):
            status = 2 if type(error).__name__ in _SETTING_ERRORS else 1
            return Explained(str(error), status)
    for is_it, sentence in _STORAGE:
        known = getattr(sys.modules.get("retrieval.database"), is_it, None)
        if known is not None and known(error):
            return Explained(sentence, 1)
    return None
