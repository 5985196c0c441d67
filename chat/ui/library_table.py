"""The documents page: the table, one document's text, and what became of added files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chat.ui import figures
from chat.ui.i18n import Words
from chat.ui.sentences import told, translated
from chat.ui.text import escape
from chat.ui.uploads import Outcome
from chat.views import Quotes
from retrieval.owners import SHARED

if TYPE_CHECKING:
    from retrieval.views import DocumentView

_COLUMNS = ("name", "pages", "passages", "size", "state", "added")
_NUMBERS = {"pages", "passages", "size"}
# What a person has to look at comes first when the table is sorted by state.
_RANKS = {"refused": 0, "queued": 1, "parsing": 2, "embedding": 3, "ready": 4}


def library_table(documents: Sequence[DocumentView], words: Words) -> str:
    """All documents, newest first. The browser sorts and filters by the rows' data."""
    if not documents:
        return f'<p class="pt-page-note" data-no-documents>{escape(words("library_empty"))}</p>'
    heads = "".join(
        f'<th scope="col" data-column="{column}"{_right(column)}>'
        f'<button type="button" data-sort="{column}">{escape(words(f"library_{column}"))}'
        f"</button></th>"
        for column in _COLUMNS
    )
    rows = "".join(_row(document, words) for document in reversed(documents))
    label = escape(words("library_table"))
    return (
        f'<div class="pt-scroll" tabindex="0" role="region" aria-label="{label}">'
        f'<table class="pt-table pt-library" aria-label="{label}"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
        f'<p class="pt-page-note pt-no-match" hidden>{escape(words("library_no_match"))}</p>'
    )


def _right(column: str) -> str:
    return ' class="pt-right"' if column in _NUMBERS else ""


def _row(document: DocumentView, words: Words) -> str:
    title = document.title or document.name
    file = f'<span class="pt-file">{escape(document.name)}</span>' if document.name != title else ""
    keys = {
        "name": title.casefold(),
        "pages": document.pages,
        "passages": document.passages,
        "size": document.size_bytes,
        "state": _RANKS.get(document.state, 0),
        "added": document.added_at.timestamp(),
    }
    data = "".join(f' data-{name}="{escape(str(value))}"' for name, value in keys.items())
    find = escape(f"{title} {document.name} {document.format}".casefold())
    return (
        f'<tr data-document="{escape(document.id)}" data-stage="{escape(document.state)}" '
        f'data-find="{find}"{data}>'
        f'<th scope="row" dir="auto"><button type="button" class="pt-open-document" '
        f'data-document="{escape(document.id)}">{escape(title)}</button>{_shared(document, words)}'
        f"{file}</th>"
        f'<td class="pt-right" data-column="pages">{document.pages:,}</td>'
        f'<td class="pt-right" data-column="passages">{document.passages:,}</td>'
        f'<td class="pt-right" data-column="size">{figures.size(document.size_bytes)}</td>'
        f'<td class="pt-stage" data-column="state">{_state(document, words)}</td>'
        f'<td data-column="added"><time datetime="{document.added_at.isoformat()}">'
        f"{document.added_at:%Y-%m-%d}</time></td></tr>"
    )


def _shared(document: DocumentView, words: Words) -> str:
    if not is_shared(document):
        return ""
    hint = escape(words("library_shared_hint"))
    return f' <span class="pt-badge" title="{hint}">{escape(words("library_shared"))}</span>'


def is_shared(document: DocumentView) -> bool:
    """Whether it is everybody's, and so not for one person to change."""
    return document.owner == SHARED


def _state(document: DocumentView, words: Words) -> str:
    """The state with its progress and, where there is one, its reason and its remarks."""
    reason = (
        f'<span class="pt-reason" dir="auto">{escape(told(document.reason, words))}</span>'
        if document.reason
        else ""
    )
    if document.state in ("ready", "refused"):
        notes = "".join(
            f'<span class="pt-remark" dir="auto">{escape(translated(note, words))}</span>'
            for note in document.warnings
        )
        name = escape(words(f"state_{document.state}"))
        working = (
            f'<span class="pt-working">{escape(words("library_renewed"))}</span>'
            if document.again
            else ""
        )
        return f'<span class="pt-badge pt-{document.state}">{name}</span>{working}{reason}{notes}'
    stage = words(f"stage_{document.state}")
    total, done = document.passages, document.passages_done
    if document.state == "embedding" and total:
        said = words("stage_progress", stage=stage, done=f"{done:,}", total=f"{total:,}")
        if document.seconds_left:
            left = figures.roughly(document.seconds_left)
            said = words("stage_left", said=said, time=left)
        bar = f'<progress max="{total}" value="{done}" aria-label="{escape(stage)}"></progress>'
    else:
        said = f"{stage}…"
        waiting = document.state == "queued"
        bar = "" if waiting else f'<progress aria-label="{escape(stage)}"></progress>'
    return f'<span class="pt-working">{escape(said)}</span>{bar}{reason}'


