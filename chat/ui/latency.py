"""The latency page: what every turn of a conversation cost, drawn from its stored stats."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any, NamedTuple
from urllib.parse import quote

from chat.stats import TurnStats
from chat.ui import figures
from chat.ui.i18n import Words
from chat.ui.text import escape
from chat.views import TurnView

# Readable on light and on dark paper: the charts are drawn with fixed colours.
KEPT_COLOUR, NEW_COLOUR, WHOLE_COLOUR = "#3f978f", "#b98a2f", "#7f8b98"
# Up to here every turn has its own place and label on the axis; a longer one is a scale.
_NAMED_TURNS = 16
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class Measured(NamedTuple):
    """A turn that has stats, with its place in the conversation from 1."""

    number: int
    turn: TurnView
    stats: TurnStats


class Plot(NamedTuple):
    """What a native plot of Gradio is given: its value and the properties that go with it."""

    value: dict[str, Any]
    properties: dict[str, Any]


class Plots(NamedTuple):
    time: Plot
    tokens: Plot
    kv: Plot
    rate: Plot


def measured(turns: Sequence[TurnView]) -> list[Measured]:
    """The turns that were measured, in the conversation's order."""
    return [
        Measured(number, turn, turn.stats)
        for number, turn in enumerate(turns, 1)
        if turn.stats is not None
    ]


def plots(turns: Sequence[Measured], words: Words) -> Plots:
    """The four charts of a conversation."""
    first, whole = words("latency_first_token"), words("latency_whole")
    kept, new = words("latency_cached"), words("latency_computed")
    return Plots(
        time=_plot(
            "line",
            [(m.number, _known(m.stats.ttft_s), first) for m in turns]
            + [(m.number, _known(m.stats.total_s), whole) for m in turns],
            words,
            "latency_time_axis",
            {first: KEPT_COLOUR, whole: WHOLE_COLOUR},
        ),
        tokens=_plot(
            "bar",
            # Columns are stacked from the last to the first: what is reused lies below.
            [(m.number, m.stats.computed_tokens, new) for m in turns]
            + [(m.number, m.stats.cached_tokens, kept) for m in turns],
            words,
            "latency_tokens_axis",
            {new: NEW_COLOUR, kept: KEPT_COLOUR},
        ),
        kv=_plot(
            "line", [(m.number, m.stats.kv_bytes / 1e6) for m in turns], words, "latency_kv_axis"
        ),
        rate=_plot(
            "line",
            [(m.number, _known(m.stats.decode_tokens_per_s)) for m in turns],
            words,
            "latency_rate_axis",
        ),
    )


def _plot(
    mark: str,
    points: Sequence[tuple[Any, ...]],
    words: Words,
    axis: str,
    colours: dict[str, str] | None = None,
) -> Plot:
    """Points of (turn, amount) or (turn, amount, series) as Gradio's plots take them.

    The caption holds the number of turns: Gradio redraws axes and colours when a property
    changes, and not when the points do.
    """
    turns = {point[0] for point in points}
    named = len(turns) <= _NAMED_TURNS
    if mark == "line" and len(turns) == 1:
        mark = "point"  # a line through one point cannot be seen
    columns = ["turn", "amount", "series"][: 3 if colours else 2]
    value = {
        "columns": columns,
        "data": [[str(turn) if named else turn, *rest] for turn, *rest in points],
        "datatypes": {
            "turn": "nominal" if named else "quantitative",
            "amount": "quantitative",
            "series": "nominal",
        },
        "mark": mark,
    }
    highest = _highest(points, stacked=mark == "bar")
    properties = {
        "y_lim": [0, highest * 1.08 or 1],
        "x_title": words("latency_turn"),
        "y_title": words(axis),
        "color_map": colours,
        "color_title": " ",
        "x_bin": None if named or mark != "bar" else 1,
        "caption": words.count(len(turns), "latency_over"),
    }
    return Plot(value, properties)


def _highest(points: Sequence[tuple[Any, ...]], *, stacked: bool) -> float:
    """The top of the tallest column, or the highest point."""
    if not stacked:
        return max((point[1] or 0 for point in points), default=0)
    columns: dict[int, float] = {}
    for turn, amount, *_ in points:
        columns[turn] = columns.get(turn, 0) + (amount or 0)
    return max(columns.values(), default=0)


def _known(amount: float) -> float | None:
    """Nothing was measured where a turn ended before it had this: no point is drawn."""
    return round(amount, 4) if amount > 0 else None


