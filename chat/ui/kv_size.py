"""What KV would take: a form of sizes, and the answer as a picture and a table.

Nothing of it is measured: it is `engine.calculator.size` with the numbers of the form, which begin
as those of the loaded model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from chat.ui import figures
from chat.ui.i18n import Words, both
from chat.ui.text import escape
from engine.errors import SettingError

if TYPE_CHECKING:
    from engine import Engine
    from engine.calculator.size import Attention, Need, Row

_START_TOKENS = 4096
_GIB = 2**30
_MOST_GIB = 1_000_000
_WHOLE = 'min="1" step="1" inputmode="numeric"'
_STEPS = {"memory": 'min="0.1" step="any" inputmode="decimal"'}
FIELDS = ("tokens", "sessions", "layers", "heads", "kv_heads", "head_dim", "memory")
_COLUMNS = ("kv_token", "kv_session", "kv_together", "kv_longest", "kv_fit")


class Kept(NamedTuple):
    """One way in which heads share keys and values, and what that takes."""

    attention: Attention
    rows: Sequence[Row]


def start(engine: Engine) -> dict[str, float]:
    """The loaded model's sizes, and the memory that its weights leave of the device."""
    from engine.calculator.shape import Shape, read_config

    shape = Shape.of(read_config(engine.config.model, engine.config.convert_dir), {})
    memory = engine.memory()
    free = memory.device_total_bytes - memory.weights_bytes
    return {
        "tokens": _START_TOKENS,
        "sessions": engine.config.max_sessions,
        "layers": shape.layers,
        "heads": shape.heads,
        "kv_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "memory": max(math.floor(free / _GIB * 10) / 10, 0.1),
    }


def form(values: Mapping[str, float]) -> str:
    """The inputs, in both languages: it is drawn before the reader is known, and only once."""
    from engine.calculator.shape import MOST
    from engine.calculator.size import MOST_SESSIONS, MOST_TOKENS

    most = {**MOST, "tokens": MOST_TOKENS, "sessions": MOST_SESSIONS, "memory": _MOST_GIB}
    inputs = "".join(
        f'<label><span>{both(f"kv_{name}")}</span><input type="number" name="{name}" '
        f'value="{value:g}" max="{most[name]}" {_STEPS.get(name, _WHOLE)} required></label>'
        for name, value in values.items()
    )
    return (
        f'<section class="pt-panel"><h2>{both("kv_title")}</h2>'
        f'<p class="pt-page-note">{both("kv_note")}</p>'
        f'<form class="pt-kv-form">{inputs}</form></section>'
    )


def answer(values: Mapping[str, str], page_size: int, dtype: str, words: Words) -> str:
    """The picture and the table, or the reason why there are none."""
    from engine.calculator.shape import Shape
    from engine.calculator.size import PLAIN, Need, attentions, rows

    try:
        numbers = {name: int(values[name]) for name in values if name != "memory"}
        memory = int(float(values["memory"]) * _GIB)
        if numbers["heads"] % max(numbers["kv_heads"], 1):
            return _sentence(words("kv_uneven"))
        sizes = {name: numbers[name] for name in ("layers", "heads", "kv_heads", "head_dim")}
        shape = Shape.of({}, sizes)
        plain = dtype if dtype in PLAIN else "float32"
        need = Need(numbers["tokens"], numbers["sessions"], memory, page_size, plain)
    except (KeyError, ValueError, OverflowError, SettingError):
        return _sentence(words("kv_out_of_range"))
    kept = [
        # float16 takes what bfloat16 takes, and stands in its line.
        Kept(one, [row for row in rows(shape, one, need) if row.kv_dtype != "float16"])
        for one in attentions(shape)
    ]
    title = words(
        "kv_answer",
        sessions=words.count(need.sessions, "kv_sessions_count"),
        tokens=words.count(need.tokens, "kv_tokens_count"),
    )
    return (
        f'<section class="pt-panel" data-kv-size><h2>{escape(title)}</h2>'
        f"{_picture(kept, need, words)}{_table(kept, words)}{_remarks(kept, need, words)}</section>"
    )


