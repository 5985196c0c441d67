"""Text for the measurements: the English Markdown documents of the sample library.

They were written for this project. `Prompts` makes new prompts of them, so that nothing that was
computed for one can serve another.
"""

import random
import re
from collections.abc import Callable
from pathlib import Path

LIBRARY = Path(__file__).parents[1] / "data/library"

Encode = Callable[[str], list[int]]


def documents(folder: Path = LIBRARY) -> dict[str, str]:
    """Names and texts of the English documents."""
    files = sorted(file for file in folder.glob("*.md") if not file.stem.endswith("-zh"))
    return {file.name: file.read_text(encoding="utf-8") for file in files}


def sentences(text: str) -> list[str]:
    """Sentences of the paragraphs; headings, tables and code are left out."""
    paragraphs = re.split(r"\n\s*\n", text)
    prose = [p for p in paragraphs if p[:1].isalpha() and "|" not in p and "    " not in p]
    found = [part for p in prose for part in re.split(r"(?<=[.?!])\s+", " ".join(p.split()))]
    return [sentence for sentence in found if len(sentence.split()) > 3]


class Prompts:
    """Texts of exact lengths in tokens: sentences in random order, another one each time."""

    def __init__(self, encode: Encode, seed: int = 1) -> None:
        self._encode = encode
        self._random = random.Random(seed)
        self._sentences = [s for text in documents().values() for s in sentences(text)]

    def take(self, tokens: int) -> list[int]:
        """The next prompt."""
        taken: list[int] = []
        while len(taken) < tokens:
            mixed = self._random.sample(self._sentences, len(self._sentences))
            # A number of its own: no two prompts begin with the same tokens.
            taken += self._encode(f"{self._random.randrange(10**9)}. {' '.join(mixed)}")
        return taken[:tokens]
