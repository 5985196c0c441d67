"""The quiet line under an answer: what the turn cost, how it ended, and what may be done next."""

from __future__ import annotations

from chat.citations import UNSUPPORTED
from chat.notes import NOT_SUPPORTED
from chat.stats import TurnStats
from chat.ui import figures
from chat.ui.i18n import EN, Words
from chat.ui.icons import RETRY
from chat.ui.sentences import told, translated
from chat.ui.spent import spent
from chat.ui.text import escape
from chat.views import TurnView

_SEPARATOR = " · "
_ENDINGS = ("stopped", "interrupted", "error")


def cost_line(stats: TurnStats, words: Words = EN) -> str:
    """What was reused and what was computed, from the turn's own measurements."""
    return _SEPARATOR.join(_figures(stats, words))


def _figures(stats: TurnStats, words: Words) -> list[str]:
    found = [
        words(key, time=figures.seconds(time_s))
        for key, time_s in (("rewrite_time", stats.rewrite_s), ("evidence_time", stats.evidence_s))
        if time_s > 0
    ]
    if found and not stats.prompt_tokens:  # the model was not asked for an answer
        return found
    parts = [
        words("reused", tokens=f"{stats.cached_tokens:,}"),
        words("computed", tokens=f"{stats.computed_tokens:,}"),
        *found,
    ]
    if stats.ttft_s > 0:
        parts.append(words("first_token", time=figures.seconds(stats.ttft_s)))
    if stats.decode_tokens_per_s > 0:
        parts.append(words("rate", rate=figures.rate(stats.decode_tokens_per_s)))
    parts.append(words("kv", size=figures.size(stats.kv_bytes)))
    return parts


def cost_row(turn: TurnView, words: Words = EN) -> str:
    """The line as HTML, with what it opens, and with the turn's notes and its error."""
    if turn.state == "pending":
        return progress_row(words("writing"))
    line = [_ending(turn, words), _count(turn, words)]
    detail = ""
    if turn.finish_reason in ("not_found", "evidence", "talk"):
        said = words("model_not_asked")
        if turn.stats and turn.stats.evidence_s > 0:
            said += _SEPARATOR + cost_line(turn.stats, words)
        line.append(f'<span class="pt-figures">{escape(said)}</span>')
    elif turn.stats:
        # A line breaks between two figures, never within one.
        kept = (f"<span>{escape(figure)}</span>" for figure in _figures(turn.stats, words))
        line.append(
            f'<button type="button" class="pt-figures" data-cost aria-expanded="false" '
            f'title="{words("cost_hint")}">{_SEPARATOR.join(kept)}</button>'
        )
        detail = f'<div class="pt-spent" hidden>{spent(turn.stats, words, turn.rewritten)}</div>'
    line.append(f'<span class="pt-acts">{_versions(turn, words)}{_retry(turn, words)}</span>')
    parts = [f'<div class="pt-cost">{"".join(line)}</div>{detail}']
    if turn.error:
        error = escape(told(turn.error, words))
        parts.append(f'<p class="pt-error" dir="auto">{error}</p>')
    notes = [*turn.notes]
    if turn.rewritten and not detail:  # nothing opens that could say it
        notes.append(f"{words('searched_for')}: {turn.rewritten}")
    if UNSUPPORTED in turn.answer:
        said = words("unsupported")
        if NOT_SUPPORTED in notes:  # says it of all sentences
            notes.remove(NOT_SUPPORTED)
            said = translated(NOT_SUPPORTED, words)
        legend = f"<b>?</b> {escape(said)}"
        parts.append(f'<p class="pt-note" id="unsupported-{escape(turn.turn)}">{legend}</p>')
    parts.extend(
        f'<p class="pt-note" dir="auto">{escape(translated(note, words))}</p>' for note in notes
    )
    return "".join(parts)


def progress_row(text: str) -> str:
    """The same row while there is nothing to add up yet: what is going on."""
    return (
        f'<div class="pt-cost"><span class="pt-progress" role="status">{escape(text)}</span></div>'
    )


def _ending(turn: TurnView, words: Words) -> str:
    """How it ended, where it did not end by itself."""
    how = "length" if turn.finish_reason == "length" else turn.state
    if how not in (*_ENDINGS, "length"):
        return ""
    hint = escape(words(f"ending_{how}_hint"))
    return f'<span class="pt-ending" title="{hint}">{words(f"ending_{how}")}</span>'


def _count(turn: TurnView, words: Words) -> str:
    cited = len({citation.marker for citation in turn.citations})
    if not cited and not turn.retrieved:
        return ""
    text = (
        words.count(cited, "sources_count")
        if cited
        else words.count(len(turn.retrieved), "passages_count")
    )
    return (
        f'<button type="button" class="pt-count" data-turn="{escape(turn.turn)}" '
        f'title="{words("show_sources")}">{text}</button>'
    )


def _retry(turn: TurnView, words: Words) -> str:
    return (
        f'<button type="button" class="pt-act pt-retry" data-retry="{escape(turn.turn)}" '
        f'title="{words("retry_hint")}" aria-label="{words("retry_hint")}">{RETRY}</button>'
    )


def _versions(turn: TurnView, words: Words) -> str:
    """‹ 1/2 ›: the way to what else was asked, or answered, in this place."""
    if len(turn.versions) < 2:
        return ""
    at = turn.versions.index(turn.turn)
    total = len(turn.versions)
    said = words("version_of", number=at + 1, total=total)
    return (
        f'<span class="pt-versions">{_step(turn, at - 1, "version_before", "‹", words)}'
        f'<span title="{said}" aria-label="{said}" role="img">{at + 1}/{total}</span>'
        f"{_step(turn, at + 1, 'version_after', '›', words)}</span>"
    )


def _step(turn: TurnView, to: int, key: str, sign: str, words: Words) -> str:
    there = 0 <= to < len(turn.versions)
    target = f'data-show="{escape(turn.versions[to])}"' if there else "disabled"
    return (
        f'<button type="button" class="pt-act" {target} title="{words(key)}" '
        f'aria-label="{words(key)}">{sign}</button>'
    )
