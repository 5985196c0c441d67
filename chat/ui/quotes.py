"""What the documents themselves say to a question, beside what the model makes of it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from chat.ui.i18n import EN, Words
from chat.ui.sources import page_name, quote_name
from chat.ui.text import escape
from chat.views import CitationView

# What Markdown begins a heading, a quotation or an item with, and what it puts around letters that
# stand out: no words.
_BEGINNING = re.compile(r"\A(?:#{1,6}\s+|>\s*|[-*+]\s+|[*_]{2,3}\s*|[*_](?=\w))+")
_EMPHASIS = re.compile(r"(?<![A-Za-z0-9*])(\*{1,3})(?=[^\s*])([^*]+)(?<=\S)\1(?![A-Za-z0-9*])")


def quotes(
    turn_id: str,
    evidence: Sequence[CitationView],
    answerable: bool | None,
    words: Words = EN,
    *,
    answered: bool = False,
    announced: bool = False,
) -> str:
    """The sentences, each leading to its place beside the answer; nothing where there are none.

    ``answered``: the model has a text, too; ``announced``: which follows, and is called that.
    """
    if not evidence:
        return ""
    title = words("closest" if answerable is False else "quoted")
    kind = "pt-quotes pt-closest" if answerable is False else "pt-quotes"
    kind += "" if answered else " pt-alone"
    lines = "".join(
        f'<a class="pt-quote" href="#source-{escape(turn_id)}-{quote_name(place)}">'
        f'<q dir="auto">{escape(_plain(quote.support_text))}</q>'
        f'<span class="pt-where">{escape(quote.title)} · {escape(page_name(quote, words))}</span>'
        "</a>"
        for place, quote in enumerate(evidence)
    )
    model = f'<p class="pt-quotes-title">{words("model_says")}</p>' if announced else ""
    return f'<div class="{kind}"><p class="pt-quotes-title">{title}</p>{lines}</div>{model}'


def _plain(sentence: str) -> str:
    plain = _EMPHASIS.sub(r"\2", sentence)
    return " ".join(_BEGINNING.sub("", plain).split())
