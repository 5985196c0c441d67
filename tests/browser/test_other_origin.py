"""Another page in the same browser: on another port of this machine, or of another site."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, BrowserContext, expect

from host.client import Client
from host.datafolder import DataFolder
from host.users import Users
from tests.browser.conftest import Reader, Server
from tests.host.page_client import PageClient

SECRET = "zwitscherfrosch"
NOTE = f"# Ponds\n\nThe {SECRET} lives in the northern pond and sings at night.\n"
QUESTION = f"Where does the {SECRET} live?"
PASSWORD = "ada's password"
# What a browser calls the server, by the address that it listens on. The last one is no address
# of this machine to the browser, which then sends no Sec-Fetch headers.
NAMES = {
    "127.0.0.1": ("127.0.0.1", "localhost"),
    "::1": ("[::1]",),
    "127.0.0.2": ("127.0.0.2", "docs.example"),
}
STRANGERS = ("localhost", "evil.example")

# Reads whatever it can; says what it read, by address.
READ = """async ([base, addresses]) => {
  const read = {};
  for (const address of addresses) {
    try {
      const answer = await fetch(base + address, {credentials: "include"});
      read[address] = await answer.text();
    } catch (refused) {}
  }
  return read;
}"""
# Calls a handler of the page as the page does, and reads what comes of it.
CALL = """async ([base, body]) => {
  const said = [];
  const post = (type, mode) => fetch(base + "gradio_api/queue/join", {
    method: "POST", credentials: "include", mode, headers: {"content-type": type},
    body: JSON.stringify(body)}).then(answer => answer.text()).then(text => said.push(text));
  await post("application/json", "cors").catch(() => {});
  await post("text/plain", "no-cors").catch(() => {});
  await new Promise(resolve => {
    const address = base + "gradio_api/queue/data?session_hash=" + body.session_hash;
    const stream = new EventSource(address, {withCredentials: true});
    stream.onmessage = event => {
      said.push(event.data);
      if (event.data.includes("close_stream")) { stream.close(); resolve(); }
    };
    stream.onerror = () => { stream.close(); resolve(); };
  });
  return said.join("");
}"""
# Sends what needs no answer.
BLIND = """async ([base, name, password]) => {
  const send = (address, body) =>
    fetch(base + address, {method: "POST", mode: "no-cors", credentials: "include", body})
      .catch(() => {});
  const files = new FormData();
  files.append("files", new Blob(["left by a stranger"]), "stranger.txt");
  await send("gradio_api/upload", files);
  await send("login", new URLSearchParams({username: name, password}));
  await send("logout", new URLSearchParams());
  const form = document.createElement("form");
  form.method = "post"; form.action = base + "login"; form.target = "hidden";
  for (const [key, value] of [["username", name], ["password", password]]) {
    const field = document.createElement("input");
    field.name = key; field.value = value; form.append(field);
  }
  const frame = document.createElement("iframe");
  frame.name = "hidden";
  document.body.append(frame, form);
  await new Promise(resolve => { frame.onload = resolve; form.submit(); });
}"""
# Shows what is not its own, as a picture, a script or a frame; says what was shown.
EMBED = """async ([base, addresses]) => {
  const shown = [];
  for (const address of addresses) for (const tag of ["img", "script"]) {
    const element = document.createElement(tag);
    await new Promise(resolve => {
      element.onload = () => { shown.push(tag + " " + address); resolve(); };
      element.onerror = resolve;
      element.src = base + address;
      document.body.append(element);
    });
  }
  return shown;
}"""


class House(NamedTuple):
    """A server with a conversation and a document of one person's."""

    server: Server
    port: int
    has_accounts: bool
    session: str
    document: str

    def base(self, name: str) -> str:
        return f"http://{name}:{self.port}/"

    @property
    def owner(self) -> str:
        return "ada" if self.has_accounts else "local"

    @property
    def addresses(self) -> list[str]:
        """Whatever tells something."""
        return [
            "",
            "config",
            "gradio_api/info",
            "gradio_api/user",
            "gradio_api/startup-events",
            f"gradio_api/file={self.upload}",
            f"export/{self.session}.md",
            f"export/{self.session}.json",
            "pages/x/1.png",
            "theme.css",
            "api/documents",
        ]

    @property
    def upload(self) -> Path:
        """A file on its way into the library, as it lies in the folder that Gradio serves."""
        return self.server.data_dir.absolute() / "uploads" / "waiting" / "ponds.md"

    def uploads(self) -> list[str]:
        folder = self.server.data_dir / "uploads"
        return [path.name for path in folder.rglob("*") if path.is_file() and path != self.upload]


class AnyAddress(Server):
    announced = re.compile(r"ready at (http://\S+:(\d+))/")


HOUSES = [
    ("127.0.0.1", False),
    ("127.0.0.1", True),
    ("::1", False),
    ("127.0.0.2", True),
    pytest.param(("::1", True), marks=pytest.mark.slow),
    pytest.param(("127.0.0.2", False), marks=pytest.mark.slow),
]


