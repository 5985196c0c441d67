"""Files from the browser: how much may wait, and what is left of those that failed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient

from chat.ui.i18n import EN, ZH
from chat.ui.login import Login
from chat.ui.receiving import ABANDONED_S, Uploads
from chat.ui.sentences import told
from chat.ui.serving import mount
from chat.ui.uploads import discard, take_in
from retrieval.errors import StorageFull, Unreadable
from tests.loops import run_apart

UPLOAD = "/gradio_api/upload"
BEGUN = b'--b\r\ncontent-disposition: form-data; name="files"; filename="a"\r\n\r\n'


class Names(Login):
    """Whoever says who they are is believed."""

    def owner(self, request: Request) -> str | None:
        return request.headers.get("x-who")


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path / "uploads"))
    return tmp_path / "uploads"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def app(folder: Path, clock: Clock) -> FastAPI:
    """A page with quotas of 1,000 bytes for a person and 2,000 in all."""
    with gr.Blocks() as page:
        gr.File()
    return mount(FastAPI(), page, login=Names(), uploads=Uploads(folder, 1000, 2000, clock))


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, headers={"x-who": "ada"}) as client:
        yield client


def send(client: TestClient, size_bytes: int, who: str = "ada", name: str = "a.txt") -> Any:
    files = {"files": (name, b"x" * size_bytes)}
    return client.post(UPLOAD, files=files, headers={"x-who": who})


def held(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_the_same_file_of_two_people_comes_twice(client: TestClient, folder: Path) -> None:
    [ada], [bob] = send(client, 100).json(), send(client, 100, "bob").json()
    assert ada != bob
    discard(Path(ada))
    assert Path(bob).read_bytes() == b"x" * 100
    discard(Path(bob))
    assert list(folder.iterdir()) == []


def test_one_persons_files_have_a_limit_which_is_told(client: TestClient, folder: Path) -> None:
    [first] = send(client, 500).json()
    refused = send(client, 500)
    assert refused.status_code == 413
    assert "0.98 KiB" in refused.text
    assert "--upload-quota" in refused.text
    chinese = {"files": ("a.txt", b"x" * 500)}
    assert "上限" in client.post(UPLOAD, files=chinese, headers={"accept-language": "zh"}).text
    assert held(folder) == [Path(first)]
    discard(Path(first))  # it was taken in
    assert send(client, 500).status_code == 200


def test_all_peoples_files_have_one_too(client: TestClient, folder: Path) -> None:
    assert send(client, 600, "ada").status_code == 200
    assert send(client, 600, "bob").status_code == 200
    refused = send(client, 600, "eve")
    assert refused.status_code == 413
    assert "--upload-quota-total" in refused.text
    assert len(held(folder)) == 2


def test_a_file_that_is_too_large_is_refused_in_words(app: FastAPI, folder: Path) -> None:
    app.state.page.get_blocks().max_file_size = 100
    with TestClient(app) as client:
        refused = send(client, 200)
        assert (refused.status_code, refused.text.split(".")[0]) == (
            413,
            "The file is larger than 100 B",
        )
        assert held(folder) == []


def test_nobody_sends_nothing(client: TestClient, folder: Path) -> None:
    del client.headers["x-who"]
    assert client.post(UPLOAD, files={"files": ("a.txt", b"x")}).status_code == 401
    assert held(folder) == []


@pytest.mark.parametrize("way", ["process_recording", "component_server", "component_server/"])
def test_there_is_one_way_for_files(client: TestClient, way: str) -> None:
    files = {"files": ("a.txt", b"x")}
    assert client.post(f"/gradio_api/{way}", files=files).status_code == 404


def test_a_form_that_is_none_leaves_nothing(client: TestClient, folder: Path) -> None:
    kind = {"content-type": "multipart/form-data; boundary=b"}
    begun = BEGUN + b"xx\r\n--b\r\n\x00"
    assert client.post(UPLOAD, content=begun, headers=kind).status_code == 400
    assert client.post(UPLOAD, content=b"x").status_code == 400
    assert held(folder) == []


def test_an_upload_that_breaks_off_leaves_nothing(app: FastAPI, folder: Path) -> None:
    begun = BEGUN + b"x" * 500
    messages = iter(
        [
            {"type": "http.request", "body": begun, "more_body": True},
            {"type": "http.disconnect"},
        ]
    )
    seen: list[int] = []

    async def receive() -> Any:
        seen.append(len(held(folder)))
        return next(messages)

    async def send(message: Any) -> None:
        pass

    headers = [(b"content-type", b"multipart/form-data; boundary=b"), (b"x-who", b"ada")]
    scope = {"type": "http", "method": "POST", "path": UPLOAD, "headers": headers}
    scope |= {"query_string": b"", "scheme": "http", "server": ("host", 80)}
    run_apart(app(scope, receive, send))
    assert seen == [0, 1]
    assert held(folder) == []


def test_what_no_handler_takes_in_goes_and_so_does_what_a_kill_left(
    client: TestClient, folder: Path, clock: Clock
) -> None:
    [left] = send(client, 600).json()
    assert send(client, 600).status_code == 413
    clock.now_s += ABANDONED_S + 1
    assert send(client, 600).status_code == 200
    assert not Path(left).exists()
    assert len(held(folder)) == 1
    Uploads(folder)
    assert held(folder) == []


def test_a_file_chosen_twice_is_added_once(folder: Path) -> None:
    class Library:
        added = 0

        def add(self, path: Path, *, owner: str, name: str) -> None:
            path.read_bytes()
            self.added += 1

    file = folder / "token" / "hash" / "a.txt"
    file.parent.mkdir(parents=True)
    file.write_text("x")
    library = Library()
    [outcome] = take_in(library, [file, file], "ada")  # type: ignore[arg-type]
    assert (outcome.problem, library.added) == (None, 1)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Unreadable("There is no file /srv/page turn/a b.txt. Check"), None),
        (Unreadable("There is no file /srv/x/a.txt. Check"), "There is no file a.txt. Check"),
        (Unreadable("/srv/x/a.txt vanished"), "a.txt vanished"),
        (StorageFull(Path("/srv/pageturn/var")), None),
        (Unreadable("It has 1/2 of it, and/or more"), "It has 1/2 of it, and/or more"),
    ],
)
def test_no_message_of_the_page_names_a_folder_of_the_server(
    error: Exception, said: str | None
) -> None:
    for words in (EN, ZH):
        shown = told(str(error), words)
        assert "/srv" not in shown
        assert said is None or shown == said
