"""A real server process with the real model, and a real browser that looks at it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, Queue
from urllib.parse import urlparse

import pytest
from playwright.sync_api import Browser, Locator, Page, Playwright, Request, expect, sync_playwright

ROOT = Path(__file__).parents[2]
BROWSERS = ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome")
ANSWER_MS = 60_000
expect.set_options(timeout=20_000)  # two cores that other tests compute on as well
LIGHTHOUSE = """# The lighthouse of Skagen

The lighthouse of Skagen was built in 1858 by the architect Niels Sigfred Nebelong. The tower of
the lighthouse is 46 metres tall. Its light can be seen from 20 nautical miles away.

## Its keepers

Three keepers lived in the lighthouse until 1923. Each of them kept watch for eight hours.
"""
BRIDGE = """<html><head><title>The bridge of Aarhus</title></head><body>
<h1>The bridge of Aarhus</h1><p>The bridge of Aarhus is painted green and was opened in 1907.</p>
</body></html>"""

HEIGHT = "How tall is the tower of the lighthouse of Skagen?"
ARCHITECT = "Who was the architect of the lighthouse of Skagen?"


class Server:
    """`python app.py` on a data folder of its own; a restart takes the same port."""

    announced = re.compile(r"ready at (http://127\.0\.0\.1:(\d+))")

    def __init__(self, data_dir: Path, *options: object) -> None:
        self.data_dir = data_dir
        self._options = [str(option) for option in options]
        self.url = ""
        self._port = 0
        self._process: subprocess.Popen[str] | None = None
        self.log: list[str] = []

    def start(self, within_s: float = 120) -> None:
        command = [sys.executable, "app.py", "--port", str(self._port), "--data-dir"]
        self._process = subprocess.Popen(
            [*command, str(self.data_dir), *self._options],
            cwd=ROOT,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        lines: Queue[str] = Queue()
        threading.Thread(target=self._read, args=(self._process, lines), daemon=True).start()
        until = time.monotonic() + within_s
        while time.monotonic() < until and self._process.poll() is None:
            try:
                found = self.announced.search(lines.get(timeout=0.5))
            except Empty:
                continue
            if found:
                self.url, self._port = found[1], int(found[2])
                return
        pytest.fail("The server did not come up:\n" + "".join(self.log[-40:]))

    def stop(self, sign: signal.Signals = signal.SIGTERM) -> None:
        if self._process and self._process.poll() is None:
            self._process.send_signal(sign)
            self._process.wait(timeout=30)

    def _read(self, process: subprocess.Popen[str], lines: Queue[str]) -> None:
        assert process.stdout
        for line in process.stdout:
            self.log.append(line)
            lines.put(line)


class Reader:
    """A person at the page: what they do, and what they wait for."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.composer = page.locator("#pt-composer textarea")
        self.stop_button = page.locator("#pt-composer .stop-button")
        self.send_button = page.locator("#pt-composer .submit-button")
        self.questions = page.locator("#pt-transcript .pt-question")
        # Complete ones, and the one that is being written.
        self.answers = page.locator("#pt-transcript .bot-row .md, #pt-live .md:visible")
        self.figures = page.locator("#pt-transcript .pt-figures")
        self.markers = page.locator('#pt-transcript a[href*="#source-"]')
        self.cards = page.locator("#pt-sources .pt-card")
        self.documents = page.locator("#pt-documents .pt-document")
        self.toasts = page.locator(".toast-body")

    def open(self, address: str) -> None:
        self.page.goto(address)
        expect(self.composer).to_be_visible()
        expect(self.page.locator("#pt-memory .pt-bar")).to_be_attached()  # loaded

    def go(self, part: str) -> None:
        self.page.locator(f'[data-go="{part}"]').locator("visible=true").click()

    def send(self, question: str) -> None:
        self.composer.fill(question)
        self.composer.press("Enter")

    def ask(self, question: str) -> None:
        """Send a question and wait until its answer is complete and saved."""
        before = self.figures.count()
        self.send(question)
        expect(self.figures).to_have_count(before + 1, timeout=ANSWER_MS)
        expect(self.send_button).to_be_visible()

    def limit(self, tokens: int) -> None:
        """The longest answer, set in the drawer."""
        self._set("#pt-max-tokens", str(tokens))

    def ramble(self, tokens: int = 2048) -> None:
        """From now on the model goes on to its limit, which is far away unless it is given."""
        self._set("#pt-temperature", "2")
        self._set("#pt-top-p", "0.9")
        self.limit(tokens)

    def _set(self, control: str, value: str) -> None:
        self.page.locator("#pt-scope [data-drawer]").click()
        field = self.page.locator(f"{control} input[type=number]")
        field.fill(value)
        field.press("Tab")
        expect(field).to_have_value(value)
        self.page.keyboard.press("Escape")
        expect(self.page.locator("#pt-drawer")).to_be_hidden()

    def menu(self, title: str, entry: str) -> Locator:
        """Opens the menu of a conversation; the entry of it."""
        item = self.page.locator(".pt-list li", has_text=title).first
        item.hover()
        item.locator("[data-menu]").click()
        return self.page.get_by_role("menuitem", name=entry)

    def add(self, *paths: Path) -> None:
        self.go("documents")
        self.page.set_input_files("#pt-upload input[type=file]", [str(path) for path in paths])

    def names(self) -> list[str]:
        """The file names in the table; a document without a title shows its name as one."""
        names: list[str] = self.documents.evaluate_all(
            "rows => rows.map(row => (row.querySelector('.pt-file')"
            " ?? row.querySelector('.pt-title')).innerText)"
        )
        return names

    def wait_for_document(self, name: str, state: str) -> None:
        found = self.documents.filter(has_text=name)
        # The first document of a server waits for the embedding model to load.
        expect(found).to_have_attribute("data-state", state, timeout=2 * ANSWER_MS)

    def remove_document(self, name: str) -> None:
        self.go("documents")
        found = self.documents.filter(has_text=name)
        found.locator("[data-remove]").click()
        found.get_by_text("Remove?").click()
        expect(found).to_have_count(0)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("data"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as playwright:
        yield playwright


@pytest.fixture(scope="session")
def browser(playwright: Playwright) -> Iterator[Browser]:
    path = os.environ.get("CHROMIUM") or next(filter(os.path.exists, BROWSERS), None)
    if path is None:
        pytest.fail(
            "The browser tests need Chromium: apt-get install chromium, "
            "or set CHROMIUM to the path of one."
        )
    # The browser's own calls home are off: what is left is what the page asks for.
    browser = playwright.chromium.launch(
        executable_path=path,
        args=[
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-first-run",
            # Names that no resolver has: of a server in a network, and of somebody else's site.
            "--host-resolver-rules=MAP docs.example 127.0.0.2, MAP evil.example 127.0.0.1",
        ],
    )
    yield browser
    browser.close()


@pytest.fixture
def visit(browser: Browser, server: Server) -> Iterator[Callable[..., Reader]]:
    """Opens the page in a browser of its own, and afterwards looks at what it asked for."""
    requests: list[Request] = []
    errors: list[str] = []
    contexts = []

    def open_page(address: str = "", *, width: int = 1280, **options: object) -> Reader:
        context = browser.new_context(viewport={"width": width, "height": 844}, **options)
        contexts.append(context)
        context.on("request", lambda request: requests.append(request))
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        reader = Reader(page)
        reader.open(address or server.url)
        return reader

    yield open_page
    for context in contexts:
        context.close()
    hosts = {urlparse(request.url).hostname for request in requests}
    assert requests
    assert hosts <= {"127.0.0.1", None}, f"The page asked {hosts}."  # None: data: and blob:
    assert not errors


@pytest.fixture
def reader(visit: Callable[..., Reader]) -> Reader:
    return visit()


@pytest.fixture
def library(reader: Reader, tmp_path: Path) -> Reader:
    """The page with two small documents and no other: answers depend on what search finds."""
    reader.go("documents")
    files = {"lighthouse.md": LIGHTHOUSE, "bridge.html": BRIDGE}
    for name in reader.names():
        if name not in files:
            reader.remove_document(name)
    missing = [name for name in files if name not in reader.names()]
    for name in missing:
        (tmp_path / name).write_text(files[name], encoding="utf-8")
    if missing:
        reader.add(*(tmp_path / name for name in missing))
    for name in files:
        reader.wait_for_document(name, "ready")
    reader.go("sources")
    return reader


@pytest.fixture
def short(library: Reader) -> Reader:
    """Answers of a few words: enough for what is tested here."""
    library.limit(40)
    return library
