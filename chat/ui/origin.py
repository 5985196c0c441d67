"""Who sent a request: a page of this server, or a page of somebody else's in the same browser.

A browser sends the cookies of this address, and reaches a server on its own machine, whichever
page asks. What gives another page away is what the browser itself writes into each request:
`Sec-Fetch-Site`, or, where that is missing (an older browser, an address without TLS that is not
this machine's), `Origin` and `Referer`. Programs write none of them, and are no page.

https://www.w3.org/TR/fetch-metadata/
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, PlainTextResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

REFUSAL = "This server answers to its own page only. Open its address itself.\n"
# Answers a link on another page. The browser then asks for the page itself, as this server's: the
# request of the other page has brought nothing, and the cookie, which is strict, comes along.
_COME_IN = '<!doctype html><title>Pageturn</title><meta http-equiv="refresh" content="0">'


class OwnPageOnly:
    """ASGI middleware that refuses what pages of other origins ask, before anything else looks.

    Another port of the same machine is another origin. Links to the page at `path` work.
    """

    def __init__(self, app: ASGIApp, path: str = "/") -> None:
        self._app = app
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or is_own(scope):
            await self._app(scope, receive, send)
        elif self._is_link(scope):
            page = HTMLResponse(_COME_IN, headers={"cache-control": "no-store"})
            await page(scope, receive, send)
        else:
            await PlainTextResponse(REFUSAL, 403)(scope, receive, send)

    def _is_link(self, scope: Scope) -> bool:
        """Whether a whole window is being led to the page, and not a frame within another.

        An older browser does not tell these apart; there the content security policy keeps the
        page out of frames.
        """
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            return False
        headers = Headers(scope=scope)
        if "sec-fetch-site" in headers:
            where = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")
            return scope["path"] == self._path and where == ("navigate", "document")
        return scope["path"] == self._path and "origin" not in headers


def is_own(scope: Scope) -> bool:
    """Whether a request comes from a page of this server, from its address bar or no browser."""
    headers = Headers(scope=scope)
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    sender = headers.get("origin", headers.get("referer"))
    return sender is None or _is_this_server(sender, headers.getlist("host"), scope["scheme"])


def _is_this_server(sender: str, hosts: list[str], scheme: str) -> bool:
    """Whether an address is of the origin that the request was sent to.

    Behind a proxy with TLS the browser says https where this server sees http, never the reverse.
    """
    try:
        parts = urlsplit(sender)
    except ValueError:
        return False
    schemes = ("https",) if scheme in ("https", "wss") else ("http", "https")
    return parts.scheme in schemes and [parts.netloc.lower()] == [host.lower() for host in hosts]
