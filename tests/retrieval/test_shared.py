"""The shared library: read by everyone, changed by nobody's page."""

from pathlib import Path

import pytest

from retrieval.errors import DocumentNotFound, DocumentShared
from retrieval.library import Library
from retrieval.owners import SHARED
from retrieval.views import DocumentView

HERON = "The heron stands in the northern pond and waits for frogs."
BREAD = "Dough rises for twelve hours before the bread is baked."


def add(library: Library, folder: Path, name: str, text: str, owner: str) -> DocumentView:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return library.wait(library.add(folder / name, owner=owner).id, 60)


@pytest.fixture
def shared(library: Library, tmp_path: Path) -> DocumentView:
    """One document for everyone, beside one of Ada's."""
    add(library, tmp_path / "ada", "bread.md", BREAD, "ada")
    return add(library, tmp_path / "all", "heron.md", HERON, SHARED)


def test_everyone_lists_searches_and_reads_it(library: Library, shared: DocumentView) -> None:
    assert [view.name for view in library.documents("ada")] == ["bread.md", "heron.md"]
    assert [view.name for view in library.documents("bob")] == ["heron.md"]
    for owner in ("ada", "bob"):
        assert library.search("heron pond", owner=owner).passages[0].name == "heron.md"
        assert library.page_text(shared.id, 1, owner).startswith("The heron")
        assert library.get(shared.id, owner).owner == SHARED
    assert not library.is_empty("bob")


def test_it_shows_nothing_of_a_persons_own(library: Library, shared: DocumentView) -> None:
    assert [view.name for view in library.documents(SHARED)] == ["heron.md"]
    for owner in ("bob", SHARED):
        found = library.search("dough bread hours", owner=owner).passages
        assert {passage.name for passage in found} <= {"heron.md"}


def test_only_its_own_owner_removes_from_it(library: Library, shared: DocumentView) -> None:
    with pytest.raises(DocumentShared, match="shared library"):
        library.remove(shared.id, "ada")
    assert library.get(shared.id, "ada").state == "ready"
    library.remove(shared.id, SHARED)
    assert [view.name for view in library.documents("ada")] == ["bread.md"]
    assert library.is_empty("bob")
    with pytest.raises(DocumentNotFound):
        library.get(shared.id, "ada")


def test_a_text_that_a_person_has_too_is_found_once(
    library: Library, shared: DocumentView, tmp_path: Path
) -> None:
    add(library, tmp_path / "own", "my-heron.md", HERON, "ada")
    found = library.search("heron pond frogs", owner="ada").passages
    assert [passage.text for passage in found].count(HERON) == 1