def tiles(turns: Sequence[Measured], words: Words) -> str:
    """The four figures above the charts."""
    cached = sum(m.stats.cached_tokens for m in turns)
    prompt = sum(m.stats.prompt_tokens for m in turns)
    newest = turns[-1].stats
    shown = [
        (f"{len(turns):,}", "tile_turns"),
        (f"{cached / prompt:.0%}" if prompt else "0%", "tile_cached"),
        (figures.seconds(newest.ttft_s), "tile_first"),
        (figures.size(newest.kv_bytes), "tile_kv"),
    ]
    return "".join(
        f'<div class="pt-tile"><dd>{escape(figure)}</dd><dt>{escape(words(key))}</dt></div>'
        for figure, key in shown
    )


def head(title: str | None, turns: Sequence[Measured], words: Words) -> str:
    """What stands above the charts: the conversation and its figures, or why there is nothing."""
    heading = f'<h1 class="pt-page-title">{escape(words("latency_title"))}</h1>'
    if title is None:
        return f'{heading}<p class="pt-page-note">{escape(words("latency_none"))}</p>'
    name = f'<p class="pt-page-note" dir="auto">{escape(title)}</p>'
    if not turns:
        note = escape(words("latency_unmeasured"))
        return f'{heading}{name}<p class="pt-page-note">{note}</p>'
    return f'{heading}{name}<dl class="pt-tiles">{tiles(turns, words)}</dl>'


def table(turns: Sequence[Measured], words: Words) -> str:
    """The same figures in rows, with the link that takes all of them along as CSV."""
    if not turns:
        return ""
    titles = [
        words(f"latency_{key}") for key in ("ttft", "total", "search", "queue", "prefill", "decode")
    ] + [
        words("latency_cached"),
        words("latency_computed"),
        words("latency_generated"),
        words("latency_speed"),
        "KV",
    ]
    heads = "".join(f'<th scope="col" class="pt-right">{escape(title)}</th>' for title in titles)
    rows = "".join(_row(m) for m in turns)
    label = escape(words("latency_table"))
    return (
        f'<div class="pt-section-head"><h2>{label}</h2>'
        f'<a class="pt-action" download="pageturn-latency.csv" '
        f'href="data:text/csv;charset=utf-8,{quote(as_csv(turns))}">'
        f"{escape(words('latency_csv'))}</a></div>"
        f'<div class="pt-scroll" tabindex="0" role="region" aria-label="{label}">'
        f'<table class="pt-table"><thead><tr><th scope="col" class="pt-right">'
        f'{escape(words("latency_turn"))}</th><th scope="col">'
        f"{escape(words('latency_question'))}</th>{heads}</tr></thead><tbody>{rows}</tbody>"
        f"</table></div>"
    )


def _row(m: Measured) -> str:
    stats = m.stats
    cells = [
        figures.seconds(stats.ttft_s) if stats.ttft_s > 0 else "–",
        *map(
            figures.seconds,
            (stats.total_s, stats.retrieve_s, stats.queue_s, stats.prefill_s, stats.decode_s),
        ),
        f"{stats.cached_tokens:,}",
        f"{stats.computed_tokens:,}",
        f"{stats.generated_tokens:,}",
        figures.rate(stats.decode_tokens_per_s) if stats.decode_tokens_per_s > 0 else "–",
        figures.size(stats.kv_bytes),
    ]
    shown = "".join(f'<td class="pt-right">{escape(cell)}</td>' for cell in cells)
    question = escape(m.turn.question)
    return (
        f'<tr><th scope="row" class="pt-right">{m.number}</th>'
        f'<td class="pt-clip" dir="auto" title="{question}">{question}</td>{shown}</tr>'
    )


def as_csv(turns: Sequence[Measured]) -> str:
    """Every measurement of every turn, with the fields' own names (and so their units)."""
    out = io.StringIO()
    names = [field.name for field in fields(TurnStats)]
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(["turn", "asked_at", "state", "question", *names])
    for m in turns:
        question = m.turn.question
        # A spreadsheet would run a cell that begins like a formula.
        safe = f"'{question}" if question.startswith(_FORMULA) else question
        values = asdict(m.stats)
        writer.writerow(
            [m.number, m.turn.created_at.isoformat(), m.turn.state, safe]
            + [values[name] for name in names]
        )
    return out.getvalue()
