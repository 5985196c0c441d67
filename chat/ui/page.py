"""The page: what is on it and what calls what."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from chat.ui import conversation_list, sources
from chat.ui.actions import Actions
from chat.ui.screen import Screen
from chat.ui.serving import mount as mount
from chat.ui.text import escape

if TYPE_CHECKING:
    from chat.conversation import Conversations
    from engine import Engine
    from retrieval.library import Library

SAMPLE_LIBRARY = Path(__file__).parents[2] / "data" / "library"
_CLOCK_S = 2.0
_DAY_S = 86400

_HEADER = """
<header class="pt-top">
  <span class="pt-brand">Pageturn</span><span class="pt-model" title="The chat model">{model}</span>
  <nav class="pt-nav" aria-label="Parts of the page">
    <button type="button" data-go="history">Chats</button>
    <button type="button" data-go="chat">Answer</button>
    <button type="button" data-go="sources">Sources</button>
    <button type="button" data-go="documents">Documents</button>
  </nav>
</header>
"""
_SIDE = """
<nav class="pt-side-nav" aria-label="Beside the answer">
  <button type="button" data-go="sources">Sources</button>
  <button type="button" data-go="documents">Documents</button>
</nav>
"""
_WELCOME = """
<div class="pt-welcome">
  <h2>Ask your own documents</h2>
  <p>Add files to the library, then ask. Every answer shows the passages it rests on and what it
  cost. Nothing leaves this machine.</p>
</div>
"""
_PLACEHOLDER = """<div class="pt-blank pt-start"><p class="pt-blank-title">A new conversation</p>
<p>Ask a question. The answer comes with the passages it rests on.</p></div>"""


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
        _html(_HEADER.format(model=escape(engine.model_name)), elem_id="pt-header")
        with gr.Row(elem_id="pt-columns", equal_height=False):
            with gr.Column(elem_id="pt-left", min_width=0):
                new = gr.Button("New conversation", elem_id="pt-new", size="md")
                history = _html(
                    conversation_list.EMPTY,
                    elem_id="pt-history",
                    js_on_load="pageturn.history(element, trigger, 'open', 'remove')",
                )
                memory = _html("", elem_id="pt-memory")
            with gr.Column(elem_id="pt-middle", min_width=0):
                chatbot = gr.Chatbot(
                    show_label=False,
                    container=False,
                    height="100%",
                    elem_id="pt-transcript",
                    layout="bubble",
                    buttons=["copy"],
                    placeholder=_PLACEHOLDER,
                    group_consecutive_messages=False,
                    # Tags that load something, where one gets past safe_markdown, stay text.
                    allow_tags=["img", "image", "iframe", "video", "audio", "source", "input"],
                    feedback_options=None,
                )
                with gr.Column(elem_id="pt-start", visible=False) as welcome:
                    _html(_WELCOME)
                    sample = gr.Button(
                        "Try it on the sample library", elem_id="pt-sample", variant="primary"
                    )
                composer = gr.Textbox(
                    show_label=False,
                    label="Your question",
                    placeholder="Ask your documents…",
                    lines=1,
                    max_lines=8,
                    autofocus=True,
                    container=False,
                    submit_btn=True,
                    elem_id="pt-composer",
                )
            with gr.Column(elem_id="pt-right", min_width=0):
                _html(_SIDE, elem_id="pt-side")
                with gr.Column(elem_id="pt-sources-pane", min_width=0):
                    panel = _html(
                        sources.EMPTY,
                        elem_id="pt-sources",
                        js_on_load="pageturn.sources(element, trigger, watch, 'pick')",
                    )
                with gr.Column(elem_id="pt-documents-pane", min_width=0):
                    upload = gr.File(
                        file_count="multiple",
                        show_label=False,
                        label="Add documents",
                        height=128,
                        elem_id="pt-upload",
                    )
                    documents = _html(
                        "",
                        elem_id="pt-documents",
                        js_on_load="pageturn.documents(element, trigger, 'remove')",
                    )
        seen = gr.Textbox(visible=False)
        clock = gr.Timer(_CLOCK_S)

        screen = Screen(
            session, chatbot, panel, history, documents, memory, welcome, composer, upload, seen
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
        panel.pick(actions.pick, session, outputs, trigger_mode="always_last", **quick)

        composer.submit(
            actions.take, [composer, session], outputs, trigger_mode="multiple", **spoken
        ).then(
            actions.answer,
            session,
            [session, chatbot, panel],
            show_progress="hidden",
            api_visibility="private",
            trigger_mode="multiple",
            concurrency_limit=32,
            concurrency_id="answers",
        ).then(actions.finish, session, outputs, **quick)
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
        clock.tick(actions.tick, [session, seen], outputs, **quick)
    return page
