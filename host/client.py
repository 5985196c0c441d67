"""The actions of a workspace, carried out by the server that holds its data folder."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

import httpx

from host.datafolder import ServerInfo
from host.errors import ServerFailed
from host.workspace import OWNER, Event

# The server accepts a connection as soon as it holds the port, and answers when its model is
# loaded; an answer may take as long as the model thinks. So only connecting has a limit.
_TIMEOUT = httpx.Timeout(None, connect=5.0)


class Client:
    """Speaks to a running server; has the methods of `host.workspace.Workspace` that act."""

    def __init__(self, server: ServerInfo) -> None:
        self._server = server
        self._http = httpx.Client(
            base_url=server.address,
            headers={"Authorization": f"Bearer {server.token}"},
            timeout=_TIMEOUT,
            trust_env=False,  # a proxy has no business between us and this machine
        )

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def documents(self, owner: str = OWNER) -> list[Event]:
        documents: list[Event] = self._call("GET", "api/documents", owner=owner)
        return documents

    def remove(self, document_id: str, owner: str = OWNER) -> Event:
        removed: Event = self._call("DELETE", f"api/documents/{quote(document_id)}", owner=owner)
        return removed

    def note_leaving(self, name: str) -> None:
        self._call("POST", f"api/owners/{quote(name)}/leaving")

    def remove_owner(self, name: str) -> Event:
        removed: Event = self._call("DELETE", f"api/owners/{quote(name)}")
        return removed

    def memory(self) -> Event:
        report: Event = self._call("GET", "api/memory")
        return report

    def add(self, paths: Sequence[Path], owner: str = OWNER) -> Iterator[Event]:
        body = {"paths": [str(path.absolute()) for path in paths], "owner": owner}
        return self._stream("api/add", body)

    def rebuild_index(self) -> Iterator[Event]:
        return self._stream("api/rebuild-index", {})

    def ask(
        self,
        question: str,
        *,
        session: str | None = None,
        options: dict[str, Any] | None = None,
        owner: str = OWNER,
    ) -> Iterator[Event]:
        body = {"question": question, "session": session, "options": options or {}, "owner": owner}
        return self._stream("api/ask", body)

    def _call(self, method: str, path: str, **query: str) -> Any:
        try:
            response = self._http.request(method, path, params=query)
        except httpx.HTTPError as error:
            raise self._lost(error) from error
        self._check(response)
        return response.json()

    def _stream(self, path: str, body: dict[str, Any]) -> Iterator[Event]:
        """Events of a stream. Closing the iterator closes the connection, and so stops a turn."""
        try:
            with self._http.stream("POST", path, json=body) as response:
                if response.is_error:
                    response.read()
                self._check(response)
                for line in response.iter_lines():
                    event: Event = json.loads(line)
                    if event["event"] == "error":
                        failure = ServerFailed(event["message"])
                        failure.exit_status = event["exit_status"]
                        raise failure
                    yield event
        except httpx.HTTPError as error:
            raise self._lost(error) from error

    def _check(self, response: httpx.Response) -> None:
        if not response.is_error:
            return
        try:
            detail = response.json()["detail"]
        except (ValueError, KeyError, TypeError):
            detail = None
        if isinstance(detail, str):
            raise ServerFailed(detail)
        raise ServerFailed(
            f"The server at {self._server.address} refused the request ({response.status_code}). "
            "Is it of another version? Restart it."
        )

    def _lost(self, error: httpx.HTTPError) -> ServerFailed:
        return ServerFailed(
            f"The server at {self._server.address} (process {self._server.pid}) does not answer "
            f"({type(error).__name__}). If it has ended, run the command again."
        )