@pytest.fixture(scope="module", params=HOUSES, ids=str)
def house(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[House]:
    host, has_accounts = request.param
    folder = tmp_path_factory.mktemp("house")
    options: list[object] = ["--host", host]
    if has_accounts:
        Users(folder / "users", rounds=4).add("ada", PASSWORD)
        options += ["--auth", folder / "users"]
    server = AnyAddress(folder / "var", *options)
    server.start()
    try:
        note = folder / "ponds.md"
        note.write_text(NOTE)
        info = DataFolder(server.data_dir).server()
        assert info is not None
        owner = "ada" if has_accounts else "local"
        with Client(info) as client:
            [*_, added] = client.add([note], owner)
            *_, last = client.ask(QUESTION, owner=owner, options={"max_tokens": 8})
        port = int(server.url.rsplit(":", 1)[1])
        made = House(server, port, has_accounts, last["turn"]["session"], added["document"]["id"])
        made.upload.parent.mkdir(parents=True)
        made.upload.write_text(NOTE)
        yield made
    finally:
        server.stop()


@pytest.fixture(scope="module")
def stranger() -> Iterator[int]:
    """The port of a server of nothing but an empty page."""

    class Empty(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>Stranger</title><body></body>")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Empty) as server:
        threading.Thread(target=partial(server.serve_forever, 0.05), daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1280, "height": 844})
    yield context
    context.close()


def come_in(context: BrowserContext, house: House, name: str) -> Reader:
    """Ada, or whoever is there without accounts, has the page open."""
    base = house.base(name)
    page = context.new_page()
    if house.has_accounts:
        page.goto(base)
        page.get_by_label("username").fill("ada")
        page.get_by_label("password").fill(PASSWORD)
        page.get_by_role("button", name="Login").click()
    else:
        page.goto(base)
    reader = Reader(page)
    expect(reader.composer).to_be_visible()
    expect(page.locator("#pt-history")).to_contain_text(SECRET)
    return reader


def loading(house: House) -> dict[str, Any]:
    """The call with which the page asks for a conversation; a stranger knows it from their own."""
    with PageClient(house.server.url) as page:
        if house.has_accounts:
            assert page.login("ada", PASSWORD) == 200
        handler = next(f for f in page.handlers() if f["api_name"] == "load")
        # The test itself can have the secret like this: what follows is refused for its sender.
        assert SECRET in page.called("load", house.session)
    data = [house.session, *[None] * (len(handler["inputs"]) - 1)]
    return {"data": data, "fn_index": handler["id"], "session_hash": "stranger", "event_data": None}


def test_another_page_reads_and_does_nothing(
    house: House, stranger: int, context: BrowserContext, tmp_path: Path
) -> None:
    for name in NAMES[_host(house)]:
        reader = come_in(context, house, name)
        base, call = house.base(name), loading(house)
        mine = context.cookies(base)
        for host in STRANGERS:
            page = context.new_page()
            page.goto(f"http://{host}:{stranger}/")
            assert page.evaluate(READ, [base, house.addresses]) == {}, (name, host)
            assert page.evaluate(CALL, [base, call]) == "", (name, host)
            assert page.evaluate(EMBED, [base, house.addresses]) == [], (name, host)
            page.evaluate(BLIND, [base, "ada", PASSWORD])
            assert house.uploads() == [], (name, host)
            assert context.cookies(base) == mine, (name, host)
            page.close()
        # And who is at the page goes on: reads, sends a file, is still who they were.
        reader.page.reload()
        expect(reader.page.locator("#pt-history")).to_contain_text(SECRET)
        file = tmp_path / f"{name.strip('[]').replace(':', '')}.md"
        file.write_text(f"# Of {name}\n\nThis was sent by the page at {name} itself.\n")
        reader.add(file)
        reader.wait_for_document(file.name, "ready")
        reader.page.close()
    assert house.uploads() == []


def test_a_link_on_another_page_leads_to_the_page(
    house: House, stranger: int, context: BrowserContext
) -> None:
    for name in NAMES[_host(house)]:
        come_in(context, house, name).page.close()
        base = house.base(name)
        for host in STRANGERS:
            page = context.new_page()
            page.goto(f"http://{host}:{stranger}/")
            there = f"{base}?c={house.session}"
            page.evaluate(f"location.href = {json.dumps(there)}")
            reader = Reader(page)
            expect(reader.composer).to_be_visible()
            expect(reader.questions).to_contain_text(SECRET)
            assert page.url.startswith(base)
            page.close()


def test_another_page_cannot_lead_to_a_file_or_frame_the_page(
    house: House, stranger: int, context: BrowserContext
) -> None:
    for name in NAMES[_host(house)]:
        come_in(context, house, name).page.close()
        base = house.base(name)
        page = context.new_page()
        page.goto(f"http://evil.example:{stranger}/")
        with page.expect_response(base) as framed:
            page.evaluate(
                "base => { document.body.innerHTML = `<iframe src='${base}'></iframe>`; }", base
            )
        # Without Sec-Fetch headers a frame looks like a link; then the page's policy keeps it out.
        assert framed.value.status == (200 if name == "docs.example" else 403)
        page.frames[1].wait_for_load_state()
        expect(page.frame_locator("iframe").locator("#pt-composer")).to_have_count(0)
        with page.expect_response(f"{base}export/*") as followed:
            page.evaluate(f"location.href = '{base}export/{house.session}.md'")
        assert followed.value.status == 403
        page.close()


def _host(house: House) -> str:
    return next(host for host in NAMES if house.server._options[1] == host)
