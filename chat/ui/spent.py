"""What opens below the quiet line: where a turn's time, tokens and memory went, and what was
searched for besides the question.

All figures are TurnStats', and none a clock's of the page.
"""

from __future__ import annotations

from typing import NamedTuple

from chat.stats import TurnStats
from chat.ui import figures
from chat.ui.i18n import Words
from chat.ui.text import escape


class Part(NamedTuple):
    """A part of a bar: its key in words and styles, its size, and the size as people read it."""

    key: str
    amount: float
    said: str


def time_parts(stats: TurnStats) -> list[Part]:
    """Rewrite (if any), search, queue, prefill and decode, in the order in which they happened."""
    return [
        Part(f"part_{name}", time_s, figures.seconds(time_s))
        for name, time_s in (
            *([("rewrite", stats.rewrite_s)] if stats.rewrite_s > 0 else ()),
            ("search", stats.retrieve_s),
            ("queue", stats.queue_s),
            ("prefill", stats.prefill_s),
            ("decode", stats.decode_s),
        )
    ]


def token_parts(stats: TurnStats) -> list[Part]:
    """The prompt's tokens by where their KV came from; together they are all of them."""
    return [
        Part(f"tokens_{name}", tokens, f"{tokens:,}")
        for name, tokens in (
            ("static", stats.static_tokens),
            ("kept", stats.cached_tokens - stats.static_tokens),
            ("new", stats.computed_tokens),
        )
    ]


def spent(stats: TurnStats, words: Words, rewritten: str | None = None) -> str:
    """Two bars, the figures that have no parts, and the question as the model rewrote it."""
    times, tokens = time_parts(stats), token_parts(stats)
    answer = words.count(stats.generated_tokens, "generated")
    if stats.decode_tokens_per_s > 0:
        answer += f" · {words('rate', rate=figures.rate(stats.decode_tokens_per_s))}"
    held = f"{words.count(stats.kv_pages, 'kv_pages')} · {figures.size(stats.kv_bytes)}"
    memory = " · ".join(
        f"{words(f'memory_{when}')} {figures.size(size_bytes)}"
        for when, size_bytes in (
            ("before", stats.device_bytes_before),
            ("after", stats.device_bytes_after),
            ("peak", stats.device_bytes_peak),
        )
    )
    return (
        _bar("cost_time", times, figures.seconds(sum(part.amount for part in times)), words)
        + _bar("cost_tokens", tokens, f"{stats.prompt_tokens:,}", words)
        + '<dl class="pt-rest">'
        + _entry(words("cost_answer"), answer)
        + _entry(words("kv_held"), held)
        + _refreshed(stats, words)
        + _entry(words("cost_memory"), memory)
        + (_entry(words("searched_for"), rewritten) if rewritten else "")
        + "</dl>"
    )


def _refreshed(stats: TurnStats, words: Words) -> str:
    """What idle time was used for before this turn, where KV is coded."""
    if not stats.refreshed_tokens:
        return ""
    said = words.count(stats.refreshed_tokens, "kv_refreshed_tokens")
    return _entry(words("kv_refreshed"), said)


def _bar(title: str, parts: list[Part], total: str, words: Words) -> str:
    segments = "".join(
        f'<span class="pt-segment pt-{part.key}" style="flex-grow:{part.amount:g}" '
        f'title="{escape(f"{words(part.key)}: {part.said}")}"></span>'
        for part in parts
        if part.amount > 0
    )
    legend = "".join(
        f'<li><i class="pt-{part.key}"></i>{words(part.key)} <b>{part.said}</b></li>'
        for part in parts
    )
    return (
        f'<div class="pt-split"><p><span>{words(title)}</span><b>{total}</b></p>'
        f'<div class="pt-bar" aria-hidden="true">{segments}</div>'
        f'<ul class="pt-split-legend">{legend}</ul></div>'
    )


def _entry(name: str, value: str) -> str:
    return f'<div><dt>{name}</dt><dd dir="auto">{escape(value)}</dd></div>'
