"""A library of an evaluation set, indexed as the product indexes files."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath

from benchmarks.eval_sets import EvalSet
from chat.migrations import migrate
from retrieval import store
from retrieval.chunking import Chunker
from retrieval.database import Database
from retrieval.embedder import Embedder
from retrieval.library import Library
from retrieval.parsers.process import ParsedFile, ParsedPassage
from retrieval.views import Found


@contextmanager
def library_of(set: EvalSet, folder: Path, embedder: Embedder) -> Iterator[Library]:
    """The set's library, in `folder`; one that is there already is used as it is.

    A set of files is added file by file. One of thousands of paragraphs becomes one document, a
    page each: it is cut, embedded and searched like any other, without a parser run for each.
    """
    folder.mkdir(parents=True, exist_ok=True)
    database = Database(f"sqlite:///{folder / 'pageturn.db'}")
    migrate(database)
    library = Library(database, folder, embedder)
    if set.files:
        library.start()
        ids = []
        for text in set.texts:
            path = folder / f"{text.id}.md"
            path.write_text(text.text, encoding="utf-8", newline="")
            ids.append(library.add(path).id)
    else:
        ids = [_add_pages(set, library)]
        library.start()
    for id in ids:
        view = library.wait(id)
        assert view.state == "ready", view.reason
    try:
        yield library
    finally:
        library.close()
        database.close()


def text_id(set: EvalSet, found: Found) -> str:
    """Which of a set's texts a passage is from."""
    return PurePath(found.name).stem if set.files else set.texts[found.page - 1].id


def page_text(title: str, text: str) -> str:
    return f"# {title}\n\n{text}" if title else text


def _add_pages(set: EvalSet, library: Library) -> str:
    pages = [page_text(text.title, text.text) for text in set.texts]
    new = store.new_document(
        "local", f"{set.library}.txt", "txt", set.library, sum(map(len, pages))
    )
    with library._database.session() as session:
        if session.get(store.Document, new.id) is not None:
            return new.id
        session.add(new)
    chunker = Chunker(str(library.embedder.tokenizer_file), library.embedder.max_tokens)
    markdown = any(text.title for text in set.texts)
    cuts = [ParsedPassage(*cut) for cut in chunker.cut(pages, markdown)]
    parsed = ParsedFile(set.library, pages, cuts, [], [], frozenset(), 0.0)
    library._indexes.mend_lexical()
    library._indexer._store_parsed(new.id, new.name, parsed)
    return new.id
