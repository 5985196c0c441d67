"""The application in this process, and a real browser that looks at it."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from playwright.sync_api import Browser, Playwright

from chat.ui.serving import close_streams
from host.serve import application
from host.workspace import Workspace

BROWSERS = ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome")


class Updates:
    """An ASGI application that counts the bytes of every streamed update on its way out."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.sizes: list[int] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def counted(message: Any) -> None:
            body = message.get("body", b"")
            if b"process_generating" in body:
                self.sizes.append(len(body))
            await send(message)

        await self._app(scope, receive, counted if scope["type"] == "http" else send)

    def take(self) -> list[int]:
        """The sizes since the last time."""
        taken, self.sizes = self.sizes, []
        return taken


@contextmanager
def served(workspace: Workspace) -> Iterator[tuple[str, Updates]]:
    """The whole application on a free port of this process: its address and its updates."""
    app = application(workspace, "unused", None)
    workspace.warm_embedder()
    updates = Updates(app)
    config = uvicorn.Config(
        updates, log_level="critical", access_log=False, timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.05)
        try:
            yield address, updates
        finally:
            close_streams(app)
            server.should_exit = True
            thread.join(10)


def launch(playwright: Playwright) -> Browser:
    """The system's Chromium, or the one that the variable CHROMIUM gives the path of."""
    path = os.environ.get("CHROMIUM") or next(filter(os.path.exists, BROWSERS), None)
    return playwright.chromium.launch(
        executable_path=path,
        args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
    )
