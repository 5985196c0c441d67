"""Markdown and plain text: the page is the decoded file itself."""

import re
from pathlib import Path

from retrieval.errors import NothingToIndex
from retrieval.parsers.encoding import decode
from retrieval.parsers.formats import Parsed

_FIRST_HEADING = re.compile(r"^#{1,2}[ \t]+(?=[^ \t])(.*)$", re.MULTILINE)


def parse_text(path: Path) -> Parsed:
    return _parse(path, markdown=False)


def parse_markdown(path: Path) -> Parsed:
    return _parse(path, markdown=True)


def _parse(path: Path, markdown: bool) -> Parsed:
    decoded = decode(path.read_bytes())
    if not decoded.text.strip():
        raise NothingToIndex("The file holds only white space. There is nothing to index.")
    heading = _FIRST_HEADING.search(decoded.text) if markdown else None
    title = heading.group(1).rstrip(" \t#") if heading else ""
    return Parsed(title=title, pages=(decoded.text,), markdown=markdown, warnings=decoded.notes)
