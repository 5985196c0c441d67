"""The memory page: where every byte and every page of the pool is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from chat.ui import figures
from chat.ui.i18n import Words
from chat.ui.text import escape
from chat.views import HeldView

if TYPE_CHECKING:
    from engine import MemoryReport

KINDS = ("static", "active", "idle", "cached", "free")
# More cells than this cannot be told apart, and every one of them is sent.
MOST_CELLS = 600


class Memory(NamedTuple):
    """What the page shows: the engine's report, its pages, and whose conversations hold them.

    ``others`` and ``others_bytes`` add up the sessions that are not this person's. ``kinds`` are
    the pool's slots: pages, or where KV is coded (``kv_dtype``) what a coded page takes.
    ``notices`` say what is not as it was asked for.
    """

    report: MemoryReport
    kinds: Sequence[str]
    held: Sequence[HeldView]
    others: int
    others_bytes: int
    page_tokens: int
    on_cpu: bool
    kv_dtype: str = ""
    notices: tuple[str, ...] = ()

    @property
    def coded(self) -> bool:
        return self.report.pages_per_plain > 1

    @property
    def slots(self) -> str:
        """What its pages are counted in: the word's key."""
        return "memory_slots" if self.coded else "memory_pages"


class Part(NamedTuple):
    key: str
    name: str
    hint: str
    size_bytes: int
    pages: int | None


def memory_page(memory: Memory, words: Words) -> str:
    """The whole page."""
    return (
        f'<h1 class="pt-page-title">{escape(words("memory_title"))}</h1>'
        f"{_bar(memory, words)}{_map(memory, words)}{_held(memory, words)}"
        f"{_device(memory, words)}"
    )


def parts(memory: Memory, words: Words) -> list[Part]:
    """The weights and the pool, split by who holds its pages; together all that we asked for."""
    report, counts = memory.report, Counter(memory.kinds)
    names = {kind: words(f"memory_{kind}") for kind in KINDS}
    hints = {kind: words(f"memory_{kind}_hint") for kind in KINDS}
    return [
        Part(
            "weights",
            words("memory_weights"),
            words("memory_weights_hint"),
            report.weights_bytes,
            None,
        ),
        *(
            Part(kind, names[kind], hints[kind], counts[kind] * report.kv_page_bytes, counts[kind])
            for kind in KINDS
        ),
    ]


def _bar(memory: Memory, words: Words) -> str:
    shown = parts(memory, words)
    segments = "".join(
        f'<span class="pt-segment pt-{part.key}" style="flex-grow:{part.size_bytes}" '
        f'title="{escape(part.name)}: {figures.size(part.size_bytes)}"></span>'
        for part in shown
        if part.size_bytes
    )
    legend = "".join(
        f'<li data-part="{part.key}"><i class="pt-{part.key}"></i><span><b>{escape(part.name)}</b>'
        f'<small>{escape(part.hint)}</small></span><span class="pt-amount">'
        f"{figures.size(part.size_bytes)}{_pages(part.pages, memory.slots, words)}</span></li>"
        for part in shown
    )
    label = "; ".join(f"{part.name}: {figures.size(part.size_bytes)}" for part in shown)
    return (
        f'<section class="pt-panel"><h2>{escape(words("memory_bar"))}</h2>'
        f'<div class="pt-bar pt-bar-large" role="img" aria-label="{escape(label)}">{segments}</div>'
        f'<ul class="pt-parts">{legend}</ul></section>'
    )


def _pages(pages: int | None, counted_in: str, words: Words) -> str:
    if pages is None:
        return ""
    return f"<small>{escape(words.count(pages, counted_in))}</small>"


def _map(memory: Memory, words: Words) -> str:
    kinds = memory.kinds
    run = run_pages(len(kinds))
    size = figures.size(run * memory.report.kv_page_bytes)
    which = "each" if run == 1 else "run"
    said = words(f"memory_map_{which}", pages=run, tokens=memory.page_tokens, size=size)
    if memory.coded:
        said += " " + words(
            "memory_map_coded", codec=memory.kv_dtype, slots=memory.report.pages_per_plain
        )
    counts = Counter(kinds)
    label = "; ".join(
        f"{words(f'memory_{kind}')}: {words.count(counts[kind], memory.slots)}" for kind in KINDS
    )
    cells = "".join(_cell(kinds[start : start + run]) for start in range(0, len(kinds), run))
    return (
        f'<section class="pt-panel"><h2>{escape(words("memory_map"))}</h2>'
        f'<p class="pt-page-note">{escape(said)}</p>'
        f'<div class="pt-map" role="img" aria-label="{escape(label)}">{cells}</div></section>'
    )


