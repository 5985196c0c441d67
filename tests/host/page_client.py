"""The page's own HTTP interface without a browser: what a person with other intentions can send."""

import json
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import httpx


class PageClient:
    """One browser's worth of cookies at a server's page."""

    def __init__(self, address: str) -> None:
        self.http = httpx.Client(base_url=address, timeout=60)
        self._session_hash = f"test{id(self)}"

    def __enter__(self) -> "PageClient":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.http.close()

    def login(self, name: str, password: str) -> int:
        form = {"username": name, "password": password}
        return self.http.post("login", data=form).status_code

    def handlers(self) -> list[dict[str, Any]]:
        """Every handler of the page as the server describes it to the browser."""
        config = self.http.get("config").raise_for_status().json()
        handlers: list[dict[str, Any]] = [f for f in config["dependencies"] if f["backend_fn"]]
        return handlers

    def called(self, name: str, *values: Any) -> str:
        """Call the first handler of a name, as the browser does; returns all that it says."""
        handler = next(f for f in self.handlers() if f["api_name"] == name)
        missing = len(handler["inputs"]) - len(values)
        return self.call(handler, [*values, *[None] * missing])

    def call(
        self, handler: dict[str, Any], data: list[Any], event: dict[str, Any] | None = None
    ) -> str:
        """Call a handler with a value for each of its inputs, and what its event carries."""
        body = {
            "data": data,
            "event_data": event,
            "fn_index": handler["id"],
            "trigger_id": None,
            "session_hash": self._session_hash,
        }
        if not handler["queue"]:
            return self.http.post("gradio_api/run/predict", json=body).text
        self.http.post("gradio_api/queue/join", json=body).raise_for_status()
        return "\n".join(self._messages())

    def _messages(self) -> Iterator[str]:
        query = {"session_hash": self._session_hash}
        with self.http.stream("GET", "gradio_api/queue/data", params=query) as stream:
            for line in stream.iter_lines():
                if line.startswith("data: "):
                    yield line
                    if json.loads(line[6:])["msg"] == "close_stream":
                        return
