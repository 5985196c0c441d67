"""The drawer: how questions are answered, and which documents are asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import gradio as gr

from chat.options import AskOptions
from chat.ui.gradio_words import t
from chat.ui.i18n import EN, Words
from chat.ui.icons import SETTINGS
from chat.ui.text import escape
from chat.views import AnswerMode, RewriteMode

if TYPE_CHECKING:
    from retrieval.views import DocumentView

MOST_TOKENS = 2048
MOST_PASSAGES = 8
MOST_TOP_K = 100
MOST_PENALTY = 2.0


class Settings(NamedTuple):
    """A value, or a component, for each control of the drawer."""

    ask_documents: Any
    temperature: Any
    top_p: Any
    max_tokens: Any
    read: Any
    answer: Any
    whole: Any
    rewrite: Any
    top_k: Any
    min_p: Any
    repetition_penalty: Any
    seed: Any


def controls(default: AskOptions) -> Settings:
    """The components, made where this is called."""
    ask_documents = gr.Dropdown(
        [],
        value=[],
        multiselect=True,
        # A document that was removed meanwhile must not keep a question from being sent.
        allow_custom_value=True,
        label=t("which_documents"),
        info=t("which_documents_info"),
        elem_id="pt-ask-documents",
    )
    temperature = gr.Slider(
        0,
        2,
        default.temperature,
        step=0.05,
        label=t("temperature"),
        info=t("temperature_info"),
        elem_id="pt-temperature",
        buttons=[],
    )
    top_p = gr.Slider(
        0.05,
        1,
        default.top_p,
        step=0.05,
        label=t("top_p"),
        info=t("top_p_info"),
        elem_id="pt-top-p",
        buttons=[],
    )
    max_tokens = gr.Slider(
        8,
        MOST_TOKENS,
        default.max_tokens,
        step=8,
        label=t("max_tokens"),
        elem_id="pt-max-tokens",
        buttons=[],
    )
    read = gr.Slider(
        1,
        MOST_PASSAGES,
        default.read,
        step=1,
        label=t("passages_read"),
        info=t("passages_read_info"),
        buttons=[],
    )
    answer = gr.Radio(
        answers(EN),
        value=default.answer,
        label=t("answer_with"),
        elem_id="pt-answer-with",
    )
    whole = gr.Checkbox(
        default.whole, label=t("read_whole"), info=t("read_whole_info"), elem_id="pt-whole"
    )
    with gr.Accordion(t("more_settings"), open=False):
        rewrite = gr.Radio(
            rewrites(EN),
            value=default.rewrite,
            label=t("rewrite"),
            info=t("rewrite_info"),
            elem_id="pt-rewrite",
        )
        top_k = gr.Slider(
            0,
            MOST_TOP_K,
            default.top_k,
            step=1,
            label=t("top_k"),
            info=t("top_k_info"),
            elem_id="pt-top-k",
            buttons=[],
        )
        min_p = gr.Slider(
            0,
            1,
            default.min_p,
            step=0.01,
            label=t("min_p"),
            info=t("min_p_info"),
            buttons=[],
        )
        repetition_penalty = gr.Slider(
            1,
            MOST_PENALTY,
            default.repetition_penalty,
            step=0.05,
            label=t("repetition_penalty"),
            info=t("repetition_penalty_info"),
            buttons=[],
        )
        seed = gr.Number(None, precision=0, label=t("seed"), info=t("seed_info"))
    return Settings(
        ask_documents=ask_documents,
        temperature=temperature,
        top_p=top_p,
        max_tokens=max_tokens,
        read=read,
        answer=answer,
        whole=whole,
        rewrite=rewrite,
        top_k=top_k,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        seed=seed,
    )


def options_of(chosen: Settings, documents: Sequence[DocumentView]) -> AskOptions:
    """What the drawer says; ids that are none of these documents are left out.

    Raises BadOption.
    """
    known = {document.id for document in documents}
    ids = tuple(id for id in chosen.ask_documents or () if id in known)
    read = int(chosen.read)
    return AskOptions(
        temperature=float(chosen.temperature),
        top_p=float(chosen.top_p),
        max_tokens=int(chosen.max_tokens),
        passages=max(AskOptions().passages, read),
        read=read,
        answer=chosen.answer,
        whole=bool(chosen.whole),
        rewrite=chosen.rewrite,
        top_k=int(chosen.top_k),
        min_p=float(chosen.min_p),
        repetition_penalty=float(chosen.repetition_penalty),
        seed=None if chosen.seed is None else int(chosen.seed),
        documents=ids or None,
    )


def shown(options: AskOptions) -> Settings:
    """The drawer's values for these options."""
    return Settings(
        ask_documents=[*(options.documents or ())],
        temperature=options.temperature,
        top_p=options.top_p,
        max_tokens=min(options.max_tokens, MOST_TOKENS),
        read=min(options.read, MOST_PASSAGES),
        answer=options.answer,
        whole=options.whole,
        rewrite=options.rewrite,
        top_k=min(options.top_k, MOST_TOP_K),
        min_p=options.min_p,
        repetition_penalty=min(options.repetition_penalty, MOST_PENALTY),
        seed=options.seed,
    )


def answers(words: Words) -> list[tuple[str, str]]:
    """What an answer may be made of, as the drawer offers it."""
    return [(words(f"answer_{mode}"), mode) for mode in get_args(AnswerMode)]


def rewrites(words: Words) -> list[tuple[str, str]]:
    """Whether follow-ups are rewritten, as the drawer offers it."""
    return [(words(f"rewrite_{mode}"), mode) for mode in get_args(RewriteMode)]


def choices(documents: Sequence[DocumentView]) -> list[tuple[str, str]]:
    """The documents that can be chosen, by title; two of one title also by name."""
    ready = [document for document in documents if document.state != "refused"]
    titles = [document.title for document in ready]
    return [
        (
            document.title
            if titles.count(document.title) == 1
            else f"{document.title} ({document.name})",
            document.id,
        )
        for document in ready
    ]


def scope(options: AskOptions, words: Words = EN) -> str:
    """The line below the composer: what is asked, and the way to the drawer."""
    asks = (
        words("asks_all")
        if options.documents is None
        else words.count(len(options.documents), "asks_documents")
    )
    return (
        f'<button type="button" class="pt-drawer-button" data-drawer aria-expanded="false" '
        f'aria-controls="pt-drawer">{SETTINGS}<span>{escape(words("settings"))}</span>'
        f'<span class="pt-scope">{escape(asks)}</span></button>'
    )
