"""What the memory page draws: a bar in bytes, a map of the pages, whose they are."""

from dataclasses import replace

import pytest

from chat.ui.i18n import EN, ZH
from chat.ui.memory import MOST_CELLS, Memory, memory_page, parts, run_pages
from chat.views import HeldView
from engine.stats import MemoryReport, SessionInfo

KINDS = ("static",) * 3 + ("active",) * 5 + ("idle",) * 15 + ("cached",) * 7 + ("free",) * 70


def held(session: str = "s1", *, running: bool = False) -> HeldView:
    info = SessionInfo(
        id=7,
        owner="local",
        tokens=250,
        kv_tokens=249,
        pages=16,
        coded_pages=6,
        kv_bytes=16_000_000,
        approximate_tokens=64,
        busy=running,
    )
    return HeldView(session, "<Sizes>", info, running)


@pytest.fixture
def memory(report: MemoryReport) -> Memory:
    return Memory(report, KINDS, [held()], 0, 0, 16, True)


def test_the_parts_add_up_to_weights_and_pool(memory: Memory) -> None:
    sizes = {part.key: part.size_bytes for part in parts(memory, EN)}
    assert sizes == {
        "weights": 270_000_000,
        "static": 3_000_000,
        "active": 5_000_000,
        "idle": 15_000_000,
        "cached": 7_000_000,
        "free": 70_000_000,
    }
    assert sum(sizes.values()) == memory.report.weights_bytes + memory.report.kv_pool_bytes


def test_a_small_pool_has_a_cell_for_each_page(memory: Memory) -> None:
    cells = memory_page(memory, EN).split('class="pt-map"')[1].split("</div>")[0]
    assert cells.count("<i ") == 100
    assert cells.count('<i class="pt-active">') == 5
    assert cells.count('<i class="pt-free">') == 70


def test_a_large_pool_has_a_cell_for_a_run_filled_as_far_as_it_is_used(memory: Memory) -> None:
    large = memory._replace(kinds=("idle",) * 3 + ("free",) * 9_997)
    assert run_pages(10_000) * MOST_CELLS >= 10_000
    shown = memory_page(large, EN)
    cells = shown.split('class="pt-map"')[1].split("</div>")[0]
    assert 0 < cells.count("<i ") <= MOST_CELLS
    assert cells.count('<i class="pt-idle" style="--pt-used:18%">') == 1
    assert "A cell is a run of 17 pages" in shown


def test_a_conversation_is_listed_with_its_size_and_a_button_to_free_it(memory: Memory) -> None:
    shown = memory_page(memory, EN)
    assert 'data-free="s1"' in shown
    assert "16 MB" in shown
    assert "&lt;Sizes&gt;" in shown
    assert "<Sizes>" not in shown


def test_one_that_answers_cannot_be_freed(memory: Memory) -> None:
    shown = memory_page(memory._replace(held=[held(running=True)]), EN)
    assert "data-free" not in shown
    assert "answering" in shown


def test_other_peoples_conversations_are_a_sum_without_names(memory: Memory) -> None:
    shown = memory_page(memory._replace(held=[], others=2, others_bytes=30_000_000), EN)
    assert "2 conversations of other people: 30 MB" in shown
    assert "No conversation holds memory" in shown


def test_the_memory_is_named_after_the_device(memory: Memory) -> None:
    assert "(RAM)" in memory_page(memory, EN)
    on_gpu = memory_page(memory._replace(on_cpu=False), EN)
    assert "(VRAM)" in on_gpu
    assert "5.0 GB" in on_gpu


def test_an_empty_part_is_named_and_takes_no_room_in_the_bar(memory: Memory) -> None:
    empty = memory._replace(report=replace(memory.report), kinds=("free",) * 100)
    bar = memory_page(empty, EN).split("pt-bar-large")[1].split("</div>")[0]
    assert "pt-static" not in bar
    assert '<li data-part="static">' in memory_page(empty, EN)


def test_the_page_is_there_in_chinese(memory: Memory) -> None:
    shown = memory_page(memory, ZH)
    for words in ("权重", "空闲对话", "KV 池的页", "释放"):
        assert words in shown


def test_coded_pages_are_told_apart_and_so_is_what_is_approximate(memory: Memory) -> None:
    plain = memory_page(memory._replace(kv_dtype="bfloat16"), EN)
    assert "<dd>bfloat16</dd>" in plain
    assert "Approximate" not in plain
    report = replace(memory.report, pages_per_plain=4, kv_scratch_bytes=12_000_000)
    coded = memory._replace(report=report, kv_dtype="int4", notices=("It was <not> used.",))
    shown = memory_page(coded, EN)
    assert "It holds a page in int4; one in full precision takes 4 of them." in shown
    assert "15 slots" in shown
    assert '<td class="pt-right">6</td><td class="pt-right">64</td>' in shown
    assert "12 MB" in shown
    assert "It was &lt;not&gt; used." in shown
    assert "近似词元" in memory_page(coded, ZH)
