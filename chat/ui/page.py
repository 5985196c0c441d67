"""The page: what is on it and what calls what."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from chat.services import is_small
from chat.ui import settings
from chat.ui.actions import Actions
from chat.ui.gradio_words import t
from chat.ui.i18n import both
from chat.ui.pages import Pages, add_pages, ask_for_news, newest_of
from chat.ui.screen import Screen, Streamed
from chat.ui.serving import mount as mount
from chat.ui.tabs import CLOCK_S
from chat.ui.text import escape

if TYPE_CHECKING:
    from chat.conversation import Conversations
    from engine import Engine
    from retrieval.library import Library

SAMPLE_LIBRARY = Path(__file__).parents[2] / "data" / "library"
_FORMULAS = [
    {"left": "$$", "right": "$$", "display": True},
    {"left": "\\[", "right": "\\]", "display": True},
    {"left": "\\(", "right": "\\)", "display": False},
]
_TURNS = "pageturn.turns(element, trigger, 'retry', 'edit', 'cancel', 'show', 'suggest', 'earlier')"
_DRAWER_HEAD = """<header class="pt-drawer-head"><h2>{title}</h2>
<button type="button" data-drawer aria-label="×">×</button></header>"""
_DAY_S = 86400

_HEADER = """
<header class="pt-top">
  <span class="pt-brand">Pageturn</span><span class="pt-model">{model}</span>
  <nav class="pt-nav" aria-label="Pageturn">{parts}</nav>
  <button type="button" class="pt-language" data-language
  title="English / 中文">{language}</button>
  <button type="button" class="pt-account" data-logout>{log_out}</button>
</header>
"""


def _parts(*parts: str) -> str:
    return "".join(
        f'<button type="button" data-go="{part}">{both(f"nav_{part}")}</button>' for part in parts
    )


def _header(model: str) -> str:
    parts = _parts("history", "chat", "sources", "documents")
    language, log_out = both("switch_language"), both("log_out")
    return _HEADER.format(model=escape(model), parts=parts, language=language, log_out=log_out)


def _side() -> str:
    return f'<nav class="pt-side-nav">{_parts("sources", "documents")}</nav>'


def _welcome() -> str:
    title, text = both("welcome_title"), both("welcome_text")
    return f'<div class="pt-welcome"><h2>{title}</h2><p>{text}</p></div>'


def _placeholder() -> str:
    title, text = both("blank_title"), both("blank_text")
    blank = f'<p class="pt-blank-title">{title}</p><p>{text}</p>'
    return f'<div class="pt-blank pt-start">{blank}</div>'


def _to_end() -> str:
    return f'<button type="button" data-to-end>↓<span>{both("to_end")}</span></button>'


def _html(value: str, **options: Any) -> gr.HTML:
    """HTML of ours, without Gradio's own styles for HTML."""
    options.setdefault("js_on_load", None)
    return gr.HTML(value, apply_default_css=False, **options)


