"""The server: one process that holds a data folder, answers the page and our own commands."""

import logging
import signal
import socket
from asyncio import CancelledError
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING

from host import environment
from host.datafolder import DataFolder, address
from host.errors import PortInUse
from host.models import known, resolve
from host.settings import Settings
from host.users import Users
from host.workspace import Workspace

if TYPE_CHECKING:
    from fastapi import FastAPI

LOGINS_FILE = "logins.json"  # no part of a backup: what it brought back would let people in again
_LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")
# Pages keep a stream open for as long as they are shown; the end doesn't wait for them.
_GOODBYE_S = 2


def serve(settings: Settings, say: Callable[[str], None]) -> None:
    """Serve until Ctrl-C or SIGTERM; `say` gets what a person should know.

    What fails quickly comes first: folder, lock, port, models; then the weights are loaded. Where
    a default model is missing, a page offers to fetch it first. The port takes connections from
    the start, so commands that come early wait for the model.
    Raises HostError and errors of the engine.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    accounts = None
    if settings.auth is not None:
        accounts = Users(settings.auth)
        accounts.require()
    with DataFolder(settings.data_dir) as folder:
        folder.prepare()
        folder.acquire_to_serve()
        with _listen(settings.host, settings.port) as listener:
            port = listener.getsockname()[1]
            _bring_models(settings, listener, say)
            info = folder.publish(settings.host, port)
            workspace = Workspace(settings, say)
            try:
                if settings.host not in _LOOPBACK_HOSTS and accounts is None:
                    say(
                        f"Whoever can reach {settings.host}:{port} can read these documents. "
                        "With --auth FILE the page asks who they are."
                    )
                app = application(workspace, info.token, accounts)
                say_ready = f"Pageturn is ready at {address(settings.host, port)} (Ctrl-C stops it)"
                _run(app, listener, lambda: say(say_ready), workspace)
            finally:
                workspace.close()


def _bring_models(settings: Settings, listener: socket.socket, say: Callable[[str], None]) -> None:
    """Return when both models are here; a page offers to fetch those of ours that are not.

    Raises ModelMissing where nobody can be offered that: for other models, and beyond loopback.
    """
    names = (settings.model, settings.embedder)
    absent = [
        model for name in names if (model := known(name)) and model.missing(settings.models_dir)
    ]
    for name in names:
        if known(name) not in absent or settings.host not in _LOOPBACK_HOSTS:
            resolve(name, settings.models_dir)
    if absent:
        from host.first_minutes import offer_fetch

        where = address(settings.host, listener.getsockname()[1])
        wanted = " and ".join(model.name for model in absent)
        offer = f"{wanted} must be fetched first: open {where}, or run: python app.py fetch"
        offer_fetch(absent, settings.models_dir, listener, lambda: say(offer))
        for name in names:
            resolve(name, settings.models_dir)


def application(workspace: Workspace, token: str, accounts: Users | None) -> "FastAPI":
    """Everything loaded, interrupted turns marked, indexing gone on with, the page built."""
    settings = workspace.settings
    environment.prepare(data_dir=settings.data_dir)
    workspace.migrate()
    conversations, library, engine = workspace.conversations, workspace.library, workspace.engine
    workspace.start_indexing()

    from fastapi import FastAPI

    from chat.ui import routes
    from chat.ui.login import Login
    from chat.ui.page import build, mount
    from chat.ui.receiving import Uploads
    from host.api import LoopbackOnly, router

    app = FastAPI(title="Pageturn", docs_url=None, redoc_url=None, openapi_url=None)
    if settings.host in _LOOPBACK_HOSTS:
        app.add_middleware(LoopbackOnly)
    app.include_router(router(workspace, token))
    login = Login(accounts, settings.data_dir / LOGINS_FILE)
    uploads = Uploads(
        settings.data_dir.absolute() / environment.UPLOADS,
        settings.upload_quota,
        settings.upload_quota_total,
    )
    app.include_router(routes.router(conversations, library, login.owner))
    # The page is mounted last, at the root: it takes whatever no route above has taken.
    return mount(app, build(conversations, library, engine), login=login, uploads=uploads)


def _run(
    app: "FastAPI", listener: socket.socket, ready: Callable[[], None], workspace: Workspace
) -> None:
    import uvicorn
    from fastapi.concurrency import run_in_threadpool

    from chat.ui.serving import close_streams

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            ready()
            # Not before: loading it takes as long as all else together, and the page needs it last.
            workspace.warm_embedder()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            # Turns end first and save what they have; then their streams close by themselves,
            # and those that pages keep open are closed for them.
            await run_in_threadpool(workspace.stop_turns)
            close_streams(app)
            logging.getLogger("uvicorn.error").addFilter(_tells_more_than_the_end)
            await super().shutdown(sockets)

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=_GOODBYE_S,
        lifespan="on",
    )
    # uvicorn raises the signal again when it has closed: an end that was asked for.
    with suppress(KeyboardInterrupt):
        Server(config).run(sockets=[listener])


def _tells_more_than_the_end(record: logging.LogRecord) -> bool:
    """Leaves out that a stream was cut off because the server ends: that was asked for."""
    cause = record.exc_info[1] if record.exc_info else None
    return not (isinstance(cause, CancelledError) or "graceful shutdown" in record.getMessage())


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises PortInUse."""
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise PortInUse(
            f"{host!r} is not an address to listen on. Give one with --host."
        ) from error
    try:
        # Lets a restart have the port at once; a port with a living listener is still refused.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(target)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise PortInUse(
            f"Port {port} on {host} cannot be used ({error.strerror}). "
            "Choose another one with --port, or --port 0 for any free one."
        ) from error
    return listener


def _interrupt(sig: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
