"""Who is at the page: the owner of everything that a request may see.

Gradio has the form and the cookie. Here is what it lacks: a login ends with its account, and a
password is checked beside the event loop instead of in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from anyio import CapacityLimiter, to_thread

if TYPE_CHECKING:
    import gradio as gr
    from starlette.requests import Request

# Whose documents and conversations they are where there are no accounts.
LOCAL = "local"
MESSAGE = "Pageturn · your own documents and conversations, and the shared library"


def owner_of(request: gr.Request) -> str:
    """The owner in a handler of the page: who logged in, as Gradio knows it, never an input."""
    return request.username or LOCAL


class Accounts(Protocol):
    """Where people and their passwords are kept."""

    def verify(self, name: str, password: str) -> bool:
        """Whether this is the person's password; slow on purpose."""
        ...

    def credential(self, name: str) -> str | None:
        """Changes with the person's password; None for nobody."""
        ...


class Logins(dict[str, str]):
    """Gradio's table of logins, from cookie to name, in which a login ends with its account.

    Whoever is removed, or gets another password, is logged out everywhere by that.
    """

    def __init__(self, accounts: Accounts) -> None:
        super().__init__()
        self._accounts = accounts
        self._credentials: dict[str, str | None] = {}

    def __setitem__(self, token: str, name: str) -> None:
        self._credentials[token] = self._accounts.credential(name)
        super().__setitem__(token, name)

    def __delitem__(self, token: str) -> None:
        self._credentials.pop(token, None)
        super().__delitem__(token)

    def get(self, token: str | None, default: Any = None) -> Any:  # type: ignore[override]
        name = super().get(token) if token is not None else None
        if name is None:
            return default
        made_with = self._credentials.get(token or "")
        valid = made_with is not None and made_with == self._accounts.credential(name)
        return name if valid else default


class Login:
    """The way in to one page. Without accounts everybody who reaches it is the local owner."""

    def __init__(self, accounts: Accounts | None = None) -> None:
        self._accounts = accounts
        self._page: Any = None

    def options(self) -> dict[str, Any]:
        """Arguments of ``gr.mount_gradio_app``."""
        accounts = self._accounts
        if accounts is None:
            return {}

        async def check(name: str, password: str) -> bool:
            return await to_thread.run_sync(accounts.verify, name, password, limiter=limiter)

        # One at a time: guessing must not take the processor from those who wait for answers.
        limiter = CapacityLimiter(1)
        return {"auth": check, "auth_message": MESSAGE}

    def guard(self, page: Any) -> None:
        """Take over the logins of the mounted Gradio application."""
        self._page = page
        if self._accounts is not None:
            page.tokens = Logins(self._accounts)

    def owner(self, request: Request) -> str | None:
        """Who asks for a route of ours, by the page's cookie; None: nobody who is logged in."""
        if self._accounts is None:
            return LOCAL
        for kind in ("access-token", "access-token-unsecure"):
            token = request.cookies.get(f"{kind}-{self._page.cookie_id}")
            if token is not None:
                name: str | None = self._page.tokens.get(token)
                return name
        return None
