"""The page of the first minutes: models that are not here yet, their size, and the fetch.

It stands alone, before there is an engine to build the real page on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from chat.ui import figures
from chat.ui.i18n import Words, early_script
from chat.ui.text import escape

_HERE = Path(__file__).parent


class Offer(NamedTuple):
    """A model that can be fetched; ``kind`` is "chat" or "embedding"."""

    name: str
    kind: str
    size_bytes: int


def first_minutes(offers: Sequence[Offer], words: Words) -> str:
    """The whole page. Its script asks ``setup`` how far the fetch is, and starts it."""
    styles = "\n".join(
        (_HERE / f"{name}.css").read_text(encoding="utf-8") for name in ("colours", "first_minutes")
    )
    script = (_HERE / "first_minutes.js").read_text(encoding="utf-8")
    texts = {key: words(f"setup_{key}") for key in ("again", "fetching", "checking", "loading")}
    models = "".join(
        f"<li><b>{escape(offer.name)}</b><span>{escape(words(f'setup_{offer.kind}'))}</span>"
        f'<span class="size">{figures.size(offer.size_bytes)}</span></li>'
        for offer in offers
    )
    total = figures.size(sum(offer.size_bytes for offer in offers))
    # "</" would end the script, whatever stands around it.
    data = json.dumps(texts, ensure_ascii=False).replace("</", "<\\/")
    return f"""<!doctype html>
<html lang="{"zh-CN" if words.language == "zh" else "en"}">
<head>
<script>{early_script()}</script>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Pageturn</title>
<style>{styles}</style>
</head>
<body>
<main>
<p class="brand">Pageturn</p>
<h1>{escape(words("setup_title"))}</h1>
<p>{escape(words("setup_text"))}</p>
<ul>{models}</ul>
<button type="button" id="fetch">{escape(words("setup_fetch", size=total))}</button>
<div id="progress" hidden><progress max="1" value="0" aria-labelledby="said"></progress></div>
<p id="said" role="status"></p>
<p id="problem" role="alert"></p>
<p class="hint">{escape(words("setup_offline"))}</p>
</main>
<script>const texts = {data};
{script}</script>
</body>
</html>
"""
