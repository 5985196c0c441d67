"""Text from people, documents and models, made safe to show."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping

# The renderer in the browser draws these as pictures of what they say, from unescaped text.
_DRAWN_LANGUAGES = {"mermaid"}

_FENCE = re.compile(r"^( {0,3})(`{3,}(?=[^`]*$)|~{3,})(.*)$")
_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_DEFINITION = re.compile(r"^( {0,3})\[(?=[^\]]+\]:)")
_MARKER = re.compile(r"\[(?:\d+|\?)\]")


def escape(text: str) -> str:
    """The text as HTML, for content and for quoted attributes."""
    return html.escape(text, quote=True)


def safe_markdown(text: str, links: Mapping[str, str] | None = None) -> str:
    """Markdown in which nothing is HTML and no picture is loaded; the rest reads as it did.

    ``links`` maps a citation marker such as "[1]" to the address that it leads to; a marker that
    is not among them stays text. Code is left as it is: the renderer escapes it itself.

    A line of code that the renderer takes for prose, or the other way round, could still smuggle
    a tag through. That is why the page is also served under a policy that lets the browser load
    from this server only: see ``serving``.
    """
    lines: list[str] = []
    fence = ""
    for line in text.splitlines():
        found = _FENCE.match(line)
        if fence:
            if found and found[2].startswith(fence) and not found[3].strip(" `~"):
                fence = ""
            lines.append(line)
        elif found:
            fence = found[2]
            drawn = found[3].strip().split(" ")[0].lower() in _DRAWN_LANGUAGES
            lines.append(f"{found[1]}{fence}{'' if drawn else found[3]}")
        else:
            lines.append(_prose(line, links or {}))
    return "\n".join(lines)


def _prose(line: str, links: Mapping[str, str]) -> str:
    line = _DEFINITION.sub(r"\1\\[", line)
    parts: list[str] = []
    end = 0
    for span in _CODE_SPAN.finditer(line):
        parts.append(_words(line[end : span.start()], links))
        parts.append(span[0])
        end = span.end()
    parts.append(_words(line[end:], links))
    return "".join(parts)


def _words(text: str, links: Mapping[str, str]) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace("![", "!\\[")
    return _MARKER.sub(lambda found: _link(found[0], links), text)


def _link(marker: str, links: Mapping[str, str]) -> str:
    return f"{marker}({links[marker]})" if marker in links else marker
