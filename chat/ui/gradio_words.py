"""The page's strings as Gradio's own components take them: translated in the browser.

Apart from ``i18n``, so that the command line draws its figures without loading Gradio.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr

from chat.ui.i18n import EN, ZH
from chat.ui.words import WORDS

# Gradio looks a key up under the browser's language: zh-TW and the like fall back to zh.
I18N = gr.I18n(
    **{
        locale: {key: words(key) for key in WORDS}
        for locale, words in (("en", EN), ("zh", ZH), ("zh-CN", ZH))
    }
)
t: Callable[[str], Any] = I18N
