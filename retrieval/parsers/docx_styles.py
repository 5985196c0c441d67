"""The paragraph styles of a Word document: which are headings, which belong to a list."""

import re
from typing import Any, NamedTuple

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_HEADING = re.compile(r"(?i)heading ([1-9])")
_BODY_LEVEL = 9
_MAX_CHAIN = 20


class ListPlace(NamedTuple):
    """A paragraph's place in a list: the list's id and the level in it, from 0."""

    list_id: str
    level: int


def value(parent: Any | None, name: str) -> str | None:
    """The `w:val` of a child, or None if there is no such child."""
    child = parent.find(f"{W}{name}") if parent is not None else None
    return child.get(f"{W}val") if child is not None else None


def is_on(parent: Any | None, name: str) -> bool:
    """Whether a switch is there and not turned off."""
    child = parent.find(f"{W}{name}") if parent is not None else None
    return child is not None and child.get(f"{W}val", "1") not in ("0", "false", "off")


class Styles:
    """What a paragraph's own properties and its style, with all it is based on, say of it."""

    def __init__(self, root: Any | None) -> None:
        self._styles: dict[str, Any] = {}
        for style in root.iterchildren(f"{W}style") if root is not None else ():
            self._styles[style.get(f"{W}styleId", "")] = style

    def _chain(self, properties: Any | None) -> list[Any]:
        """The style of a paragraph and those it is based on, nearest first."""
        chain: list[Any] = []
        id = value(properties, "pStyle")
        while id in self._styles and len(chain) < _MAX_CHAIN:
            chain.append(self._styles[id])
            id = value(chain[-1], "basedOn")
        return chain

    def heading_level(self, properties: Any | None) -> int | None:
        """1 to 6 for a heading, None for other text."""
        chain = self._chain(properties)
        for style in chain:
            name = value(style, "name") or ""
            if found := _HEADING.fullmatch(name):
                return min(int(found.group(1)), 6)
            if name.lower() == "title":
                return 1
        for holder in (properties, *(style.find(f"{W}pPr") for style in chain)):
            level = value(holder, "outlineLvl")
            if level is not None:
                outline = int(level) if level.isdigit() else _BODY_LEVEL
                return min(outline + 1, 6) if outline < _BODY_LEVEL else None
        return None

    def list_place(self, properties: Any | None) -> ListPlace | None:
        """Where a paragraph stands in a list, None if in none."""
        list_id = level = None
        for holder in (
            properties,
            *(style.find(f"{W}pPr") for style in self._chain(properties)),
        ):
            numbering = holder.find(f"{W}numPr") if holder is not None else None
            if numbering is None:
                continue
            level = level if level is not None else value(numbering, "ilvl")
            list_id = list_id if list_id is not None else value(numbering, "numId")
        if list_id in (None, "0"):  # 0 takes a paragraph out of its style's list
            return None
        number = int(level) if level is not None and level.isdigit() else 0
        return ListPlace(str(list_id), min(number, 8))
