"""How the page is served: its looks, and what the browser is allowed to load."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import gradio as gr
from gradio.route_utils import CustomCORSMiddleware
from starlette.routing import Mount

from chat.ui import receiving
from chat.ui.gradio_words import I18N
from chat.ui.i18n import early_script
from chat.ui.login import Login
from chat.ui.origin import OwnPageOnly
from chat.ui.prompt_queue import PromptQueue
from chat.ui.receiving import Uploads

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HERE = Path(__file__).parent
# Later ones win: colours are used by all, and narrow windows change what is before them.
_STYLES = (
    "colours",
    "frame",
    "history",
    "transcript",
    "turns",
    "quotes",
    "side",
    "pages",
    "kv_size",
    "account",
    "narrow",
)
_GRADIO_LOGIN = ("/login", "/login/", "/logout")
# The engine's thread needs Python's lock at every step, and a thread that draws a page gives it up
# after this time: five milliseconds, Python's own, are half of a step.
_SWITCH_S = 0.0005
_SCRIPTS = ("page", "scroll", "chat", "pages", "account")
_SANS = ["ui-sans-serif", "system-ui", "-apple-system", "Segoe UI", "Noto Sans", "sans-serif"]
_MONO = ["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace"]

# Whatever a document or a model writes, the browser loads from this server only. Gradio itself
# needs inline scripts and styles, and compiles its HTML templates.
_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "media-src 'self' data: blob:",
        "connect-src 'self'",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-ancestors 'self'",
    )
)
_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)


def theme() -> gr.themes.Base:
    """Gradio's base theme on the fonts of the reader's system; colours are in colours.css."""
    return gr.themes.Base(
        primary_hue=gr.themes.colors.teal,
        neutral_hue=gr.themes.colors.stone,
        radius_size=gr.themes.sizes.radius_md,
        font=_SANS,
        font_mono=_MONO,
    ).set(  # the accent of colours.css, which the login form does not have
        button_primary_background_fill="#1f6b66",
        button_primary_background_fill_dark="#1f6b66",
        button_primary_background_fill_hover="#17544e",
        button_primary_background_fill_hover_dark="#17544e",
    )


def launch_options() -> dict[str, Any]:
    """Arguments of ``gr.mount_gradio_app`` that make it our page.

    The styles go into the head as they are: Gradio would rewrite the selectors of its ``css``.
    """
    style = "\n".join((_HERE / f"{name}.css").read_text(encoding="utf-8") for name in _STYLES)
    script = "\n".join((_HERE / f"{name}.js").read_text(encoding="utf-8") for name in _SCRIPTS)
    return {
        "theme": theme(),
        "head": f"<style>{style}</style>\n<script>{script}</script>",
        "footer_links": [],
        "run_history": False,
        "enable_monitoring": False,
        "show_error": False,
        "max_file_size": "200mb",
        "ssr_mode": False,
        "pwa": False,
        "i18n": I18N,
    }


def mount(
    app: FastAPI,
    blocks: gr.Blocks,
    path: str = "/",
    login: Login | None = None,
    uploads: Uploads | None = None,
) -> FastAPI:
    """Serve the page from the application at ``path``, after all routes added before.

    The last middleware is the first to see a request: nothing comes before `OwnPageOnly` but the
    headers of every answer.
    """
    login = login or Login()
    app.add_middleware(LanguageFirst, path=path)
    app.add_middleware(OwnPageOnly, path=path)
    app.add_middleware(OwnServerOnly)
    app.include_router(login.router())
    if uploads is not None:
        app.include_router(receiving.router(uploads, login.owner))
    blocks._queue = PromptQueue(blocks)
    gr.mount_gradio_app(app, blocks, path=path, **launch_options(), **login.options())
    sys.setswitchinterval(_SWITCH_S)
    page = cast(Mount, app.routes[-1]).app
    _take_out(page)
    login.guard(page)
    app.state.page = page
    return app


def _take_out(page: Any) -> None:
    """Take out of Gradio what would undo ours.

    It lets pages of other origins read answers, logs out by a link, and sets a login's cookie for
    the pages of every site.
    """
    page.user_middleware = [
        middleware
        for middleware in page.user_middleware
        if middleware.cls is not CustomCORSMiddleware
    ]
    page.router.routes[:] = [
        route for route in page.router.routes if getattr(route, "path", "") not in _GRADIO_LOGIN
    ]


def close_streams(app: FastAPI) -> None:
    """End the streams that open pages hold; called on the event loop when the server ends."""
    app.state.page.stop_event.set()


class OwnServerOnly:
    """Adds the headers that keep the browser from loading anything from elsewhere."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        await self._app(scope, receive, with_headers if scope["type"] == "http" else send)


class LanguageFirst:
    """Puts a script of ours before Gradio's, which asks for the browser's language as it begins.

    What Gradio itself offers for scripts (``head``, ``js``) runs after that.
    """

    def __init__(self, app: ASGIApp, path: str) -> None:
        self._app = app
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET" or scope["path"] != self._path:
            await self._app(scope, receive, send)
            return
        # Compressed text cannot be added to.
        headers = [pair for pair in scope["headers"] if pair[0] != b"accept-encoding"]
        start: Message = {}
        body = b""

        async def with_script(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start":
                start = message
                return
            body += message.get("body", b"")
            if message.get("more_body"):
                return
            script = f"<script>{early_script()}</script>".encode()
            whole = body.replace(b"<head>", b"<head>" + script, 1)
            kept = [pair for pair in start["headers"] if pair[0].lower() != b"content-length"]
            length = (b"content-length", str(len(whole)).encode())
            await send({**start, "headers": [*kept, length]})
            await send({"type": "http.response.body", "body": whole})

        await self._app({**scope, "headers": headers}, receive, with_script)
