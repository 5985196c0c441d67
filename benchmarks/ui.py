"""What the page costs: `python -m benchmarks.ui --json ui.json`.

A conversation of 50 turns is asked on the real model; then its last question is answered again and
again, in turn by the engine alone and through a real browser that has the conversation open.

`overhead_fraction` is how much longer a token takes with the page than without, by the engine's own
clock (medians of the decode time per token, over the same tokens in the same context).
`update_bytes_first` and `update_bytes_last` are the bytes of a streamed update (medians, as they go
to the socket) in the first turn of a conversation and in one of 50 turns.
`update_bytes_largest` is the largest update of each.
`cpu_s` is the processor time for each token: of this process, which holds engine and server,
and of the browser. It counts the whole turn, with the drawing at its beginning and its end.

Needs the test extra (Playwright) and Chromium, whose path the variable CHROMIUM may give.
"""

import statistics
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from playwright.sync_api import Page, expect, sync_playwright

from benchmarks.browser import Updates, launch, served
from benchmarks.report import Report
from chat.events import Finished
from chat.options import AskOptions
from chat.stats import TurnStats
from chat.views import TurnView
from host import environment
from host.settings import Settings
from host.workspace import Workspace

DOCUMENT = """# The lighthouse of Skagen

The lighthouse of Skagen was built in 1858 by the architect Niels Sigfred Nebelong. The tower of
the lighthouse is 46 metres tall. Its light can be seen from 20 nautical miles away.
"""
QUESTION = "How tall is the tower of the lighthouse of Skagen?"
LONG_QUESTION = "When was the lighthouse of Skagen built, by whom, and how tall is it?"
WAIT_MS = 120_000


def asked(workspace: Workspace, question: str, **how: Any) -> TurnView:
    """One turn without any page."""
    last = list(workspace.conversations.ask(question, **how))[-1]
    if not isinstance(last, Finished):
        raise RuntimeError("The turn did not finish.")
    return last.turn


def cpu_s(processes: Iterable[psutil.Process]) -> float:
    """The processor time that these have used so far."""
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def browsers() -> list[psutil.Process]:
    """The processes of the browser that this process has started."""
    children = psutil.Process().children(recursive=True)
    return [child for child in children if "chrom" in child.name()]


def per_token_s(stats: TurnStats | None) -> float:
    """The engine's decode time for each token after the first."""
    if stats is None or stats.generated_tokens < 2:
        raise RuntimeError("The model wrote too little to measure.")
    return stats.decode_s / (stats.generated_tokens - 1)


def generated(turn: TurnView) -> int:
    return turn.stats.generated_tokens if turn.stats else 0


def answered_on_page(page: Page, before: int) -> None:
    """Waits until another turn has its cost line."""
    expect(page.locator(".pt-figures")).to_have_count(before, timeout=WAIT_MS)
    expect(page.locator("#pt-composer .submit-button")).to_be_visible(timeout=WAIT_MS)


def retried_on_page(page: Page, workspace: Workspace, session: str) -> TurnView:
    """The newest turn again, by its button."""
    old = workspace.conversations.turns(session)[-1].turn
    page.locator(".pt-retry").last.click()
    until = time.monotonic() + WAIT_MS / 1000
    while time.monotonic() < until:
        newest = workspace.conversations.turns(session)[-1]
        if newest.turn != old and newest.state != "pending":
            expect(page.locator("#pt-composer .submit-button")).to_be_visible(timeout=WAIT_MS)
            return newest
        time.sleep(0.1)
    raise RuntimeError("The page did not answer.")


