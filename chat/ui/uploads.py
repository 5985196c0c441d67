"""Files from the browser: each is taken in, and none stays where it has an address."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gradio.utils import get_upload_folder

from chat.ui.notices import EXPECTED

if TYPE_CHECKING:
    from retrieval.library import Library
    from retrieval.views import DocumentView


_log = logging.getLogger("pageturn")


@dataclass(frozen=True)
class Outcome:
    """What became of one file: a document, or the problem that left none."""

    name: str
    document: DocumentView | None = None
    problem: str | None = None


def take_in(library: Library, paths: Iterable[Path], owner: str) -> list[Outcome]:
    """Add uploaded files for an owner; each stands alone. Their temporary copies are removed."""
    results = []
    for path in dict.fromkeys(paths):  # the same file, chosen twice, has come once
        try:
            view = library.add(path, owner=owner, name=path.name)
            results.append(Outcome(path.name, view))
        except Exception as error:  # one bad file never stops the others
            known = isinstance(error, EXPECTED)
            if not known:
                _log.exception("A file could not be added", exc_info=error)
            results.append(Outcome(path.name, problem=str(error) if known else None))
        finally:
            discard(path)
    return results


def discard(path: Path) -> None:
    """Remove an upload, the folders that it was alone in, and what Gradio has left beside them."""
    root = Path(get_upload_folder())
    path.unlink(missing_ok=True)
    for folder in path.parents:
        if folder == root or root not in folder.parents:
            break
        try:
            folder.rmdir()
        except OSError:
            break  # other files of the same upload are still to be taken in
    # Gradio makes an empty file there for each one that it hands over.
    with suppress(OSError):
        for left in root.glob("tmp*"):
            if left.is_file() and left.stat().st_size == 0:
                left.unlink(missing_ok=True)
