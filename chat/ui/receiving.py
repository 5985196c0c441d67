"""How files come from the browser: in front of Gradio's own route, with a limit on what may wait.

    POST /gradio_api/upload     a form with files -> the paths that the page's handlers get

Every upload has a folder of its own, so that two people may send the same file at once. One that
fails leaves nothing; one that no handler takes in goes after an hour, and at the next start.
"""

from __future__ import annotations

import math
import secrets
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import PlainTextResponse
from gradio.route_utils import MultiPartException, upload_fn
from gradio.routes import file_upload_statuses
from starlette.requests import ClientDisconnect
from starlette.types import Message

from chat.ui.figures import binary_size, size
from chat.ui.i18n import words_for

# Routes of Gradio's that take files, too, and that no component of the page uses.
_OTHER_WAYS = (
    "/gradio_api/process_recording",
    "/gradio_api/component_server",
    "/gradio_api/component_server/",
)
DEFAULT_QUOTA_BYTES = 2 * 2**30
ABANDONED_S = 3600.0


class QuotaReached(Exception):
    """More than may wait of one owner's, or of all, with the limit."""

    def __init__(self, key: str, limit_bytes: int) -> None:
        super().__init__(key)
        self.key = key
        self.limit_bytes = limit_bytes


@dataclass
class _Held:
    owner: str
    began_s: float
    size_bytes: int = 0
    coming: bool = True


class Uploads:
    """The folder of uploads that wait to be taken in, and how much of it each owner may fill.

    `folder` is Gradio's, and nobody else's: what an earlier process left in it is removed. For one
    thread, that of the event loop.
    """

    def __init__(
        self,
        folder: Path,
        quota_bytes: int = DEFAULT_QUOTA_BYTES,
        total_bytes: int = DEFAULT_QUOTA_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._quota_bytes = quota_bytes
        self._total_bytes = total_bytes
        self._clock = clock
        self._held: dict[Path, _Held] = {}
        shutil.rmtree(folder, ignore_errors=True)

    def begin(self, owner: str) -> Path:
        """A folder for one upload; what was abandoned goes first."""
        self._sweep()
        folder = self._folder / secrets.token_urlsafe(16)
        folder.mkdir(parents=True)
        self._held[folder] = _Held(owner, self._clock())
        return folder

    def count(self, folder: Path, more_bytes: int) -> None:
        """So much more of an upload has come. Raises QuotaReached."""
        held = self._held[folder]
        held.size_bytes += more_bytes
        own = sum(one.size_bytes for one in self._held.values() if one.owner == held.owner)
        if own > self._quota_bytes:
            raise QuotaReached("upload_quota_own", self._quota_bytes)
        if sum(one.size_bytes for one in self._held.values()) > self._total_bytes:
            raise QuotaReached("upload_quota_all", self._total_bytes)

    def end(self, folder: Path, arrived: bool) -> None:
        """An upload is complete and waits for its handler, or has failed and goes."""
        self._held[folder].coming = False
        if not arrived:
            del self._held[folder]
            shutil.rmtree(folder, ignore_errors=True)

    def _sweep(self) -> None:
        """Forget what was taken in, which removes the folder, and remove what nobody came for."""
        for folder, held in list(self._held.items()):
            if held.coming:
                continue
            if self._clock() - held.began_s > ABANDONED_S:
                shutil.rmtree(folder, ignore_errors=True)
            if not folder.exists():
                del self._held[folder]


def router(uploads: Uploads, owner_of: Callable[[Request], str | None]) -> APIRouter:
    """The route; `owner_of` says who asks, None for nobody who may."""
    routes = APIRouter()

    for address in _OTHER_WAYS:

        @routes.post(address)
        def not_here() -> None:
            raise HTTPException(404)

    @routes.post("/gradio_api/upload", response_model=None)
    async def upload(request: Request, upload_id: str | None = None) -> list[str] | Response:
        owner = owner_of(request)
        if owner is None:
            raise HTTPException(401, "Log in first.")
        words, limit = words_for(request), request.app.state.page.get_blocks().max_file_size
        folder = uploads.begin(owner)
        body = _Body(request, lambda size_bytes: uploads.count(folder, size_bytes))
        arrived = False
        try:
            paths, _, _ = await upload_fn(
                Request(request.scope, body.receive),
                folder,
                limit or math.inf,
                upload_id,
                upload_progress=file_upload_statuses if upload_id else None,
            )
            arrived = True
            return [str(path) for path in paths]
        except QuotaReached as error:
            refusal = words(error.key, limit=binary_size(error.limit_bytes))
        except MultiPartException as error:
            if "maximum allowed size of" not in error.message or not limit:
                return PlainTextResponse(error.message, 400)
            refusal = words("upload_too_large", limit=size(limit))
        except ClientDisconnect:
            return Response(status_code=400)  # nobody is there to read it
        finally:
            uploads.end(folder, arrived)
            if upload_id and not arrived:
                file_upload_statuses.set_done(upload_id)
        # A browser that is still sending would not read the answer: the rest is dropped.
        await body.drop()
        return PlainTextResponse(refusal, 413)

    return routes


class _Body:
    """The body of a request as it comes in, its length told as it grows."""

    def __init__(self, request: Request, count: Callable[[int], None]) -> None:
        self._request = request
        self._count = count
        self._more = True

    async def receive(self) -> Message:
        message = await self._request.receive()
        self._more = bool(message.get("more_body"))
        self._count(len(message.get("body", b"")))
        return message

    async def drop(self) -> None:
        while self._more:
            message = await self._request.receive()
            self._more = bool(message.get("more_body"))
