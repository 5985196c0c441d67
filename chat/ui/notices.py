"""What goes wrong is said on the page: a sentence, and never a traceback."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, TypeVar

import gradio as gr

from chat.errors import ChatError
from chat.ui.i18n import EN, Words, words_for
from chat.ui.screen import Screen
from chat.ui.sentences import told
from chat.ui.text import escape
from engine.errors import EngineError
from retrieval.errors import RetrievalError

_log = logging.getLogger("pageturn")

EXPECTED = (ChatError, EngineError, RetrievalError)
_Handler = TypeVar("_Handler", bound=Callable[..., Screen])


def said(handler: _Handler) -> _Handler:
    """A handler whose errors become a sentence on the page, never a traceback."""

    @functools.wraps(handler)
    def wrapped(*args: Any, **kwargs: Any) -> Screen:
        try:
            return handler(*args, **kwargs)
        except Exception as error:
            request = next((arg for arg in args if isinstance(arg, gr.Request)), None)
            say(error, words_for(request) if request else EN)
            return Screen()

    return wrapped  # type: ignore[return-value]


def say(error: Exception, words: Words = EN) -> None:
    """Show an error as a notice. Gradio renders notices as HTML, so the text is escaped."""
    if not isinstance(error, EXPECTED):
        _log.exception("The page met an error that it does not know", exc_info=error)
        gr.Warning(words("something_wrong"))
    else:
        gr.Warning(escape(told(str(error), words)))
