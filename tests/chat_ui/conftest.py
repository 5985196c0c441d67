"""Turns, citations, documents and reports to draw: only what a test is about is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from chat.stats import TurnStats
from chat.views import CitationView, TurnView
from engine.stats import MemoryReport
from retrieval.views import DocumentView

PASSAGE = "Every token keeps its keys and values. A 7B model needs 512 KiB a token. That adds up."


@pytest.fixture
def turn() -> Callable[..., TurnView]:
    def make(**changes: object) -> TurnView:
        view = TurnView(
            session="s1",
            turn="t1",
            question="How large?",
            answer="It needs 512 KiB. [1]",
            state="done",
            created_at=datetime(2026, 1, 2, tzinfo=UTC),
            finish_reason="stop",
        )
        return replace(view, **changes)  # type: ignore[arg-type]

    return make


@pytest.fixture
def citation() -> Callable[..., CitationView]:
    """The passage begins at character 100 of its page; its second sentence supports."""

    def make(**changes: object) -> CitationView:
        start = PASSAGE.index("A 7B")
        view = CitationView(
            document="d1",
            title="Sizes",
            page=3,
            char_start=100,
            char_end=100 + len(PASSAGE),
            text=PASSAGE,
            marker="[1]",
            support_start=100 + start,
            support_end=100 + PASSAGE.index(" That"),
        )
        return replace(view, **changes)  # type: ignore[arg-type]

    return make


@pytest.fixture
def found(citation: Callable[..., CitationView]) -> Callable[..., CitationView]:
    """A passage that search found and the answer does not cite."""

    def make(**changes: object) -> CitationView:
        return citation(**{"marker": None, "support_start": None, "support_end": None, **changes})

    return make


@pytest.fixture
def document() -> Callable[..., DocumentView]:
    def make(**changes: object) -> DocumentView:
        view = DocumentView(
            id="d1",
            owner="local",
            name="sizes.pdf",
            title="Sizes",
            format="pdf",
            state="ready",
            reason=None,
            warnings=(),
            pages=12,
            passages=34,
            passages_done=34,
            size_bytes=1_234_567,
            content_hash="0" * 64,
            added_at=datetime(2026, 1, 2, tzinfo=UTC),
        )
        return replace(view, **changes)  # type: ignore[arg-type]

    return make


@pytest.fixture
def stats() -> TurnStats:
    return TurnStats(
        ttft_s=0.312,
        cached_tokens=1204,
        computed_tokens=312,
        prompt_tokens=1516,
        decode_tokens_per_s=92.4,
        kv_bytes=27_000_000,
    )


@pytest.fixture
def report() -> MemoryReport:
    return MemoryReport(
        weights_bytes=270_000_000,
        kv_pool_bytes=100_000_000,
        kv_page_bytes=1_000_000,
        kv_scratch_bytes=0,
        pages_per_plain=1,
        pages_total=100,
        pages_static=3,
        pages_sessions=20,
        pages_cached=0,
        pages_free=77,
        device_name="A processor",
        device_allocated_bytes=370_000_000,
        device_reserved_bytes=370_000_000,
        device_used_bytes=5_000_000_000,
        device_total_bytes=80_000_000_000,
        process_rss_bytes=700_000_000,
    )
