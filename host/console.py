"""What a person sees in the terminal. Results go to stdout, everything on the way to stderr."""

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from getpass import getpass
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from chat.citations import UNSUPPORTED
from chat.stats import TurnStats
from chat.ui.cost import cost_line
from chat.ui.figures import binary_size, count
from chat.views import where
from host.errors import AccountRefused, ServerFailed
from host.workspace import Event
from retrieval.owners import SHARED

_KV_COLUMNS = (
    ("bytes a token", 13),
    ("a session", 9),
    ("together", 9),
    ("longest", 11),
    ("fit", 7),
)
_LATENT = (
    "MLA is no attention of this engine: its latent is taken to be coded as keys are, and the\n"
    "rotated part to stay in full precision."
)
_OUTCOMES = {"duplicate": "already there", "indexed": "indexed"}


def say(message: str) -> None:
    """A remark on the way; never part of a result."""
    print(message, file=sys.stderr, flush=True)


def new_password(name: str) -> str:
    """A password typed twice, or a line of standard input where that is no terminal."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    password = getpass(f"Password for {name}: ")
    if getpass("Once more: ") != password:
        raise AccountRefused("The two passwords differ. Nothing was changed; try again.")
    return password


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))


@contextmanager
def only_results_on_stdout() -> Iterator[None]:
    """Sends what libraries print to stderr, so that `--json` prints nothing but JSON."""
    with redirect_stdout(sys.stderr):
        yield


@contextmanager
def download_bar(label: str) -> Iterator["DownloadBar"]:
    """A bar by bytes on stderr; in a log it is left out."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
    ) as progress:
        yield DownloadBar(progress, label)


class DownloadBar:
    """Called with (bytes so far, bytes in all)."""

    def __init__(self, progress: Progress, label: str) -> None:
        self._progress = progress
        self._task = progress.add_task(label, total=None)

    def __call__(self, done: int, total: int) -> None:
        self._progress.update(self._task, completed=done, total=total)


def show_adding(events: Iterable[Event]) -> bool:
    """Follow the events of `add` with a bar and a line a file; True if every file was taken."""
    good = True
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        # Lines go through the bar's console, unless they go elsewhere than to the terminal.
        redirect_stdout=sys.stdout.isatty(),
        transient=True,
    ) as progress:
        bar = progress.add_task("Indexing", total=None)
        for event in events:
            if event["event"] == "listed":
                progress.update(bar, total=event["files"])
            elif event["event"] == "progress":
                progress.update(bar, description=_progress(event["document"]))
            else:
                good = good and event["outcome"] in _OUTCOMES
                progress.advance(bar)
                print(_file_line(event), flush=True)
    return good


def _progress(document: Event) -> str:
    name, done, total = document["name"], document["passages_done"], document["passages"]
    return f"{name} ({done} of {count(total, 'passage')})" if total else f"{name} (reading)"


def _file_line(event: Event) -> str:
    document, name = event["document"], event["name"]
    if event["outcome"] not in _OUTCOMES:
        return f"{event['outcome']}  {name}: {event['reason']}"
    line = f"{_OUTCOMES[event['outcome']]}  {name}"
    if event["outcome"] == "indexed":
        pages, passages = count(document["pages"], "page"), count(document["passages"], "passage")
        line += f"  ({pages}, {passages})"
    return "\n".join([line, *(f"  note: {note}" for note in document.get("warnings") or ())])


