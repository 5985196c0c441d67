"""The documents, the conversations and the memory."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from chat.ui.conversation_list import conversation_list
from chat.ui.documents_panel import documents_panel, summary
from chat.ui.memory_bar import memory_bar, parts
from chat.views import SessionView
from engine.stats import MemoryReport
from retrieval.views import DocumentView

MakeDocument = Callable[..., DocumentView]


def session(session_id: str, **changes: object) -> SessionView:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    view = SessionView(session_id, f"Title {session_id}", "m", 2, at, at)
    return replace(view, **changes)  # type: ignore[arg-type]


def test_a_ready_document_says_what_is_in_it(document: MakeDocument) -> None:
    assert "PDF · 12 pages · 34 passages · 1.2 MB" in documents_panel([document()])


def test_a_refused_document_says_why(document: MakeDocument) -> None:
    shown = documents_panel([document(state="refused", reason="The file is <empty>.", passages=0)])
    assert "The file is &lt;empty&gt;." in shown
    assert "<progress" not in shown
    assert "PDF" not in shown


def test_a_document_in_work_says_how_far_it_is(document: MakeDocument) -> None:
    shown = documents_panel([document(state="embedding", passages_done=12)])
    assert "12 of 34 passages" in shown
    assert '<progress max="34" value="12">' in shown


def test_a_document_that_waits_for_a_person_says_for_what(document: MakeDocument) -> None:
    assert "The disk is full." in documents_panel(
        [document(state="embedding", reason="The disk is full.")]
    )


def test_remarks_about_a_readable_document_are_shown(document: MakeDocument) -> None:
    assert "Page 3 has no text." in documents_panel([document(warnings=("Page 3 has no text.",))])


def test_a_document_of_everybody_says_so_and_cannot_be_removed_here(
    document: MakeDocument,
) -> None:
    panel = documents_panel([document(owner="shared")])
    assert ">shared</span>" in panel
    assert "data-remove" not in panel
    assert "data-remove" in documents_panel([document(owner="ada")])


def test_the_summary_counts_what_can_be_asked(document: MakeDocument) -> None:
    ready, work = document(), document(state="embedding")
    refused = document(state="refused", passages=0)
    assert summary([ready, ready]) == "2 documents · 68 passages"
    assert summary([ready, work, refused]) == "1 of 2 ready · 34 passages · 1 refused"


def test_names_of_files_cannot_reach_out_of_their_place(document: MakeDocument) -> None:
    shown = documents_panel([document(name='"><script>', title="<b>")])
    assert "<script" not in shown
    assert "<b>" not in shown


def test_the_current_conversation_is_marked_and_a_running_one_says_so() -> None:
    shown = conversation_list([session("a"), session("b", running=True)], "b")
    first, second = shown.split("</li>")[:2]
    assert "aria-current" not in first
    assert "2 turns" in first
    assert "aria-current" in second
    assert "answering" in second


def test_a_title_is_text() -> None:
    assert "<b>" not in conversation_list([session("a", title="<b>x")], "")


def test_the_parts_of_memory_are_exactly_weights_and_pool(report: MemoryReport) -> None:
    sizes = {part.key: part.size_bytes for part in parts(report)}
    assert sizes == {
        "weights": 270_000_000,
        "static": 3_000_000,
        "sessions": 20_000_000,
        "cached": 0,
        "free": 77_000_000,
    }
    assert sum(sizes.values()) == report.weights_bytes + report.kv_pool_bytes


def test_on_a_cpu_the_memory_is_the_ram_of_the_process(report: MemoryReport) -> None:
    shown = memory_bar(report, "cpu")
    assert ">RAM<" in shown
    assert "VRAM" not in shown
    assert "700 MB in use by this process" in shown


def test_on_a_gpu_the_memory_is_that_of_the_device(report: MemoryReport) -> None:
    shown = memory_bar(report, "cuda")
    assert ">VRAM<" in shown
    assert "5.0 GB of 80 GB in use" in shown


def test_an_empty_part_is_named_and_takes_no_room_in_the_bar(report: MemoryReport) -> None:
    bar, legend = memory_bar(report, "cpu").split("<ul")
    assert "pt-cached" not in bar
    assert "Cached" in legend
