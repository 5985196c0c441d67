"""The interface for our own commands: JSON over loopback, for the holder of the token.

    GET    /api/documents            every document
    DELETE /api/documents/{id}       remove one; 404 where there is none
    DELETE /api/owners/{name}        remove all that a person has
    GET    /api/memory               the engine's MemoryReport
    POST   /api/add  {"paths": [..]} one JSON event a line (see Workspace.add)
    POST   /api/ask  {"question": .., "session": .., "options": {..}}   likewise (Workspace.ask)

What is done is done for the local owner, or for the `owner` in the query or the body: the token
is the right of whoever runs the server. Another owner's document or conversation is not found.

A stream that fails ends with {"event": "error", "message": .., "exit_status": ..}. A client that
goes away stops its turn.
"""

import asyncio
import json
import logging
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, HTTPException
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from host.errors import AccountRefused, explain
from host.workspace import OWNER, Event, Workspace

_log = logging.getLogger("pageturn")
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


class AddRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    paths: list[Path]  # absolute: the server has a current folder of its own
    owner: str = OWNER


class AskRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    question: str
    session: str | None = None
    options: dict[str, Any] = {}
    owner: str = OWNER


def router(workspace: Workspace, token: str) -> APIRouter:
    """The routes, each of which refuses whoever does not show the token."""

    def authorise(authorization: Annotated[str, Header()] = "") -> None:
        expected = f"Bearer {token}"
        # Compared as bytes in constant time: how far a guess is right must not show.
        if not secrets.compare_digest(authorization.encode(), expected.encode()):
            raise HTTPException(401, "This interface needs the token of the data folder.")

    api = APIRouter(prefix="/api", dependencies=[Depends(authorise)])

    @api.get("/documents")
    def documents(owner: str = OWNER) -> list[Event]:
        with _refusals():
            return workspace.documents(owner)

    @api.delete("/documents/{document_id}")
    def remove(document_id: str, owner: str = OWNER) -> Event:
        with _refusals():
            return workspace.remove(document_id, owner)

    @api.post("/owners/{name}/leaving")
    def note_leaving(name: str) -> None:
        workspace.note_leaving(name)

    @api.delete("/owners/{name}")
    def remove_owner(name: str) -> Event:
        return workspace.remove_owner(name)

    @api.get("/memory")
    def memory() -> Event:
        return workspace.memory()

    @api.post("/add")
    def add(request: AddRequest) -> StreamingResponse:
        return _lines(workspace.add(request.paths, request.owner), stop=lambda _: None)

    @api.post("/rebuild-index")
    def rebuild_index() -> StreamingResponse:
        return _lines(workspace.rebuild_index(), stop=lambda _: None)

    @api.post("/ask")
    def ask(request: AskRequest) -> StreamingResponse:
        events = workspace.ask(
            request.question,
            session=request.session,
            options=request.options,
            owner=request.owner,
        )
        return _lines(events, stop=lambda session: workspace.stop(session, request.owner))

    return api


@contextmanager
def _refusals() -> Iterator[None]:
    """What a person asked for and cannot have is a 404 with a sentence."""
    from retrieval.errors import DocumentNotFound, DocumentShared

    try:
        yield
    except (DocumentNotFound, DocumentShared, AccountRefused) as error:
        raise HTTPException(404, str(error)) from None


def _lines(events: Iterator[Event], stop: Callable[[str], Any]) -> StreamingResponse:
    return StreamingResponse(_stream(events, stop), media_type="application/x-ndjson")


async def _stream(events: Iterator[Event], stop: Callable[[str], Any]) -> AsyncIterator[str]:
    """Events as lines, taken from their blocking iterator by a thread of its own.

    The iterator is advanced and closed by that one thread alone. When the client goes away, the
    server cancels this coroutine: then `stop` ends what the iterator may be waiting for (its
    argument is the session of the turn), and the thread closes it at its next event.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Event | None] = asyncio.Queue()
    gone = threading.Event()
    session: str | None = None
    ended = False

    def hand_on(event: Event | None) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(queue.put_nowait, event)

    def advance() -> None:
        try:
            for event in events:
                hand_on(event)
                if gone.is_set():
                    break
        except Exception as error:  # the one place where a stream's error can still be told
            hand_on(_error_event(error))
        finally:
            close = getattr(events, "close", None)
            if close is not None:
                close()
            hand_on(None)

    threading.Thread(target=advance, name="api-stream", daemon=True).start()
    try:
        while (event := await queue.get()) is not None:
            session = event.get("session", session)
            yield json.dumps(event, ensure_ascii=False) + "\n"
        ended = True
    finally:
        gone.set()
        if session is not None and not ended:
            loop.run_in_executor(None, stop, session)


def _error_event(error: Exception) -> Event:
    known = explain(error)
    if known is None:
        _log.exception("A request failed.", exc_info=error)
        message = f"The server met a fault of its own ({type(error).__name__}); its log has more."
        return {"event": "error", "message": message, "exit_status": 1}
    return {"event": "error", "message": known.sentence, "exit_status": known.exit_status}


class LoopbackOnly:
    """ASGI middleware that refuses requests whose Host header is not a loopback name.

    A page of another site can make its own name lead to 127.0.0.1 (DNS rebinding) and would then
    read the documents with the person's browser; the Host header gives it away.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and not _is_loopback(scope):
            response = PlainTextResponse("This server answers to local names only.\n", 421)
            await response(scope, receive, send)
            return
        await self.app(scope, receive, send)


def _is_loopback(scope: Scope) -> bool:
    hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
    if len(hosts) != 1:
        return False
    host = hosts[0].lower()
    name = host[: host.index("]") + 1] if "]" in host else host.split(":")[0]
    return name in LOOPBACK_NAMES