def measure(
    report: Report, workspace: Workspace, page: Page, url: str, updates: Updates,
    turns: int, rounds: int, tokens: int,
) -> None:  # fmt: skip
    """Ask, answer again with and without the page, and add the rows."""
    quick = AskOptions(max_tokens=12, read=1, passages=1)
    # Sampled, with a fixed seed: the most likely words are a short answer, or end in a loop.
    options = AskOptions(max_tokens=tokens, read=1, passages=1, temperature=1.0, seed=7)
    page.goto(url)
    page.locator("#pt-composer textarea").fill(LONG_QUESTION)
    page.locator("#pt-composer textarea").press("Enter")
    answered_on_page(page, 1)
    first = updates.take()
    session = workspace.conversations.sessions()[0].session
    page.goto("about:blank")
    for number in range(2, turns):
        asked(workspace, QUESTION, session_id=session, options=quick)
        if number % 10 == 0:
            typer.echo(f"{number} turns")
    asked(workspace, LONG_QUESTION, session_id=session, options=options)
    alone, with_page, last = [], [], []
    cpu: dict[str, list[float]] = {"alone": [], "with_page": [], "browser": []}
    me = [psutil.Process()]
    for _ in range(rounds):
        page.goto("about:blank")
        newest = workspace.conversations.turns(session)[-1].turn
        used = cpu_s(me)
        turn = asked(
            workspace, LONG_QUESTION, session_id=session, options=options, instead_of=newest
        )
        alone.append(per_token_s(turn.stats))
        cpu["alone"].append((cpu_s(me) - used) / generated(turn))
        page.goto(f"{url}?c={session}")
        expect(page.locator(".pt-retry").last).to_be_visible(timeout=WAIT_MS)
        page.wait_for_timeout(4_000)  # what comes with opening it is over
        updates.take()
        used, browser_used = cpu_s(me), cpu_s(browsers())
        turn = retried_on_page(page, workspace, session)
        with_page.append(per_token_s(turn.stats))
        cpu["with_page"].append((cpu_s(me) - used) / generated(turn))
        cpu["browser"].append((cpu_s(browsers()) - browser_used) / generated(turn))
        last.extend(updates.take())
    case = f"{turns} turns open, {rounds} times {tokens} tokens"
    report.add(case, "engine alone", token_s=statistics.median(alone), token_s_all=alone)
    report.add(case, "with the page", token_s=statistics.median(with_page), token_s_all=with_page)
    for system, sizes in (("first turn", first), (f"{turns} turns", last)):
        report.add(
            "streamed updates",
            system,
            updates=len(sizes),
            update_bytes=statistics.median(sizes),
            largest_bytes=max(sizes),
        )
    for system, name in (
        ("engine alone", "alone"),
        ("with the page", "with_page"),
        ("the browser", "browser"),
    ):
        report.add("processor time a token", system, cpu_s=statistics.median(cpu[name]))
    report.ratios |= {
        "overhead_fraction": statistics.median(with_page) / statistics.median(alone) - 1,
        "update_bytes_first": statistics.median(first),
        "update_bytes_last": statistics.median(last),
        "update_bytes_largest": {"first": max(first), "last": max(last)},
        "cpu_s": {name: statistics.median(figures) for name, figures in cpu.items()},
    }


def main(
    turns: int = 50,
    rounds: int = 5,
    tokens: Annotated[int, typer.Option(help="Length of the measured answers.")] = 192,
    models_dir: Annotated[Path, typer.Option(help="As for the application.")] = Path(
        "data/var/models"
    ),
    json: Annotated[Path | None, typer.Option(help="Write the figures here.")] = None,
) -> None:
    """Measure what the page adds to a token's time, and how large its updates are."""
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        environment.prepare(data_dir=Path(folder))
        settings = Settings(data_dir=Path(folder), models_dir=models_dir)
        workspace = Workspace(settings, typer.echo)
        with served(workspace) as (url, updates), sync_playwright() as playwright:
            document = Path(folder) / "lighthouse.md"
            document.write_text(DOCUMENT, encoding="utf-8")
            workspace.library.wait(workspace.library.add(document).id, 120)
            browser = launch(playwright)
            measure(report, workspace, browser.new_page(), url, updates, turns, rounds, tokens)
            browser.close()
        workspace.close()
    report.show("What the page costs")
    report.write(json)


if __name__ == "__main__":
    typer.run(main)