def document_text(
    document: DocumentView, page: int, text: str | None, quotes: Quotes, words: Words
) -> str:
    """One document beside the table: a page of its text, and what can be done with it.

    ``text`` is None while there is none to show.
    """
    title = document.title or document.name
    facts = " · ".join(
        [
            document.format.lstrip(".").upper() or "?",
            words.count(document.pages, "pages_count"),
            words.count(document.passages, "passages_count"),
            figures.size(document.size_bytes),
            *_report(document, words),
        ]
    )
    body = (
        f'<p class="pt-page-note">{escape(words("library_no_text_yet"))}</p>'
        if text is None
        else _page(document, page, text, words)
    )
    return (
        f'<section class="pt-panel pt-reading" data-reading="{escape(document.id)}"'
        f"{'' if document.settled else ' data-unsettled'}>"
        f'<header><h2 dir="auto">{escape(title)}</h2>'
        f'<button type="button" class="pt-action" data-close>{escape(words("library_close"))}'
        f"</button></header>"
        f'<p class="pt-page-note">{escape(facts)}</p>{_state(document, words)}'
        f"{_actions(document, quotes, words)}{body}</section>"
    )


def _report(document: DocumentView, words: Words) -> list[str]:
    """What reading a document showed, in figures."""
    if not document.characters:
        return []
    said = [words.count(document.characters, "characters_count")]
    if document.pages_without_text:
        said.append(words.count(document.pages_without_text, "pages_without_text"))
    return [*said, words("read_in", time=figures.seconds(document.seconds))]


def _actions(document: DocumentView, quotes: Quotes, words: Words) -> str:
    if is_shared(document):
        return f'<p class="pt-page-note">{escape(words("library_shared_hint"))}</p>'
    label = "library_try_again" if document.state == "refused" else "library_again"
    again = (
        f'<button type="button" class="pt-action" data-again="{escape(document.id)}">'
        f"{escape(words(label))}</button>"
        if document.settled and document.kept
        else ""
    )
    goes = words(
        "library_goes",
        name=document.name,
        size=figures.size(document.size_bytes),
        passages=words.count(document.passages, "passages_count"),
    )
    keeps = (
        words.count(quotes.conversations, "library_quotes")
        if quotes.conversations
        else words("library_quotes_none")
    )
    return (
        f'<div class="pt-actions">{again}<button type="button" class="pt-action" data-ask-remove>'
        f"{escape(words('library_remove'))}</button></div>"
        f'<div class="pt-sure" role="group" aria-label="{escape(words("library_remove"))}" hidden>'
        f'<p dir="auto">{escape(goes)} {escape(keeps)}</p><div class="pt-actions">'
        f'<button type="button" class="pt-action pt-danger" '
        f'data-remove-document="{escape(document.id)}">{escape(words("library_remove_now"))}'
        f'</button><button type="button" class="pt-action" data-keep>'
        f"{escape(words('library_keep'))}</button></div></div>"
    )


def _page(document: DocumentView, page: int, text: str, words: Words) -> str:
    label = escape(words("library_text"))
    shown = (
        f'<pre class="pt-text" dir="auto" tabindex="0" aria-label="{label}" role="region">'
        f"{escape(text)}</pre>"
        if text.strip()
        else f'<p class="pt-page-note">{escape(words("library_page_blank"))}</p>'
    )
    said = escape(words("library_page_of", page=page, total=document.pages))
    return (
        f'<div class="pt-section-head"><h3>{label}</h3><nav class="pt-pager" aria-label="{said}">'
        f"{_turn(page - 1, page > 1, words('library_page_before'), '‹')}<span>{said}</span>"
        f"{_turn(page + 1, page < document.pages, words('library_page_after'), '›')}</nav></div>"
        f"{shown}"
    )


def _turn(page: int, there: bool, label: str, sign: str) -> str:
    off = "" if there else " disabled"
    return (
        f'<button type="button" class="pt-action" data-page="{page}" '
        f'aria-label="{escape(label)}"{off}>{sign}</button>'
    )


def outcomes(results: Sequence[Outcome], words: Words) -> str:
    """What became of every file that was added last; it stays until the next ones come."""
    if not results:
        return ""
    items = "".join(_outcome(result, words) for result in results)
    return (
        f'<ul class="pt-outcomes" role="status" aria-label="{escape(words("added_note"))}">'
        f"{items}</ul>"
    )


def _outcome(result: Outcome, words: Words) -> str:
    view, name = result.document, result.name
    if view is None or view.state == "refused":
        reason = result.problem or (view.reason if view else None) or words("unreadable")
        why = told(reason, words)
        kind, said = "refused", words("added_refused", name=name, reason=why)
    elif view.duplicate and view.name != name:
        kind, said = "duplicate", words("added_duplicate", name=name, other=view.name)
    elif view.duplicate:
        kind, said = "duplicate", words("added_duplicate_same", name=name)
    else:
        kind, said = "added", words("added_ready", name=name)
    return f'<li data-outcome="{kind}" dir="auto">{escape(said)}</li>'
