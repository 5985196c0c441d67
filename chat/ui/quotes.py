"""What the documents themselves say to a question, above what the model makes of it."""

from __future__ import annotations

from collections.abc import Sequence

from chat.ui.i18n import EN, Words
from chat.ui.sources import page_name, quote_name
from chat.ui.text import escape
from chat.views import CitationView


def quotes(
    turn_id: str,
    evidence: Sequence[CitationView],
    answerable: bool | None,
    words: Words = EN,
    *,
    answered: bool = False,
) -> str:
    """The sentences, each leading to its place beside the answer; nothing where there are none.

    ``answered``: the model's text follows, and is announced as that.
    """
    if not evidence:
        return ""
    title = words("closest" if answerable is False else "quoted")
    lines = "".join(
        f'<a class="pt-quote" href="#source-{escape(turn_id)}-{quote_name(place)}">'
        f'<q dir="auto">{escape(" ".join(quote.support_text.split()))}</q>'
        f'<span class="pt-where">{escape(quote.title)}, {escape(page_name(quote, words))}</span>'
        "</a>"
        for place, quote in enumerate(evidence)
    )
    model = f'<p class="pt-quotes-title">{words("model_says")}</p>' if answered else ""
    return f'<div class="pt-quotes"><p class="pt-quotes-title">{title}</p>{lines}</div>{model}'
