"""Who carries out a command: the server on the data folder, or this process by itself."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from host.client import Client
from host.datafolder import DataFolder
from host.settings import Settings
from host.workspace import DATABASE_FILE, Workspace


@contextmanager
def for_writing(settings: Settings, say: Callable[[str], None]) -> Iterator[Workspace | Client]:
    """A running server's client, or a workspace on the folder, held until the end.

    `say` gets a message when something takes long: another command, the loading of a model.
    Raises DataFolderUnusable and DataFolderBusy.
    """
    with DataFolder(settings.data_dir) as folder:
        folder.prepare()
        server = folder.acquire_or_find_server(say)
        if server is not None:
            with Client(server) as client:
                yield client
            return
        workspace = Workspace(settings, say)
        try:
            workspace.migrate()
            yield workspace
        finally:
            workspace.close()


@contextmanager
def for_reading(settings: Settings) -> Iterator[Workspace | Client | None]:
    """Like `for_writing`, beside another command that writes; None where there is no data yet."""
    with DataFolder(settings.data_dir) as folder:
        server = folder.server()
        if server is not None:
            with Client(server) as client:
                yield client
            return
        from host.restore import is_pending  # here, since it needs the database's library

        has_data = (settings.data_dir / DATABASE_FILE).exists() or is_pending(settings.data_dir)
        if not has_data:
            yield None
            return
        workspace = Workspace(settings)
        try:
            # Where another command has the folder, it has seen to the tables already.
            if folder.acquire():
                workspace.migrate()
                folder.release()
            yield workspace
        finally:
            workspace.close()
