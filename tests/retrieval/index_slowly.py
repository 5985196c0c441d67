"""Run by a test as a process of its own, to be killed: indexes files, slowly enough to be hit.

python index_slowly.py DATA_FOLDER EMBEDDER_FOLDER FILE...
"""

import sys
import time
from pathlib import Path

from retrieval.database import Database
from retrieval.embedder import Embedder, Vectors
from retrieval.library import Library


class SlowEmbedder(Embedder):
    """The real one, with a pause after each batch."""

    def encode(self, texts: list[str]) -> Vectors:  # type: ignore[override]
        vectors = super().encode(texts)
        time.sleep(1)
        return vectors


def main() -> None:
    folder, model, *files = sys.argv[1:]
    database = Database(f"sqlite:///{folder}/pageturn.db")
    library = Library(database, Path(folder), SlowEmbedder(model, "cpu"))
    library.start()
    ids = [library.add(Path(file)).id for file in files]
    for id in ids:
        library.wait(id)


if __name__ == "__main__":
    main()
