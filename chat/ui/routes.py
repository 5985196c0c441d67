"""What the page fetches by an address of its own: exported conversations, pictures of pages.

Each asks who wants it, and the services find nothing that is somebody else's. Nothing is kept in a
cache that others could reach.

    GET /export/{session}.md, .json
    GET /pages/{document}/{page}.png?words=120-180,300-340
    GET /news
"""

import time
from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response

from chat import export
from chat.errors import SessionNotFound
from retrieval.errors import DocumentNotFound
from retrieval.page_image import PageNotDrawn

if TYPE_CHECKING:
    from chat.conversation import Conversations
    from retrieval.library import Library

_KINDS = {
    "md": (export.to_markdown, "text/markdown; charset=utf-8"),
    "json": (export.to_json, "application/json"),
}
# Seen by the one who asked, and by no page of another site.
_PRIVATE = {"cache-control": "private, no-store", "cross-origin-resource-policy": "same-origin"}
_SPANS = r"^\d{1,7}-\d{1,7}(,\d{1,7}-\d{1,7}){0,31}$"


def router(
    conversations: "Conversations", library: "Library", owner_of: Callable[[Request], str | None]
) -> APIRouter:
    """The routes; ``owner_of`` says who asks, None for nobody who may."""

    # Neither waits for anything, so neither is worth a thread.
    async def asker(request: Request) -> str:
        owner = owner_of(request)
        if owner is None:
            raise HTTPException(401, "Log in first.")
        return owner

    files = APIRouter()

    @files.get("/export/{session_id}.{kind}")
    def exported(session_id: str, kind: str, owner: Annotated[str, Depends(asker)]) -> Response:
        if kind not in _KINDS:
            raise HTTPException(404, "Conversations are exported as .md or .json.")
        write, media_type = _KINDS[kind]
        try:
            session = conversations.session(session_id, owner)
            text = write(session, conversations.turns(session_id, owner))
        except SessionNotFound as error:
            raise HTTPException(404, str(error)) from None
        name = quote(export.file_name(session, kind))
        disposition = {"content-disposition": f"attachment; filename*=UTF-8''{name}"}
        return Response(text, media_type=media_type, headers=_PRIVATE | disposition)

    @files.get("/news", dependencies=[Depends(asker)])
    async def news() -> Response:
        """Changes whenever the page may; new with every call while a turn is on its way."""
        versions = conversations.version, library.version, conversations.held_pages
        moment = time.perf_counter() if conversations.is_answering else 0.0
        told = blake2b(repr((versions, moment)).encode(), digest_size=8).hexdigest()
        return Response(told, media_type="text/plain", headers=_PRIVATE)

    @files.get("/pages/{document_id}/{page}.png")
    def page_image(
        document_id: str,
        page: int,
        owner: Annotated[str, Depends(asker)],
        words: Annotated[str | None, Query(pattern=_SPANS)] = None,
    ) -> Response:
        ranges = [span.split("-") for span in words.split(",")] if words else []
        spans = [(int(start), int(end)) for start, end in ranges]
        try:
            picture = library.page_image(document_id, page, spans, owner)
        except (DocumentNotFound, PageNotDrawn) as error:
            raise HTTPException(404, str(error)) from None
        return Response(picture, media_type="image/png", headers=_PRIVATE)

    return files
