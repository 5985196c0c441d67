"""Tables as text: one row a line, in Markdown's form, so that a row stays together."""

import re
from collections.abc import Sequence

_SPACE = re.compile(r"\s+")


def render_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as a Markdown table; the first row is its header. "" if all are empty."""
    clean = [[_SPACE.sub(" ", cell).strip().replace("|", "\\|") for cell in row] for row in rows]
    clean = [row for row in clean if any(row)]
    if not clean:
        return ""
    width = max(len(row) for row in clean)
    if width == 1:
        return "\n".join(row[0] for row in clean)
    lines = ["| " + " | ".join(row + [""] * (width - len(row))) + " |" for row in clean]
    lines.insert(1, "|" + " --- |" * width)
    return "\n".join(lines)
