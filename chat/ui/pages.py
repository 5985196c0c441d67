"""The pages beside the chat, Latency, Memory and Documents: what is on them and what calls what.

All are parts of one page, so that an answer goes on being written while another part is looked
at. Each has a clock of its own that runs only while it is open.

What comes and goes is hidden by the styles: Gradio takes a component that becomes invisible out of
the page, and where that happens while an event runs, its timer stays behind (see cheap.js).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import gradio as gr

from chat.errors import SessionNotFound
from chat.ui import kv_size, latency
from chat.ui.gradio_words import t
from chat.ui.i18n import EN, both, words_for
from chat.ui.library_table import document_text, library_table, outcomes
from chat.ui.login import owner_of
from chat.ui.memory import Memory, memory_page
from chat.ui.notices import say
from chat.ui.screen import KEEP
from chat.ui.seen import Seen
from chat.ui.services import Services
from chat.ui.uploads import Outcome, discard, take_in
from chat.views import Quotes
from retrieval.errors import DocumentNotFound

if TYPE_CHECKING:
    from chat.views import TurnView
    from retrieval.views import DocumentView

VIEWS = ("chat", "documents", "latency", "memory")
_CLOCK_S = 1.0


class LatencyScreen(NamedTuple):
    head: Any = KEEP
    time: Any = KEEP
    tokens: Any = KEEP
    kv: Any = KEEP
    rate: Any = KEEP
    charts: Any = KEEP
    table: Any = KEEP
    seen: Any = KEEP


class MemoryScreen(NamedTuple):
    body: Any = KEEP
    seen: Any = KEEP


class LibraryScreen(NamedTuple):
    table: Any = KEEP
    reading: Any = KEEP
    outcomes: Any = KEEP
    upload: Any = KEEP
    folder: Any = KEEP
    seen: Any = KEEP


def _told(nothing: Callable[[], Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Handlers whose errors become a sentence on the page, and change nothing on it."""

    def decorate(handler: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(handler)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            try:
                return handler(*args, **kwargs)
            except Exception as error:
                request = next((arg for arg in args if isinstance(arg, gr.Request)), None)
                say(error, words_for(request) if request else EN)
                return nothing()

        return wrapped

    return decorate


class Pages(Services):
    """The handlers of these pages."""

    # Latency -------------------------------------------------------------------------------

    @_told(LatencyScreen)
    def latency(self, session_id: str, shown: str, request: gr.Request) -> LatencyScreen:
        """The open conversation's turns, where they differ from what is shown."""
        words, seen, owner = words_for(request), Seen.parse(shown), owner_of(request)
        version = self._conversations.version
        if not seen.is_news("latency_version", (version, session_id, words.language)):
            return LatencyScreen()
        turns: Sequence[TurnView] = ()
        title = None
        if session_id:
            try:
                turns = self._conversations.turns(session_id, owner)
                sessions = self._conversations.sessions(owner)
                title = next((view.title for view in sessions if view.session == session_id), "")
            except SessionNotFound:
                pass
        rows = latency.measured(turns)
        if not seen.is_news("latency", (session_id, title, words.language, rows)):
            return LatencyScreen(seen=seen.dump())
        screen = LatencyScreen(
            head=latency.head(title, rows, words),
            charts=gr.update(visible=True) if rows else KEEP,  # the styles hide them again
            table=latency.table(rows, words),
            seen=seen.dump(),
        )
        if not rows:
            return screen
        drawn = [
            gr.update(value=plot.value, **plot.properties) for plot in latency.plots(rows, words)
        ]
        return screen._replace(**dict(zip(("time", "tokens", "kv", "rate"), drawn, strict=True)))

    # Memory --------------------------------------------------------------------------------

    @_told(MemoryScreen)
    def memory(self, shown: str, request: gr.Request) -> MemoryScreen:
        """Where the memory is now, if that differs from what is shown."""
        seen = Seen.parse(shown)
        body = memory_page(self._memory(request), words_for(request))
        if not seen.is_news("memory", body):
            return MemoryScreen()
        return MemoryScreen(body, seen.dump())

    @_told(MemoryScreen)
    def free(self, event: gr.EventData, shown: str, request: gr.Request) -> MemoryScreen:
        """A conversation's pages are given back; its text stays."""
        self._conversations.free_kv(str(event.session), owner_of(request))
        screen: MemoryScreen = self.memory(shown, request)
        return screen

    def kv_form(self) -> str:
        """The calculator's inputs, as they begin."""
        return kv_size.form(kv_size.start(self._engine))

    @_told(lambda: KEEP)
    def reckon(self, numbers: str, request: gr.Request) -> Any:
        """What KV would take with the numbers of the form."""
        entered = json.loads(numbers)
        given = {name: str(entered.get(name, "")) for name in kv_size.FIELDS}
        config = self._engine.config
        return kv_size.answer(given, config.page_size, self._engine.dtype, words_for(request))

    def _memory(self, request: gr.Request) -> Memory:
        held = self._conversations.held(owner_of(request))
        own = {view.info.id for view in held}
        sessions = self._engine.session_list()
        others = [info for info in sessions if info.id not in own and info.pages]
        return Memory(
            report=self._engine.memory(),
            kinds=self._engine.page_map(),
            held=held,
            others=len(others),
            others_bytes=sum(info.kv_bytes for info in others),
            page_tokens=self._engine.config.page_size,
            on_cpu=self._engine.device_kind == "cpu",
            kv_dtype=self._engine.kv_dtype,
            notices=self._engine.notices,
        )

    # Documents -----------------------------------------------------------------------------

    @_told(LibraryScreen)
    def library(self, shown: str, request: gr.Request) -> LibraryScreen:
        """The documents as they are now, where they differ from what is shown."""
        return self._library_screen(request, Seen.parse(shown))

    @_told(LibraryScreen)
    def add(self, paths: Sequence[str] | None, request: gr.Request) -> LibraryScreen:
        """Files were dropped or chosen; hidden ones of a folder are left out."""
        files = []
        for path in map(Path, paths or ()):
            if path.name.startswith("."):
                discard(path)
            else:
                files.append(path)
        results = take_in(self._library, files, owner_of(request))
        return self._added(results, request)

    @_told(LibraryScreen)
    def add_sample(self, request: gr.Request) -> LibraryScreen:
        """The sample library, by one click."""
        if not self._sample_library.is_dir():
            gr.Warning(words_for(request)("no_samples"))
            return LibraryScreen()
        results = [
            Outcome(path.name, self._library.add(path, owner=owner_of(request)))
            for path in self._library.expand([self._sample_library])
        ]
        return self._added(results, request)

    @_told(LibraryScreen)
    def read(self, wanted: str, request: gr.Request) -> LibraryScreen:
        """A document was picked, or another page of it; nothing where it was closed meanwhile."""
        picked = json.loads(wanted)
        if picked is None:
            return LibraryScreen()
        document = self._library.get(str(picked["document"]), owner_of(request))
        page = min(max(1, int(picked["page"])), max(1, document.pages))
        return LibraryScreen(reading=self._reading(document, page, request))

    @_told(LibraryScreen)
    def again(self, event: gr.EventData, request: gr.Request) -> LibraryScreen:
        """A document is indexed again."""
        document = self._library.reindex(str(event.document), owner_of(request))
        screen = self._library_screen(request, Seen())
        return screen._replace(reading=self._reading(document, 1, request))

    @_told(LibraryScreen)
    def remove(self, event: gr.EventData, request: gr.Request) -> LibraryScreen:
        """A document is removed; conversations keep what they quoted."""
        self._library.remove(str(event.document), owner_of(request))
        return self._library_screen(request, Seen())._replace(reading="")

    def _library_screen(self, request: gr.Request, seen: Seen) -> LibraryScreen:
        words = words_for(request)
        if not seen.is_news("library_version", (self._library.version, words.language)):
            return LibraryScreen()
        table = library_table(self._library.documents(owner_of(request)), words)
        if not seen.is_news("library", table):
            return LibraryScreen(seen=seen.dump())
        return LibraryScreen(table=table, seen=seen.dump())

    def _added(self, results: Sequence[Outcome], request: gr.Request) -> LibraryScreen:
        screen = self._library_screen(request, Seen())
        said = outcomes(results, words_for(request))
        return screen._replace(outcomes=said, upload=None, folder=None)

    def _reading(self, document: DocumentView, page: int, request: gr.Request) -> str:
        owner = owner_of(request)
        try:
            text = self._library.page_text(document.id, page, owner)
        except DocumentNotFound:  # not read yet, or refused
            text = None
        quotes = (
            Quotes(0, 0)
            if document.owner != owner
            else self._conversations.quotes(document.id, owner)
        )
        return document_text(document, page, text, quotes, words_for(request))


def add_pages(pages: Pages, page: gr.Blocks, session: gr.BrowserState) -> gr.HTML:
    """Put the pages below the chat and wire them; called while the page is being built.

    Returns what tells of a part's news (`news_chat` and so on, see `ask_for_news`).
    """
    events = ", ".join(f"'{what}_{view}'" for view in VIEWS for what in ("open", "news"))
    views = _html(
        nav(), elem_id="pt-pages", js_on_load=f"pageturn.views(element, trigger, {events})"
    )
    quick = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
    spoken = {**quick, "queue": True, "concurrency_limit": None}
    clocks = {
        "latency": _latency_page(pages, views, session, quick),
        "memory": _memory_page(pages, views, quick, spoken),
        "documents": _documents_page(pages, views, quick, spoken),
    }
    for view in VIEWS:
        running = [gr.update(active=name == view) for name in clocks]
        listen = getattr(views, f"open_{view}")
        listen(functools.partial(list, running), None, list(clocks.values()), **quick)
    page.load(None, None, None, js="() => { pageturn.arrive(); }")
    return views


def ask_for_news(clock: gr.Timer, part: str) -> None:
    """With every tick the browser asks whether there are any, and only then the part's handler."""
    clock.tick(None, None, None, js=f"() => {{ pageturn.news('{part}'); }}")


def newest_of(what: str, *before: Any) -> dict[str, Any]:
    """Options of an event of which only the last counts: one call at a time, and the last is made.

    Gradio makes the call that waited with the data of the event before it. So the page has the
    data: `what` is its function for them, called when the call is made. The handler gets its text,
    after the values of the components `before`.
    """
    return {
        "inputs": [*before, gr.Textbox(visible=False)],
        "js": f"(...values) => [...values.slice(0, -1), pageturn.{what}()]",
        "trigger_mode": "always_last",
    }


def nav() -> str:
    """Links to the pages, in both languages: the styles show the reader's."""
    links = "".join(
        f'<a href="?view={view}" data-view="{view}">{both(f"page_{view}")}</a>' for view in VIEWS
    )
    return f'<nav class="pt-pages" aria-label="Pageturn">{links}</nav>'


def _latency_page(
    pages: Pages, views: gr.HTML, session: gr.BrowserState, quick: dict[str, Any]
) -> gr.Timer:
    with gr.Column(elem_id="pt-latency", elem_classes="pt-page"):
        head = _html("")
        with gr.Row(visible=False, elem_classes="pt-charts") as charts:
            time = _plot(gr.LinePlot, t("latency_time"), color="series")
            tokens = _plot(gr.BarPlot, t("latency_tokens"), color="series")
            kv = _plot(gr.LinePlot, t("latency_kv"))
            rate = _plot(gr.LinePlot, t("latency_rate"))
        table = _html("", elem_id="pt-latency-table")
        seen = gr.Textbox(visible=False)
    clock = gr.Timer(_CLOCK_S, active=False)
    screen = LatencyScreen(head, time, tokens, kv, rate, charts, table, seen)
    ask_for_news(clock, "latency")
    for happens in (views.open_latency, views.news_latency):
        happens(pages.latency, [session, seen], list(screen), **quick)
    return clock


def _plot(kind: type[gr.LinePlot] | type[gr.BarPlot], label: Any, **options: Any) -> Any:
    return kind(
        x="turn",
        y="amount",
        label=label,
        show_label=True,
        min_width=280,
        elem_classes="pt-plot",
        **options,
    )


def _memory_page(
    pages: Pages, views: gr.HTML, quick: dict[str, Any], spoken: dict[str, Any]
) -> gr.Timer:
    with gr.Column(elem_id="pt-memory-page", elem_classes="pt-page"):
        body = _html("", js_on_load="pageturn.memory(element, trigger, 'free')")
        form = _html(pages.kv_form(), js_on_load="pageturn.reckon(element, trigger, 'reckon')")
        answer = _html("", elem_id="pt-kv-size")
        seen = gr.Textbox(visible=False)
    clock = gr.Timer(_CLOCK_S, active=False)
    screen = MemoryScreen(body, seen)
    clock.tick(None, None, None, js="() => { pageturn.look('memory'); }")
    for happens in (views.open_memory, views.news_memory):
        happens(pages.memory, seen, list(screen), **quick)
    body.free(pages.free, seen, list(screen), **spoken)
    form.reckon(pages.reckon, outputs=answer, **newest_of("numbers"), **quick)
    return clock


def _documents_page(
    pages: Pages, views: gr.HTML, quick: dict[str, Any], spoken: dict[str, Any]
) -> gr.Timer:
    with gr.Column(elem_id="pt-library", elem_classes="pt-page"):
        _html(
            f'<h1 class="pt-page-title">{both("library_title")}</h1>'
            f'<p class="pt-page-note">{both("library_add_hint")}</p>'
        )
        with gr.Row(elem_id="pt-library-add"):
            upload = gr.File(
                file_count="multiple",
                label=t("library_add_files"),
                show_label=False,
                height=140,
                elem_id="pt-library-upload",
            )
            with gr.Column(elem_id="pt-library-buttons", min_width=160):
                folder = gr.UploadButton(
                    t("library_add_folder"),
                    file_count="directory",
                    size="md",
                    elem_id="pt-library-folder",
                )
                sample = gr.Button(
                    t("try_samples"),
                    variant="primary",
                    size="md",
                    elem_id="pt-library-sample",
                )
        outcome = _html("", elem_id="pt-library-outcomes")
        # The browser filters the table by it.
        gr.Textbox(
            label=t("library_find"),
            placeholder=t("library_find"),
            show_label=False,
            container=False,
            max_lines=1,
            elem_id="pt-library-find",
        )
        with gr.Row(elem_id="pt-library-columns", equal_height=False):
            table = _html(
                "",
                elem_id="pt-library-table",
                js_on_load="pageturn.library(element, trigger, watch, 'read')",
            )
            reading_events = "'again', 'remove', 'close'"
            reading = _html(
                "",
                elem_id="pt-library-reading",
                js_on_load=f"pageturn.reading(element, trigger, watch, {reading_events})",
            )
        seen = gr.Textbox(visible=False)
    clock = gr.Timer(_CLOCK_S, active=False)
    outputs = list(LibraryScreen(table, reading, outcome, upload, folder, seen))
    ask_for_news(clock, "documents")
    for happens in (views.open_documents, views.news_documents):
        happens(pages.library, seen, outputs, **quick)
    adding = {**spoken, "show_progress": "minimal", "concurrency_limit": 4}
    upload.upload(pages.add, upload, outputs, **adding)
    folder.upload(pages.add, folder, outputs, **adding)
    sample.click(pages.add_sample, None, outputs, **spoken)
    table.read(pages.read, outputs=outputs, **newest_of("wanted"), **spoken)
    reading.again(pages.again, None, outputs, **spoken)
    reading.remove(pages.remove, None, outputs, **spoken)
    reading.close(lambda: "", None, reading, **quick)
    return clock


def _html(value: str, **options: Any) -> gr.HTML:
    options.setdefault("js_on_load", None)
    return gr.HTML(value, apply_default_css=False, **options)
