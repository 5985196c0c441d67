"""Who is at the page: the owner of everything that a request may see.

Gradio has the form. The rest is ours, in place of Gradio's own: what the form is sent to, the
cookie, the logins (`logins.py`) and how fast one may guess (`attempts.py`).

    POST /login     username, password -> a cookie
    POST /logout    ends all logins of whoever asks
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Form, HTTPException, Request, Response

from chat.ui.attempts import Attempts, TooMany
from chat.ui.i18n import words_for
from chat.ui.logins import LOGIN_S, Accounts, Logins

if TYPE_CHECKING:
    import gradio as gr

# Whose documents and conversations they are where there are no accounts.
LOCAL = "local"
MESSAGE = "Pageturn · your own documents and conversations, and the shared library"


def owner_of(request: gr.Request) -> str:
    """The owner in a handler of the page: who logged in, as Gradio knows it, never an input."""
    return request.username or LOCAL


class Login:
    """The way in to one page. Without accounts everybody who reaches it is the local owner.

    Logins are kept in `path`, or for the life of the process. `sleep` waits so many seconds.
    """

    def __init__(
        self,
        accounts: Accounts | None = None,
        path: Path | None = None,
        *,
        attempts: Attempts | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._accounts = accounts
        self._logins = Logins(accounts, path) if accounts is not None else None
        # The one of Gradio's two names whose content Gradio never tells scripts.
        self._cookie = f"access-token-unsecure-{self._logins.cookie_id}" if self._logins else ""
        self._attempts = attempts or Attempts()
        self._sleep = sleep

    def options(self) -> dict[str, Any]:
        """Arguments of ``gr.mount_gradio_app``: Gradio shows its form, and checks nothing."""
        if self._accounts is None:
            return {}
        return {"auth": lambda name, password: False, "auth_message": MESSAGE}

    def guard(self, page: Any) -> None:
        """The mounted Gradio application looks up its cookie in our logins."""
        if self._logins is not None:
            page.tokens = self._logins
            page.cookie_id = self._logins.cookie_id

    def owner(self, request: Request) -> str | None:
        """Who asks for a route of ours, by the page's cookie; None: nobody who is logged in."""
        if self._logins is None:
            return LOCAL
        return self._logins.get(request.cookies.get(self._cookie))

    def router(self) -> APIRouter:
        """The routes, in place of Gradio's own, whose cookie is one for every site."""
        routes = APIRouter()
        accounts, logins = self._accounts, self._logins
        # One at a time: guessing must not take the processor from those who wait for answers.
        one_check = CapacityLimiter(1)

        @routes.post("/login")
        async def login(
            request: Request,
            response: Response,
            username: Annotated[str, Form()] = "",
            password: Annotated[str, Form()] = "",
        ) -> dict[str, bool]:
            if accounts is None or logins is None:
                raise HTTPException(404, "Nobody logs in here.")
            name = username.strip()
            address = request.client.host if request.client else ""
            try:
                with self._attempts.place(address):
                    await self._sleep(self._attempts.delay_s(name, address))
                    right = await to_thread.run_sync(
                        accounts.verify, name, password, limiter=one_check
                    )
            except TooMany:
                busy = words_for(request)("login_busy")
                raise HTTPException(429, busy, headers={"Retry-After": "5"}) from None
            if not right:
                self._attempts.failed(name, address)
                raise HTTPException(400, "Incorrect credentials.")
            self._attempts.succeeded(name)
            response.set_cookie(
                self._cookie,
                logins.begin(name),
                max_age=LOGIN_S,
                httponly=True,
                samesite="strict",
                secure=request.url.scheme == "https",
            )
            return {"success": True}

        @routes.post("/logout")
        def logout(request: Request, response: Response) -> dict[str, bool]:
            name = self.owner(request)
            if logins is not None and name is not None:
                logins.end(name)
                response.delete_cookie(self._cookie, httponly=True, samesite="strict")
            return {"success": True}

        return routes
