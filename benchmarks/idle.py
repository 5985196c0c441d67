"""What a server that nobody uses costs: `python -m benchmarks.idle --json idle.json`.

A real server process (`python app.py`) on a library of 20,000 passages, looked at by a real
browser: first by none, then with three tabs that show a conversation, then with one each of Chat,
Latency and Documents. Nobody does anything.

`core_fraction` is the processor time of the server's process over the time it was watched: 0.01 is
one percent of one core. The browser's own is not in it.

Needs the test extra (Playwright) and Chromium, whose path the variable CHROMIUM may give.
"""

import tempfile
import time
from pathlib import Path
from typing import Annotated

import psutil
import typer
from playwright.sync_api import expect, sync_playwright

from benchmarks.browser import launch
from benchmarks.report import Report
from benchmarks.search_scale import fill
from benchmarks.serving import serving
from chat.context import Context
from chat.store import ConversationStore, Outcome, new_id
from host import environment
from host.settings import Settings
from host.workspace import Workspace

CONVERSATIONS = 30
TURNS = 20
TURN_TOKENS = 2_000
WAIT_MS = 120_000
HEADINGS = {"latency": "#pt-latency h1", "documents": "#pt-library-table table"}


def prepare(folder: Path, passages: int) -> None:
    """A library of so many passages, and conversations of many long turns."""
    workspace = Workspace(Settings(data_dir=folder))
    workspace.migrate()
    fill(workspace.library, passages)
    store = ConversationStore(workspace.database)
    opening = Context("model", (), (), ())
    for _ in range(CONVERSATIONS):
        session_id = new_id()
        for turn in range(TURNS):
            begun = store.begin(session_id, "local", "What is it?", opening if turn == 0 else None)
            store.save_prompt(begun, 0, range(TURN_TOKENS), ())
            store.finish(begun, Outcome("done", "It is this. " * 40, "stop", range(100)))
    workspace.close()


def watched(process: psutil.Process, seconds: float) -> float:
    """The share of one core that the process takes while nothing happens."""
    before, start = sum(process.cpu_times()[:2]), time.perf_counter()
    time.sleep(seconds)
    return (sum(process.cpu_times()[:2]) - before) / (time.perf_counter() - start)


def main(
    passages: Annotated[int, typer.Option()] = 20_000,
    seconds: Annotated[float, typer.Option(help="How long each case is watched.")] = 60.0,
    settle: Annotated[float, typer.Option(help="Seconds before that.")] = 20.0,
    json: Annotated[Path | None, typer.Option()] = None,
) -> None:
    environment.prepare()
    report = Report()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        prepare(folder, passages)
        with serving(folder) as (process, address), sync_playwright() as playwright:
            time.sleep(settle)
            report.add("no tab", "pageturn", core_fraction=watched(process, seconds))
            browser = launch(playwright)
            context = browser.new_context()
            for case, views in (
                ("three tabs of Chat", ("chat", "chat", "chat")),
                ("Chat, Latency and Documents", ("chat", "latency", "documents")),
            ):
                pages = [context.new_page() for _ in views]
                for page, view in zip(pages, views, strict=True):
                    page.goto(address)
                    page.locator("#pt-history [data-open]").first.click(timeout=WAIT_MS)
                    shown = page.locator("#pt-transcript .pt-question")
                    expect(shown).not_to_have_count(0, timeout=WAIT_MS)
                    if view != "chat":
                        page.goto(f"{address}?view={view}")
                        expect(page.locator(HEADINGS[view])).to_be_visible(timeout=WAIT_MS)
                time.sleep(settle)
                report.add(case, "pageturn", core_fraction=watched(process, seconds))
                for page in pages:
                    page.close()
            browser.close()
    report.show(f"An idle server with {passages:,} passages")
    report.write(json)


if __name__ == "__main__":
    typer.run(main)
