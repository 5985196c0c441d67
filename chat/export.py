"""A conversation as a file to keep: Markdown for people, JSON for programs."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from chat.citations import UNSUPPORTED
from chat.stats import TurnStats
from chat.views import CitationView, SessionView, TurnView, where

_FORMAT = "pageturn.conversation.v1"
_UNSAFE_IN_NAMES = re.compile(r"[^\w. -]+")


def to_json(session: SessionView, turns: Sequence[TurnView]) -> str:
    """The conversation with everything that is known of its turns (see ``TurnView.to_json``)."""
    whole: dict[str, Any] = {
        "format": _FORMAT,
        "conversation": {
            "session": session.session,
            "title": session.title,
            "model": session.model,
            "created_at": session.created_at.isoformat(),
            "updated_at": session.updated_at.isoformat(),
        },
        "turns": [turn.to_json() for turn in turns],
    }
    return json.dumps(whole, ensure_ascii=False, indent=2) + "\n"


def to_markdown(session: SessionView, turns: Sequence[TurnView]) -> str:
    """Questions and answers, the quoted words of each citation, and what each turn cost."""
    head = [
        f"# {_line(session.title)}",
        f"Model: {session.model} · begun {session.created_at:%Y-%m-%d %H:%M} UTC · "
        f"{len(turns)} turns",
    ]
    return "\n\n".join([*head, *(_turn(turn) for turn in turns)]) + "\n"


def file_name(session: SessionView, ending: str) -> str:
    """A name for the file that every system can store: the title without odd signs."""
    name = _UNSAFE_IN_NAMES.sub(" ", session.title).strip(" .")
    return f"{' '.join(name.split())[:60].rstrip(' .') or 'conversation'}.{ending}"


def _turn(turn: TurnView) -> str:
    parts = ["## Question", _quoted(turn.question)]
    if turn.evidence and turn.finish_reason != "not_found":  # whose answer holds it
        parts.append(
            "### In the documents" if turn.answerable is not False else "### The closest sentence"
        )
        parts.extend(_citation(quote) for quote in turn.evidence)
    if turn.answer or not turn.evidence:
        parts += ["## Answer", turn.answer or "*No answer.*"]
    if UNSUPPORTED in turn.answer:
        parts.append(f"*{UNSUPPORTED} No passage supports this sentence.*")
    if turn.state != "done":
        parts.append(f"*{turn.state.capitalize()}.*{f' {turn.error}' if turn.error else ''}")
    if turn.rewritten:
        parts.append(f"*Also searched for: {_line(turn.rewritten)}*")
    parts.extend(f"*{_line(note)}*" for note in turn.notes)
    if turn.citations:
        parts.append("### Sources")
        parts.extend(_citation(citation) for citation in turn.citations)
    if turn.stats:
        parts.append(f"<sub>{_cost(turn.stats)}</sub>")
    return "\n\n".join(parts)


def _citation(citation: CitationView) -> str:
    removed = ", since removed" if citation.removed else ""
    words = citation.support_text or citation.text
    page = where(citation.page, citation.page_label, citation.ocr)
    marker = f"{citation.marker} " if citation.marker else ""
    begins = f"{marker}*{_line(citation.title)}*, {page}{removed}:"
    return f"{begins}\n\n{_quoted(words)}"


def _cost(stats: TurnStats) -> str:
    rewrite = f"rewrite {stats.rewrite_s:.2f} s, " if stats.rewrite_s > 0 else ""
    return (
        f"{stats.cached_tokens:,} tokens reused, {stats.computed_tokens:,} computed, "
        f"{stats.generated_tokens:,} generated; {rewrite}search {stats.retrieve_s:.2f} s, "
        f"evidence {stats.evidence_s:.2f} s, "
        f"first token {stats.ttft_s:.2f} s, {stats.decode_tokens_per_s:.1f} tokens/s; "
        f"KV {stats.kv_pages:,} pages, {stats.kv_bytes:,} bytes"
    )


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _line(text: str) -> str:
    return " ".join(text.split())