def run_pages(total: int) -> int:
    """How many pages a cell stands for."""
    return max(1, -(-total // MOST_CELLS))


def _cell(kinds: Sequence[str]) -> str:
    """A run of pages in the colour of the kind that holds most of those in use."""
    used = Counter(kind for kind in kinds if kind != "free")
    if not used:
        return '<i class="pt-free"></i>'
    kind = used.most_common(1)[0][0]
    share = used.total() / len(kinds)
    filled = "" if share == 1 else f' style="--pt-used:{share:.0%}"'
    return f'<i class="pt-{kind}"{filled}></i>'


def _held(memory: Memory, words: Words) -> str:
    others = ""
    if memory.others:
        count = words.count(memory.others, "conversations_count")
        said = words("memory_others", count=count, size=figures.size(memory.others_bytes))
        others = f'<p class="pt-page-note">{escape(said)}</p>'
    if not memory.held:
        body = f'<p class="pt-page-note">{escape(words("memory_held_none"))}</p>'
    else:
        titles = ["memory_tokens", "memory_with_kv", "memory_page_count", "memory_size"]
        if memory.coded:
            titles += ["memory_coded", "memory_approximate"]
        heads = "".join(
            f'<th scope="col" class="pt-right">{escape(words(key))}</th>' for key in titles
        )
        rows = "".join(_held_row(view, memory.coded, words) for view in memory.held)
        label = escape(words("memory_held"))
        body = (
            f'<p class="pt-page-note">{escape(_held_note(memory, words))}</p>'
            f'<div class="pt-scroll" tabindex="0" role="region" aria-label="{label}">'
            f'<table class="pt-table"><thead><tr>'
            f'<th scope="col">{escape(words("memory_conversation"))}</th>{heads}'
            f'<th scope="col">{escape(words("memory_state"))}</th><td></td></tr></thead>'
            f"<tbody>{rows}</tbody></table></div>"
        )
    heading = escape(words("memory_held"))
    return f'<section class="pt-panel"><h2>{heading}</h2>{body}{others}</section>'


def _held_note(memory: Memory, words: Words) -> str:
    note = words("memory_held_note")
    return f"{note} {words('memory_approximate_note')}" if memory.coded else note


def _held_row(view: HeldView, coded: bool, words: Words) -> str:
    title = view.title or words("untitled")
    cells = [
        f"{view.tokens:,}",
        f"{view.kv_tokens:,}",
        f"{view.pages:,}",
        figures.size(view.kv_bytes),
    ]
    if coded:
        cells += [f"{view.info.coded_pages:,}", f"{view.info.approximate_tokens:,}"]
    shown = "".join(f'<td class="pt-right">{cell}</td>' for cell in cells)
    state = words("memory_state_active" if view.running else "memory_state_idle")
    label = escape(words("memory_free_label", title=title))
    button = (
        ""
        if view.running
        else f'<button type="button" class="pt-action" data-free="{escape(view.session)}" '
        f'aria-label="{label}">{escape(words("memory_free_button"))}</button>'
    )
    return (
        f'<tr data-session="{escape(view.session)}"><th scope="row" class="pt-clip" dir="auto">'
        f"{escape(title)}</th>{shown}<td>{escape(state)}</td>"
        f'<td class="pt-right">{button}</td></tr>'
    )


def _device(memory: Memory, words: Words) -> str:
    """What the device itself reports, under its own names."""
    report = memory.report
    used = report.process_rss_bytes if memory.on_cpu else report.device_used_bytes
    shown = [
        (words("memory_device_name"), report.device_name),
        (
            words("memory_used_ram" if memory.on_cpu else "memory_used"),
            figures.size(used),
        ),
        (words("memory_total"), figures.size(report.device_total_bytes)),
        (words("memory_allocated"), figures.size(report.device_allocated_bytes)),
        (words("memory_reserved"), figures.size(report.device_reserved_bytes)),
        (words("memory_pool"), figures.size(report.kv_pool_bytes)),
        (words("memory_kv_dtype"), memory.kv_dtype),
    ]
    if report.kv_scratch_bytes:
        shown.append((words("memory_scratch"), figures.size(report.kv_scratch_bytes)))
    rows = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in shown
    )
    heading = escape(f"{words('memory_of_device')} ({'RAM' if memory.on_cpu else 'VRAM'})")
    facts = f'<dl class="pt-facts">{rows}</dl>'
    notices = "".join(f'<p class="pt-page-note">{escape(notice)}</p>' for notice in memory.notices)
    return f'<section class="pt-panel"><h2>{heading}</h2>{facts}{notices}</section>'
