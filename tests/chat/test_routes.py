"""What the page fetches by an address: only by the one whose it is, and kept in no cache."""

from pathlib import Path
from urllib.parse import unquote

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.requests import Request

from chat.ui.routes import router
from tests.chat.conftest import SHORT, SIZE_QUESTION, World


@pytest.fixture(scope="module")
def client(world: World) -> TestClient:
    """Whoever says who they are is believed; nobody is nobody."""

    def owner_of(request: Request) -> str | None:
        return request.headers.get("x-who")

    app = FastAPI()
    app.include_router(router(world.conversations, world.library, owner_of))
    return TestClient(app, headers={"x-who": "local"})


def test_a_conversation_is_downloaded_as_markdown_and_as_json(
    world: World, client: TestClient
) -> None:
    turn = world.ask(SIZE_QUESTION, options=SHORT)
    markdown = client.get(f"/export/{turn.session}.md")
    assert turn.answer in markdown.text
    assert "no-store" in markdown.headers["cache-control"]
    name = unquote(markdown.headers["content-disposition"])
    assert name.startswith("attachment")
    assert name.endswith(".md")
    assert client.get(f"/export/{turn.session}.json").json()["turns"] == [turn.to_json()]
    assert client.get(f"/export/{turn.session}.exe").status_code == 404


def test_the_page_of_a_pdf_is_a_picture_and_another_words_another(
    world: World, client: TestClient, library_dir: Path
) -> None:
    document = world.add(library_dir / "quantising-the-kv-cache.pdf")
    plain = client.get(f"/pages/{document}/1.png")
    assert plain.headers["content-type"] == "image/png"
    assert "no-store" in plain.headers["cache-control"]
    assert plain.content[:4] == b"\x89PNG"
    boxed = client.get(f"/pages/{document}/1.png?words=0-20,40-60")
    assert boxed.content != plain.content
    assert client.get(f"/pages/{document}/99.png").status_code == 404
    assert client.get(f"/pages/{document}/1.png?words=--rm").status_code == 422


def test_anothers_ids_are_not_found_and_nobody_gets_nothing(
    world: World, client: TestClient, library_dir: Path
) -> None:
    turn = world.ask(SIZE_QUESTION, options=SHORT)
    document = world.add(library_dir / "quantising-the-kv-cache.pdf")
    for path in (f"/export/{turn.session}.md", f"/pages/{document}/1.png"):
        assert client.get(path).status_code == 200
        assert client.get(path, headers={"x-who": "mallory"}).status_code == 404
        assert (
            client.get(path, headers={"x-who": "mallory"}).text
            == client.get(path, headers={"x-who": "eve"}).text
        )
        del client.headers["x-who"]
        assert client.get(path).status_code == 401
        client.headers["x-who"] = "local"
