"""Small drawings of buttons; they take the colour of the text around them."""

from __future__ import annotations


def _drawn(paths: str) -> str:
    return (
        '<svg viewBox="0 0 24 24" width="15" height="15" fill="none" stroke="currentColor" '
        'stroke-width="2" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">'
        f"{paths}</svg>"
    )


RETRY = _drawn('<path d="M20 11a8 8 0 1 0-2.3 5.7M20 4v7h-7"/>')
EDIT = _drawn('<path d="M4 20h4L19 9l-4-4L4 16zM13.5 6.5l4 4"/>')
SETTINGS = _drawn(
    '<path d="M4 7h9m5 0h2M4 17h2m5 0h9"/><circle cx="15.5" cy="7" r="2.5"/>'
    '<circle cx="8.5" cy="17" r="2.5"/>'
)
