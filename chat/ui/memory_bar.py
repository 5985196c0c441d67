"""What the memory holds, part by part."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from chat.ui import figures
from chat.ui.i18n import EN, Words
from chat.ui.text import escape

if TYPE_CHECKING:
    from engine import MemoryReport


class Part(NamedTuple):
    """A named part of the memory that the engine asked for."""

    key: str
    name: str
    size_bytes: int
    meaning: str


def parts(report: MemoryReport, words: Words = EN) -> list[Part]:
    """The weights, and the page pool split by who holds its pages."""
    page = report.kv_page_bytes
    return [
        Part(key, words(f"memory_{key}"), size_bytes, words(f"memory_{key}_hint"))
        for key, size_bytes in (
            ("weights", report.weights_bytes),
            ("static", report.pages_static * page),
            ("sessions", report.pages_sessions * page),
            ("cached", report.pages_cached * page),
            ("free", report.pages_free * page),
        )
    ]


def memory_bar(report: MemoryReport, device_kind: str, words: Words = EN) -> str:
    """The bar with its legend. On a CPU the device is the process and its memory is RAM."""
    on_cpu = device_kind == "cpu"
    used = (
        words("memory_process", size=figures.size(report.process_rss_bytes))
        if on_cpu
        else words(
            "memory_device",
            used=figures.size(report.device_used_bytes),
            total=figures.size(report.device_total_bytes),
        )
    )
    shown = parts(report, words)
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
