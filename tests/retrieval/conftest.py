import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from retrieval.database import Database
from retrieval.embedder import Embedder
from retrieval.library import Library
from retrieval.parsers.process import ParsedFile, ParseLimits, parse
from tests.retrieval.make_files import make_database

OpenLibrary = Callable[..., Library]


@pytest.fixture(scope="session")
def embedder(embedder_folder: str) -> Embedder:
    return Embedder(embedder_folder, "cpu")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = make_database(tmp_path / "data")
    yield database
    database.close()


@pytest.fixture
def open_library(tmp_path: Path, embedder: Embedder) -> Iterator[OpenLibrary]:
    """Opens a library on a folder (default: one of the test), started unless told otherwise."""
    opened: list[tuple[Library, Database]] = []

    def open_it(
        folder: Path = tmp_path / "data", start: bool = True, embedder: Embedder = embedder
    ) -> Library:
        database = make_database(folder)
        library = Library(database, folder, embedder)
        opened.append((library, database))
        if start:
            library.start()
        return library

    yield open_it
    for library, database in opened:
        library.close()
        database.close()


@pytest.fixture
def library(open_library: OpenLibrary) -> Library:
    return open_library()


@pytest.fixture(scope="session")
def make_library(
    embedder: Embedder, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Library]]:
    """Makes started libraries that a module's tests share."""
    opened: list[tuple[Library, Database]] = []

    def make() -> Library:
        folder = tmp_path_factory.mktemp("library")
        database = make_database(folder)
        library = Library(database, folder, embedder)
        opened.append((library, database))
        library.start()
        return library

    yield make
    for library, database in opened:
        library.close()
        database.close()


@pytest.fixture
def parse_file(embedder: Embedder) -> Callable[..., ParsedFile]:
    """Parses a file in the real child process."""

    def run(path: Path, format: str, limits: ParseLimits | None = None) -> ParsedFile:
        return parse(
            path,
            format,
            tokenizer_file=embedder.tokenizer_file,
            max_tokens=embedder.max_tokens,
            limits=limits or ParseLimits(),
            stop=threading.Event(),
        )

    return run
