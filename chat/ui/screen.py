"""Everything on the page that changes, as one value: what a handler returns."""

from __future__ import annotations

from typing import Any, NamedTuple

import gradio as gr

KEEP: dict[str, Any] = gr.skip()


class Screen(NamedTuple):
    """One value for each changing component, in the order of the handlers' outputs."""

    session: Any = KEEP
    earlier: Any = KEEP
    transcript: Any = KEEP
    quotes: Any = KEEP
    live: Any = KEEP
    progress: Any = KEEP
    sources: Any = KEEP
    history: Any = KEEP
    documents: Any = KEEP
    memory: Any = KEEP
    composer: Any = KEEP
    upload: Any = KEEP
    seen: Any = KEEP
    suggestions: Any = KEEP
    editing: Any = KEEP
    banner: Any = KEEP
    scope: Any = KEEP
    ask_documents: Any = KEEP
    temperature: Any = KEEP
    top_p: Any = KEEP
    max_tokens: Any = KEEP
    read: Any = KEEP
    answer: Any = KEEP
    whole: Any = KEEP
    rewrite: Any = KEEP
    top_k: Any = KEEP
    min_p: Any = KEEP
    repetition_penalty: Any = KEEP
    seed: Any = KEEP
    clock: Any = KEEP


class Streamed(NamedTuple):
    """What changes while an answer is written; the transcript above it does not."""

    session: Any = KEEP
    quotes: Any = KEEP
    live: Any = KEEP
    progress: Any = KEEP
    sources: Any = KEEP


def composer(*, busy: bool, text: str | None = None) -> Any:
    """The composer offers Stop while its conversation answers, and Send otherwise."""
    buttons: dict[str, Any] = {"submit_btn": not busy, "stop_btn": busy}
    return gr.update(**buttons) if text is None else gr.update(value=text, **buttons)
