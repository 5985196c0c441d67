"""A document is indexed again from its stored copy."""

from dataclasses import replace
from pathlib import Path

import pytest

from retrieval.errors import CopyNotKept, DocumentNotFound
from retrieval.library import Library


def test_a_document_is_read_again_and_found_again(library: Library, tmp_path: Path) -> None:
    file = tmp_path / "pond.md"
    file.write_text("# Ponds\n\nThe heron stands in the northern pond.\n", encoding="utf-8")
    before = library.wait(library.add(file).id, 60)
    file.unlink()  # the stored copy is what is read
    assert library.reindex(before.id).id == before.id
    after = library.wait(before.id, 60)
    assert replace(after, seconds=before.seconds) == before
    found = library.search("Where does the heron stand?").passages
    assert [passage.document_id for passage in found] == [before.id]
    assert library.check().ok


def test_one_that_is_on_its_way_is_left_alone(library: Library, tmp_path: Path) -> None:
    file = tmp_path / "pond.md"
    file.write_text("# Ponds\n\n" + "The heron stands there. " * 400, encoding="utf-8")
    view = library.add(file)
    library.reindex(view.id)
    library.reindex(view.id)
    assert library.wait(view.id, 60).state == "ready"
    assert library.check().ok


def test_a_refused_one_says_to_add_the_file_again(library: Library, tmp_path: Path) -> None:
    (tmp_path / "empty.md").touch()
    view = library.add(tmp_path / "empty.md")
    with pytest.raises(CopyNotKept, match="Add the file again"):
        library.reindex(view.id)


def test_another_owners_document_is_not_found(library: Library, tmp_path: Path) -> None:
    file = tmp_path / "pond.md"
    file.write_text("# Ponds\n\nThe heron stands.\n", encoding="utf-8")
    view = library.wait(library.add(file, owner="ada").id, 60)
    with pytest.raises(DocumentNotFound):
        library.reindex(view.id, owner="bob")
    assert library.get(view.id, "ada").state == "ready"
