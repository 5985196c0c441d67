"""What the memory holds, part by part."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from chat.ui import figures
from chat.ui.text import escape

if TYPE_CHECKING:
    from engine import MemoryReport


class Part(NamedTuple):
    """A named part of the memory that the engine asked for."""

    key: str
    name: str
    size_bytes: int
    meaning: str


def parts(report: MemoryReport) -> list[Part]:
    """The weights, and the page pool split by who holds its pages."""
    page = report.kv_page_bytes
    return [
        Part("weights", "Weights", report.weights_bytes, "The model itself"),
        Part(
            "static",
            "Static prompt",
            report.pages_static * page,
            "The system prompt, computed once and shared by every conversation",
        ),
        Part(
            "sessions",
            "Sessions",
            report.pages_sessions * page,
            "Conversations whose KV is kept for their next turn",
        ),
        Part(
            "cached",
            "Cached",
            report.pages_cached * page,
            "Pages that nobody holds now and that are found again by content; given up first",
        ),
        Part("free", "Free pages", report.pages_free * page, "Room for more conversation"),
    ]


def memory_bar(report: MemoryReport, device_kind: str) -> str:
    """The bar with its legend. On a CPU the device is the process and its memory is RAM."""
    on_cpu = device_kind == "cpu"
    used = (
        f"{figures.size(report.process_rss_bytes)} in use by this process"
        if on_cpu
        else f"{figures.size(report.device_used_bytes)} of "
        f"{figures.size(report.device_total_bytes)} in use"
    )
    shown = parts(report)
    segments = "".join(
        f'<span class="pt-segment pt-{part.key}" style="flex-grow:{part.size_bytes}" '
        f'title="{escape(_said(part))}"></span>'
        for part in shown
        if part.size_bytes
    )
    legend = "".join(
        f'<li title="{escape(part.meaning)}"><i class="pt-{part.key}"></i>{part.name}'
        f"<b>{figures.size(part.size_bytes)}</b></li>"
        for part in shown
    )
    label = "; ".join(_said(part) for part in shown)
    return (
        f'<div class="pt-memory"><p class="pt-memory-head"><span>{"RAM" if on_cpu else "VRAM"}'
        f'</span><span title="{escape(report.device_name)}">{used}</span></p>'
        f'<div class="pt-bar" role="img" aria-label="{escape(label)}">{segments}</div>'
        f'<ul class="pt-legend">{legend}</ul></div>'
    )


def _said(part: Part) -> str:
    return f"{part.name}: {figures.size(part.size_bytes)}"