def build(
    conversations: Conversations,
    library: Library,
    engine: Engine,
    sample_library: Path = SAMPLE_LIBRARY,
) -> gr.Blocks:
    """The page on these services, ready for ``mount``."""
    actions = Actions(conversations, library, engine, sample_library)
    with gr.Blocks(
        title="Pageturn", analytics_enabled=False, fill_width=True, delete_cache=(3600, _DAY_S)
    ) as page:
        # The id only, and in the browser only: a restart of the server changes nothing for a tab.
        session = gr.BrowserState("", storage_key="pageturn.conversation", secret="pageturn")
        _html(_header(engine.model_name), elem_id="pt-header")
        views = add_pages(Pages(conversations, library, engine, sample_library), page, session)
        with gr.Row(elem_id="pt-columns", equal_height=False):
            with gr.Column(elem_id="pt-left", min_width=0):
                new = gr.Button(t("new_conversation"), elem_id="pt-new", size="md")
                search = gr.Textbox(
                    show_label=False,
                    label=t("search_conversations"),
                    placeholder=t("search_conversations"),
                    container=False,
                    max_lines=1,
                    elem_id="pt-search",
                )
                history = _html(
                    "",
                    elem_id="pt-history",
                    js_on_load="pageturn.history(element, trigger, 'open', 'remove', 'rename')",
                )
                memory = _html("", elem_id="pt-memory")
            with gr.Column(elem_id="pt-middle", min_width=0):
                # A small model's text comes second to what the documents say.
                leads = ["pt-quotes-lead"] if is_small(engine) else []
                with gr.Column(elem_id="pt-scroll", elem_classes=leads, min_width=0):
                    earlier = _html("", elem_id="pt-earlier")
                    chatbot = gr.Chatbot(
                        show_label=False,
                        container=False,
                        height="auto",
                        autoscroll=False,
                        elem_id="pt-transcript",
                        layout="bubble",
                        buttons=["copy"],
                        placeholder=_placeholder(),
                        latex_delimiters=_FORMULAS,
                        group_consecutive_messages=False,
                        # Tags that load something, where one gets past safe_markdown, stay text.
                        allow_tags=["img", "image", "iframe", "video", "audio", "source", "input"],
                        feedback_options=None,
                    )
                    # What is being written stands below the transcript, as if it were part of it:
                    # a browser draws all of a transcript for every update of it.
                    with gr.Column(elem_id="pt-live", min_width=0):
                        quotes = _html("", elem_id="pt-live-quotes")
                        live = gr.Markdown(
                            container=False,
                            latex_delimiters=_FORMULAS,
                            line_breaks=True,
                            elem_id="pt-live-text",
                        )
                        progress = _html("", elem_id="pt-live-progress")
                _html(_to_end(), elem_id="pt-to-end")
                with gr.Column(elem_id="pt-start"):
                    _html(_welcome())
                    sample = gr.Button(t("try_samples"), elem_id="pt-sample", variant="primary")
                first = _html("", elem_id="pt-suggestions")
                banner = _html("", elem_id="pt-banner")
                composer = gr.Textbox(
                    show_label=False,
                    label=t("your_question"),
                    placeholder=t("ask_placeholder"),
                    lines=1,
                    max_lines=8,
                    autofocus=True,
                    container=False,
                    submit_btn=True,
                    elem_id="pt-composer",
                )
                with gr.Row(elem_id="pt-foot"):
                    scope = _html(settings.scope(conversations.defaults), elem_id="pt-scope")
                with gr.Column(elem_id="pt-drawer", min_width=0):
                    _html(_DRAWER_HEAD.format(title=both("settings")))
                    controls = settings.controls(conversations.defaults)
                turns = _html("", elem_id="pt-turns", js_on_load=_TURNS)
            with gr.Column(elem_id="pt-right", min_width=0):
                _html(_side(), elem_id="pt-side")
                with gr.Column(elem_id="pt-sources-pane", min_width=0):
                    panel = _html(
                        "",
                        elem_id="pt-sources",
                        js_on_load="pageturn.sources(element, trigger, watch, 'pick')",
                    )
                with gr.Column(elem_id="pt-documents-pane", min_width=0):
                    upload = gr.File(
                        file_count="multiple",
                        show_label=False,
                        label=t("add_documents"),
                        height=128,
                        elem_id="pt-upload",
                    )
                    documents = _html(
                        "",
                        elem_id="pt-documents",
                        js_on_load="pageturn.documents(element, trigger, watch, 'remove')",
                    )
        seen = gr.Textbox(visible=False)
        editing = gr.Textbox(visible=False)
        clock = gr.Timer(CLOCK_S)

        screen = Screen(
            session,
            earlier,
            chatbot,
            quotes,
            live,
            progress,
            panel,
            history,
            documents,
            memory,
            composer,
            upload,
            seen,
            first,
            editing,
            banner,
            scope,
            *controls,
            clock,
        )
        outputs = list(screen)
        quick = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
        # Gradio shows notices of queued events only: these have something to say when they fail.
        spoken = {**quick, "queue": True, "concurrency_limit": None}

        page.load(
            actions.load,
            session,
            outputs,
            js="(stored) => pageturn.recall(stored)",
            **spoken,
        )
        page.unload(actions.unload)
        session.change(None, session, None, js="(id) => pageturn.remember(id)")
        new.click(actions.new, None, outputs, **quick)
        history.open(actions.open, None, outputs, **spoken)
        history.remove(actions.delete, session, outputs, **spoken)
        history.rename(actions.rename, session, outputs, **spoken)
        search.change(
            actions.search, [search, session], outputs, trigger_mode="always_last", **quick
        )
        panel.pick(actions.pick, outputs=outputs, **newest_of("picked", session), **quick)

        typed = [composer, session, editing, *controls]
        for asked in (
            composer.submit(actions.take, typed, outputs, trigger_mode="multiple", **spoken),
            turns.retry(actions.retry, [session, *controls], outputs, **spoken),
            turns.suggest(actions.suggest, [session, *controls], outputs, **spoken),
        ):
            asked.then(
                actions.answer,
                session,
                list(Streamed(session, quotes, live, progress, panel)),
                show_progress="hidden",
                api_visibility="private",
                trigger_mode="multiple",
                concurrency_limit=32,
                concurrency_id="answers",
            ).then(actions.finish, session, outputs, **quick)
        turns.edit(actions.edit, session, outputs, **spoken)
        turns.cancel(actions.cancel_edit, None, outputs, **quick)
        turns.show(actions.show, session, outputs, **spoken)
        turns.earlier(actions.earlier, session, outputs, **quick)
        for control in controls:
            control.input(
                actions.configure,
                [session, *controls],
                outputs,
                trigger_mode="always_last",
                **quick,
            )
        composer.stop(actions.stop, session, outputs, trigger_mode="multiple", **spoken)

        upload.upload(
            actions.upload,
            upload,
            outputs,
            show_progress="minimal",
            api_visibility="private",
            concurrency_limit=4,
        )
        documents.remove(actions.remove, session, outputs, **spoken)
        sample.click(actions.add_sample, None, outputs, **spoken)
        ask_for_news(clock, "chat")
        views.news_chat(actions.tick, [session, seen], outputs, **quick)
    return page
