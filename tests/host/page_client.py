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
        self.session_hash = "test" + str(id(self))
        self._config: dict[str, Any] = {}

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

    def call(self, handler: str, *values: Any, event: dict[str, Any] | None = None) -> str:
        """Call a handler of the page by its name, as the browser does; returns all it says.

        Values go to the handler's inputs in order, those left out are null.
        """
        if not self._config:
            self._config = self.http.get("config").raise_for_status().json()
        [function] = [f for f in self._config["dependencies"] if f["api_name"] == handler]
        data = [*values, *[None] * (len(function["inputs"]) - len(values))]
        body = {
            "data": data,
            "event_data": event,
            "fn_index": function["id"],
            "trigger_id": None,
            "session_hash": self.session_hash,
        }
        self.http.post("gradio_api/queue/join", json=body).raise_for_status()
        return "\n".join(self._messages())

    def _messages(self) -> Iterator[str]:
        query = {"session_hash": self.session_hash}
        with self.http.stream("GET", "gradio_api/queue/data", params=query) as stream:
            for line in stream.iter_lines():
                if line.startswith("data: "):
                    yield line
                    if json.loads(line[6:])["msg"] == "close_stream":
                        return
