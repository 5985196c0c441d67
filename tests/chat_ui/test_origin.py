"""Whose requests are answered, by what a browser says of them and what programs leave out."""

import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient
from starlette.responses import HTMLResponse

from chat.ui.origin import OwnPageOnly

HERE = "http://127.0.0.1:7860"
NAVIGATION = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


@pytest.fixture
def client() -> TestClient:
    app = FastAPI()
    app.add_middleware(OwnPageOnly)

    @app.api_route("/{path:path}", methods=["GET", "HEAD", "POST", "OPTIONS", "DELETE"])
    def everything(path: str, request: Request) -> HTMLResponse:
        return HTMLResponse("told")

    return TestClient(app, base_url=HERE)


@pytest.mark.parametrize(
    "headers",
    [
        {},  # a program
        {"authorization": "Bearer x"},
        {"sec-fetch-site": "same-origin", "origin": HERE},
        {"sec-fetch-site": "none"},  # typed in, or a bookmark
        {"origin": HERE},
        {"referer": f"{HERE}/?c=1"},
        {"origin": "https://docs.example", "host": "docs.example"},  # behind a proxy with TLS
        {"sec-fetch-site": "same-origin", "origin": "https://docs.example"},  # which renames us
        {"origin": "http://[::1]:7860", "host": "[::1]:7860"},
        {"origin": "http://LOCALHOST:7860", "host": "localhost:7860"},
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_the_page_and_programs_are_answered(
    client: TestClient, method: str, headers: dict[str, str]
) -> None:
    assert client.request(method, "/config", headers=headers).text == "told"


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "same-site", "origin": "http://127.0.0.1:8000"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "cross-site", "origin": HERE},
        {"sec-fetch-site": "cross-site"} | NAVIGATION,
        {"sec-fetch-site": ""},
        {"origin": "http://127.0.0.1:8000"},
        {"origin": "http://localhost:7860"},
        {"origin": "http://127.0.0.1"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "http://127.0.0.1:7860.evil.example"},
        {"origin": "http://evil.example/http://127.0.0.1:7860"},
        {"origin": "http://[", "referer": HERE},
        {"origin": "file://127.0.0.1:7860"},
        {"referer": "http://evil.example/"},
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS", "DELETE"])
def test_another_page_is_refused(client: TestClient, method: str, headers: dict[str, str]) -> None:
    refused = client.request(method, "/config", headers=headers)
    assert refused.status_code == 403
    assert "told" not in refused.text
    assert not [name for name in refused.headers if name.startswith("access-control")]


def test_what_came_by_tls_must_come_from_there() -> None:
    app = FastAPI()
    app.add_middleware(OwnPageOnly)
    client = TestClient(app, base_url="https://docs.example")
    assert client.get("/x", headers={"origin": "http://docs.example"}).status_code == 403
    assert client.get("/x", headers={"origin": "https://docs.example"}).status_code == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"} | NAVIGATION,
        {"sec-fetch-site": "same-site"} | NAVIGATION,
        {"referer": "http://evil.example/"},
    ],
)
def test_a_link_to_the_page_makes_the_browser_ask_again_by_itself(
    client: TestClient, headers: dict[str, str]
) -> None:
    led = client.get("/?c=1", headers=headers)
    assert led.status_code == 200
    assert "refresh" in led.text
    assert "told" not in led.text
    assert client.post("/?c=1", headers=headers).status_code == 403


@pytest.mark.parametrize("dest", ["iframe", "frame", "embed", "object", "image", ""])
def test_the_page_is_in_no_frame_of_another(client: TestClient, dest: str) -> None:
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": dest}
    assert client.get("/", headers=headers).status_code == 403


def test_a_web_socket_of_another_page_is_refused() -> None:
    from starlette.testclient import WebSocketDenialResponse

    app = FastAPI()
    app.add_middleware(OwnPageOnly)
    client = TestClient(app, base_url=HERE)
    with (
        pytest.raises(WebSocketDenialResponse) as denied,
        client.websocket_connect("/x", headers={"origin": "http://evil.example"}),
    ):
        pass
    assert denied.value.status_code == 403
