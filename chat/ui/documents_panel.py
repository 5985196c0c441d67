"""The table of documents: what is indexed, what is being indexed, what was refused and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chat.ui import figures
from chat.ui.i18n import EN, Words
from chat.ui.sentences import told, translated
from chat.ui.text import escape
from retrieval.owners import SHARED

if TYPE_CHECKING:
    from retrieval.views import DocumentView


def documents_panel(documents: Sequence[DocumentView], words: Words = EN) -> str:
    """All documents of an owner; those in work and the refused ones first."""
    if not documents:
        return f'<p class="pt-hint" data-no-documents>{words("no_documents")}</p>'
    ranked = sorted(documents, key=lambda document: _RANKS.get(document.state, 1))
    items = "".join(_item(document, words) for document in ranked)
    said = summary(documents, words)
    return f'<p class="pt-summary">{said}</p><ul class="pt-documents">{items}</ul>'


_RANKS = {"queued": 0, "parsing": 0, "embedding": 0, "refused": 1, "ready": 2}


def summary(documents: Sequence[DocumentView], words: Words = EN) -> str:
    """12 documents · 213 passages; while some are in work, how many are ready."""
    ready = [document for document in documents if document.state == "ready"]
    refused = sum(document.state == "refused" for document in documents)
    usable = len(documents) - refused
    passages = sum(document.passages for document in ready)
    first = (
        words("documents_ready", ready=len(ready), total=usable)
        if len(ready) < usable
        else words.count(len(ready), "documents_count")
    )
    parts = [first, words.count(passages, "passages_count")]
    if refused:
        parts.append(words.count(refused, "documents_refused"))
    return " · ".join(parts)


def _item(document: DocumentView, words: Words) -> str:
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
        f"{name}{_state(document, words)}</div>{_remove(document, title, words)}</li>"
    )


def _remove(document: DocumentView, title: str, words: Words) -> str:
    """The button that removes it, or the word that it is everybody's and stays."""
    if document.owner == SHARED:
        hint = escape(words("library_shared_hint"))
        return f'<span class="pt-badge" title="{hint}">{escape(words("library_shared"))}</span>'
    return (
        f'<button type="button" class="pt-remove" data-remove="{escape(document.id)}" '
        f'data-sure="{words("remove_sure")}" title="{words("remove_document")}" '
        f'aria-label="{escape(words("remove_document_label", title=title))}"></button>'
    )


def _state(document: DocumentView, words: Words) -> str:
    if document.state == "refused":
        reason = told(document.reason or words("unreadable"), words)
        return f'<span class="pt-reason" dir="auto">{escape(reason)}</span>'
    if document.state == "ready":
        parts = [document.format.lstrip(".").upper()]
        if document.pages and document.pages > 1:
            parts.append(words.count(document.pages, "pages_count"))
        parts.append(words.count(document.passages, "passages_count"))
        parts.append(figures.size(document.size_bytes))
        notes = "".join(
            f'<span class="pt-remark" dir="auto">{escape(translated(note, words))}</span>'
            for note in document.warnings
        )
        return f'<span class="pt-meta">{escape(" · ".join(parts))}</span>{notes}'
    if document.reason:  # it waits for something that a person can mend
        reason = told(document.reason, words)
        return f'<span class="pt-reason" dir="auto">{escape(reason)}</span>'
    stage = words(f"stage_{document.state}")
    total, done = document.passages, document.passages_done
    if document.state == "embedding" and total:
        said = words("stage_progress", stage=stage, done=f"{done:,}", total=f"{total:,}")
        return (
            f'<span class="pt-meta pt-working">{said}</span>'
            f'<progress max="{total}" value="{done}"></progress>'
        )
    bar = "<progress></progress>" if document.state != "queued" else ""
    return f'<span class="pt-meta pt-working">{stage}…</span>{bar}'
