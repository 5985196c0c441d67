"""The name of a file is a label: whatever it holds, the document is found, shown and removed."""

from pathlib import Path

import pytest

from retrieval.errors import DocumentNotFound
from retrieval.library import Library
from tests.retrieval.make_files import pdf

NAMES = [
    "#1 100% a%2Fb? \"'` $(touch x) & <b>.pdf",
    "\u202efdp.right to left\u200f\nline\tbreak.PDF",
    "é" * 125 + "s.pdf",
]


def test_names_are_labels(tmp_path: Path, library: Library) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    added = {}
    for number, name in enumerate(NAMES):
        (folder / name).write_bytes(pdf([f"Pond {number} is {number + 2} metres deep."]))
        view = library.add(folder / name)
        assert view.name == name
        added[name] = view.id
    for name, id in added.items():
        assert library.wait(id, timeout_s=120).state == "ready", name
    assert {view.name for view in library.documents()} == set(NAMES)
    for number, name in enumerate(NAMES):
        found = library.search(f"How deep is pond {number}?", documents=[added[name]]).passages
        assert found[0].name == name
        assert library.page_image(added[name], 1, [(0, 4)]).startswith(b"\x89PNG")
        library.remove(added[name])
        with pytest.raises(DocumentNotFound):
            library.get(added[name])
    assert sorted(path.name for path in folder.iterdir()) == sorted(NAMES)
    assert not list((tmp_path / "data" / "files").iterdir())


@pytest.mark.parametrize("name", ["../../outside.pdf", "/etc/passwd.pdf"])
def test_a_name_that_leads_elsewhere_leads_nowhere(
    tmp_path: Path, library: Library, name: str
) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf(["Text of a page"]))
    view = library.wait(library.add(tmp_path / "a.pdf", name=name).id, timeout_s=120)
    assert (view.name, view.state) == (name, "ready")
    written = {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*")}
    assert written == {"a.pdf", "data"}