def show_rebuilding(events: Iterable[Event]) -> bool:
    """Follow the events of `rebuild_index` with a bar; whether the index fits in the end."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
    ) as progress:
        bar = progress.add_task("Embedding", total=None)
        most = 0
        for event in events:
            if event["event"] == "progress":
                most = max(most, event["passages_left"])
                progress.update(bar, total=most, completed=most - event["passages_left"])
                continue
            print(f"rebuilt  {event['documents']:,} documents, {event['passages']:,} passages")
            for problem in event["problems"]:
                say(problem)
            return not event["problems"]
    return False


def show_removed(name: str, documents: int, conversations: int) -> None:
    gone = f"{count(documents, 'document')}, {count(conversations, 'conversation')}"
    print(f"removed  {name}  ({gone})")


def show_documents(documents: list[Event]) -> None:
    if not documents:
        print("No documents yet. Add some, for example: python app.py add data/library")
    for document in documents:
        counts = f"{document['pages']:>5} p {document['passages']:>6} passages"
        of_all = "  (shared)" if document["owner"] == SHARED else ""
        print(f"{document['id']}  {document['state']:<9} {counts}  {document['name']}{of_all}")
        for said in filter(None, [document["reason"], *document.get("warnings", ())]):
            print(f"{'':18}{said}")


def show_kv_size(found: Event) -> None:
    """What KV takes: a table for each way in which heads can share it."""
    shape, held = found["shape"], count(found["sessions"], "session")
    apart = ", which share nothing" if found["sessions"] > 1 else ""
    print(
        f"{count(shape['layers'], 'layer')}, {count(shape['heads'], 'query head')} of "
        f"{count(shape['head_dim'], 'number')}\n"
        f"{held} of {count(found['tokens'], 'token')}{apart}\n"
        f"Memory for KV: {binary_size(found['memory_bytes'])} ({found['memory']})"
    )
    console = Console()
    refused: dict[str, None] = {}
    for attention in found["attentions"]:
        kept = count(attention["kv_heads"], "KV head")
        own = f", {'as the model is' if found['model'] else 'as given'}" if attention["own"] else ""
        print(f"\n{attention['name']}: {'one latent' if attention['name'] == 'MLA' else kept}{own}")
        console.print(_kv_table(attention))
        refused |= dict.fromkeys(
            f"{row['kv_dtype']}: {row['refused']}" for row in attention["rows"] if row["refused"]
        )
    print(
        "\nlongest: tokens of one session that has all the memory; fit: sessions as those above.\n"
        "Coded pages are counted with their scales, and beside them, in full precision\n"
        f"({found['dtype']}), the first page of each session and its {found['window_tokens']} "
        "newest tokens.\nWeights need room of their own."
    )
    for said in (*refused, *shape["notes"], *([_LATENT] if shape["latent"] else [])):
        print(said)


def _kv_table(attention: Event) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("KV dtype", min_width=18)
    for name, width in _KV_COLUMNS:
        table.add_column(name, justify="right", min_width=width, no_wrap=True)
    for row in attention["rows"]:
        if row["kv_dtype"] == "float16":
            continue  # stands in the line of bfloat16
        name = "bfloat16, float16" if row["kv_dtype"] == "bfloat16" else row["kv_dtype"]
        size = row["size"]
        if size is None:
            table.add_row(name, *["-"] * len(_KV_COLUMNS))
            continue
        table.add_row(
            name,
            f"{size['token_bytes']:,.0f}",
            binary_size(size["session_bytes"]),
            binary_size(size["total_bytes"]),
            f"{size['longest_tokens']:,}",
            f"{size['sessions_that_fit']:,}",
        )
    return table


def show_answer(events: Iterable[Event]) -> Event:
    """Follow the events of `ask`: the answer as it comes, then its sources and its cost.

    Markers such as [1] are only known at the end, so in a terminal the growing text is replaced
    by the final one; elsewhere the final one is all that is printed. Returns the turn.
    """
    console = Console()
    text, turn = "", {}
    quoted = False
    with Live(console=console, transient=True, auto_refresh=False) as live:
        for event in events:
            if event["event"] == "quoted" and event["answerable"] is not False:
                quoted = True
                print(_quotes("In the documents", event["evidence"]), flush=True)
            elif event["event"] == "delta" and console.is_terminal:
                text += event["text"]
                live.update(_last_lines(text, console), refresh=True)
            elif event["event"] == "finished":
                turn = event["turn"]
    if not turn:
        raise _no_end()
    if not quoted and turn.get("evidence") and turn["finish_reason"] != "not_found":
        print(_quotes("The closest sentence", turn["evidence"]))
    if turn["answer"] and turn.get("evidence") and turn["finish_reason"] != "not_found":
        print("\nIn the model's words")
    print(turn["answer"])
    if UNSUPPORTED in turn["answer"]:
        print(f"\n{UNSUPPORTED} No passage supports this sentence.")
    for note in turn["notes"]:
        print(f"\nNote: {note}")
    if turn.get("rewritten"):
        print(f"\nAlso searched for: {turn['rewritten']}")
    _show_sources(turn["citations"])
    if turn["stats"]:
        print(f"\n{cost_line(TurnStats.from_json(turn['stats']))}")
    return turn


def final_turn(events: Iterable[Event]) -> Event:
    """The turn that the events of `ask` end with, without showing anything on the way."""
    turns: list[Event] = [event["turn"] for event in events if event["event"] == "finished"]
    if not turns:
        raise _no_end()
    return turns[-1]


def _no_end() -> ServerFailed:
    return ServerFailed("The server ended before the answer did; what was written is saved there.")


def _last_lines(text: str, console: Console) -> Text:
    """As much of the end of the text as the terminal can hold and redraw."""
    lines = Text(text).wrap(console, console.width)
    return Text("\n").join(lines[-max(console.height - 2, 1) :])


def _show_sources(citations: list[Event]) -> None:
    if citations:
        print("\nSources")
    for citation in citations:
        print(f"{citation['marker']} {_place(citation)}: “{_words(citation)}”")


def _quotes(title: str, evidence: list[Event]) -> str:
    """The documents' own sentences."""
    return "\n".join([title, *(f"“{_words(one)}” ({_place(one)})" for one in evidence)])


def _words(citation: Event) -> str:
    start, end = citation.get("support_start"), citation.get("support_end")
    words: str = citation["text"]
    if start is not None and end is not None:
        words = words[start - citation["char_start"] : end - citation["char_start"]]
    return " ".join(words.split())


def _place(citation: Event) -> str:
    # A server of an earlier version does not say the last two.
    page = where(citation["page"], citation.get("page_label", ""), citation.get("ocr", False))
    return f"{citation['title']}, {page}"
