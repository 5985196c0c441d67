"""Pictures of every page, light, dark and on a phone: `make screenshots`.

Everything on them is real: the sample library, questions that the default model answers, and what
they cost here.
"""

import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from playwright.sync_api import Browser, Page, expect, sync_playwright

from benchmarks.browser import launch, served
from chat.events import Finished
from chat.options import AskOptions
from host import environment
from host.settings import Settings
from host.workspace import Workspace

LIBRARY = Path("data/library")
QUESTIONS = (
    "What is a KV cache?",
    "Which system described iteration-level scheduling?",
    "How many full pages does a static prompt of 403 tokens fill with 16-token pages?",
    "What KL divergence did int4 with a Hadamard rotation have on SmolLM2-135M?",
    "How many word pieces does all-MiniLM-L6-v2 read?",
)
OTHERS = (
    "What prefix hit rate does the article report for a retrieval service?",
    "Which pages are evicted first when free pages run out?",
)
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2},
}


def fill(workspace: Workspace) -> str:
    """The sample library and three conversations; returns the one that is shown."""
    for path in workspace.library.expand([LIBRARY]):
        workspace.library.wait(workspace.library.add(path).id, 300)
    for question in OTHERS:
        asked(workspace, question, None)
    session = None
    for question in QUESTIONS:
        session = asked(workspace, question, session)
    return str(session)


def asked(workspace: Workspace, question: str, session: str | None) -> str:
    """One turn; returns its conversation."""
    options = AskOptions(max_tokens=120)
    *_, last = workspace.conversations.ask(question, session_id=session, options=options)
    if not isinstance(last, Finished):
        raise RuntimeError("The turn did not finish.")
    typer.echo(f"{question} -> {last.turn.answer[:70]!r}")
    return last.turn.session


def show(page: Page, view: str, *, wide: bool) -> None:
    """Turns to a page and waits until it is drawn."""
    page.locator(f'a[data-view="{view}"]').click()
    if view == "chat":
        expect(page.locator(".pt-figures")).to_have_count(len(QUESTIONS), timeout=30_000)
    elif view == "documents":
        expect(page.locator(".pt-library tbody tr").first).to_be_visible(timeout=30_000)
        if wide:
            page.locator(".pt-open-document", has_text="Quantising").click()
            expect(page.locator(".pt-text")).to_be_visible()
    elif view == "latency":
        expect(page.locator(".pt-plot svg")).to_have_count(4, timeout=30_000)
    else:
        expect(page.locator(".pt-map i").first).to_be_visible(timeout=30_000)
    page.wait_for_timeout(1_500)  # fonts, charts and what fades in


def take(browser: Browser, address: str, folder: Path) -> None:
    """All pages in all looks."""
    for look, options in LOOKS.items():
        context = browser.new_context(**options)
        page = context.new_page()
        page.goto(address)
        for view in ("documents", "latency", "memory", "chat"):
            show(page, view, wide=look != "phone")
            path = folder / f"{view}-{look}.png"
            page.screenshot(path=path)
            typer.echo(path)
        context.close()


def main(
    folder: Annotated[Path, typer.Option(help="Where the pictures go.")] = Path("docs/images"),
    models_dir: Annotated[Path, typer.Option(help="As for the application.")] = Path(
        "data/var/models"
    ),
) -> None:
    """Take the pictures of the README and the documentation."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data:
        environment.prepare(data_dir=Path(data))
        settings = Settings(data_dir=Path(data), models_dir=models_dir, kv_memory="300MB")
        workspace = Workspace(settings, typer.echo)
        with served(workspace) as (address, _), sync_playwright() as playwright:
            session = fill(workspace)
            browser = launch(playwright)
            take(browser, f"{address}?c={session}", folder)
            browser.close()
        workspace.close()


if __name__ == "__main__":
    typer.run(main)
