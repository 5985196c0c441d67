"""The table of documents: what is indexed, what is being indexed, what was refused and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chat.ui import figures
from chat.ui.text import escape

if TYPE_CHECKING:
    from retrieval.views import DocumentView

_STAGES = {"queued": "waiting", "parsing": "reading", "embedding": "indexing"}


def documents_panel(documents: Sequence[DocumentView]) -> str:
    """All documents of an owner; those in work and the refused ones first."""
    if not documents:
        return '<p class="pt-hint">No documents yet.</p>'
    ranked = sorted(documents, key=lambda document: _RANKS.get(document.state, 1))
    items = "".join(_item(document) for document in ranked)
    return f'<p class="pt-summary">{summary(documents)}</p><ul class="pt-documents">{items}</ul>'


_RANKS = {"queued": 0, "parsing": 0, "embedding": 0, "refused": 1, "ready": 2}


def summary(documents: Sequence[DocumentView]) -> str:
    """12 documents · 213 passages; while some are in work, how many are ready."""
    ready = [document for document in documents if document.state == "ready"]
    refused = sum(document.state == "refused" for document in documents)
    usable = len(documents) - refused
    passages = sum(document.passages for document in ready)
    first = (
        f"{len(ready):,} of {usable:,} ready"
        if len(ready) < usable
        else figures.count(len(ready), "document")
    )
    parts = [first, figures.count(passages, "passage")]
    if refused:
        parts.append(f"{refused:,} refused")
    return " · ".join(parts)


def _item(document: DocumentView) -> str:
    title = document.title or document.name
    name = (
        f'<span class="pt-file" dir="auto">{escape(document.name)}</span>'
        if document.name != title
        else ""
    )
    return (
        f'<li class="pt-document" data-document="{escape(document.id)}" '
        f'data-state="{escape(document.state)}">'
        f'<div class="pt-document-text"><span class="pt-title" dir="auto">{escape(title)}</span>'
        f"{name}{_state(document)}</div>"
        f'<button type="button" class="pt-remove" data-remove="{escape(document.id)}" '
        f'data-sure="Remove?" title="Remove this document" '
        f'aria-label="Remove the document {escape(title)}"></button></li>'
    )


def _state(document: DocumentView) -> str:
    if document.state == "refused":
        reason = document.reason or "It could not be read."
        return f'<span class="pt-reason" dir="auto">{escape(reason)}</span>'
    if document.state == "ready":
        parts = [document.format.lstrip(".").upper()]
        if document.pages and document.pages > 1:
            parts.append(figures.count(document.pages, "page"))
        parts.append(figures.count(document.passages, "passage"))
        parts.append(figures.size(document.size_bytes))
        notes = "".join(
            f'<span class="pt-remark" dir="auto">{escape(note)}</span>' for note in document.notes
        )
        return f'<span class="pt-meta">{escape(" · ".join(parts))}</span>{notes}'
    if document.reason:  # it waits for something that a person can mend
        return f'<span class="pt-reason" dir="auto">{escape(document.reason)}</span>'
    stage = _STAGES.get(document.state, document.state)
    total, done = document.passages, document.passages_done
    if document.state == "embedding" and total:
        return (
            f'<span class="pt-meta pt-working">{stage} · {done:,} of {total:,} passages</span>'
            f'<progress max="{total}" value="{done}"></progress>'
        )
    bar = "<progress></progress>" if document.state != "queued" else ""
    return f'<span class="pt-meta pt-working">{stage}…</span>{bar}'