def _sentence(text: str) -> str:
    return f'<section class="pt-panel"><p class="pt-page-note">{escape(text)}</p></section>'


def _name(kv_dtype: str) -> str:
    return "bfloat16, float16" if kv_dtype == "bfloat16" else kv_dtype


def _title(one: Attention, words: Words) -> str:
    heads = words.count(one.kv_heads, "kv_heads_count")
    own = words("kv_own") if one.own else ""
    return f"{one.name}, {heads}{own}"


def _picture(kept: Sequence[Kept], need: Need, words: Words) -> str:
    sizes = [row.size.total_bytes for _, rows in kept for row in rows if row.size]
    most = max(sizes)
    groups = "".join(
        f"<figure><figcaption>{escape(_title(one, words))}</figcaption>"
        f"{''.join(_bar(row, most, need) for row in rows)}</figure>"
        for one, rows in kept
    )
    legend = "".join(
        f'<li><i class="pt-kv-{kind}"></i>{escape(words(f"kv_{kind}"))}</li>'
        for kind in ("plain", "coded", "over")
    )
    label = "; ".join(
        f"{_title(one, words)}, {_name(row.kv_dtype)}: {figures.binary_size(row.size.total_bytes)}"
        for one, rows in kept
        for row in rows
        if row.size
    )
    return (
        f'<div class="pt-kv-bars" role="img" aria-label="{escape(label)}">{groups}</div>'
        f'<ul class="pt-legend pt-kv-legend">{legend}</ul>'
    )


def _bar(row: Row, most: int, need: Need) -> str:
    name = escape(_name(row.kv_dtype))
    if row.size is None:
        return f"<span>{name}</span><i></i><b>–</b>"
    total = row.size.total_bytes
    coded = row.kv_dtype not in ("float32", "bfloat16")
    kind = "over" if total > need.memory_bytes else "coded" if coded else "plain"
    return (
        f'<span>{name}</span><i><em class="pt-kv-{kind}" style="width:{total / most:.2%}"></em></i>'
        f"<b>{figures.binary_size(total)}</b>"
    )


def _table(kept: Sequence[Kept], words: Words) -> str:
    heads = "".join(
        f'<th scope="col" class="pt-right">{escape(words(key))}</th>' for key in _COLUMNS
    )
    bodies = "".join(
        f'<tbody data-attention="{one.name}"><tr><th scope="rowgroup" class="pt-kv-group" '
        f'colspan="{len(_COLUMNS) + 1}">{escape(_title(one, words))}</th></tr>'
        f"{''.join(map(_row, rows))}</tbody>"
        for one, rows in kept
    )
    label = escape(words("kv_table"))
    return (
        f'<div class="pt-scroll" tabindex="0" role="region" aria-label="{label}">'
        f'<table class="pt-table" aria-label="{label}"><thead><tr><th scope="col">'
        f"{escape(words('kv_dtype'))}</th>{heads}</tr></thead>{bodies}</table></div>"
    )


def _row(row: Row) -> str:
    size = row.size
    cells = ["–"] * len(_COLUMNS)
    if size is not None:
        cells = [
            f"{size.token_bytes:,.0f} B",
            figures.binary_size(size.session_bytes),
            figures.binary_size(size.total_bytes),
            f"{size.longest_tokens:,}",
            f"{size.sessions_that_fit:,}",
        ]
    shown = "".join(f'<td class="pt-right">{cell}</td>' for cell in cells)
    name = escape(_name(row.kv_dtype))
    return f'<tr data-kv-dtype="{row.kv_dtype}"><th scope="row">{name}</th>{shown}</tr>'


def _remarks(kept: Sequence[Kept], need: Need, words: Words) -> str:
    from engine.coded.layout import WINDOW_TOKENS

    said = [words("kv_explained", page=need.page_size, window=WINDOW_TOKENS, dtype=need.dtype)]
    refused = [row.kv_dtype for row in kept[0].rows if row.size is None]
    if refused:
        said.append(words("kv_refused", names=", ".join(refused)))
    return "".join(f'<p class="pt-page-note pt-kv-remark">{escape(text)}</p>' for text in said)
