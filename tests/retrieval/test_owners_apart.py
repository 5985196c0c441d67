"""What one owner has changes nothing of what another is answered, to the last digit."""

from pathlib import Path

import pytest

from retrieval.library import Library
from retrieval.owners import SHARED
from retrieval.views import SearchResult

QUESTIONS = ["Which bird stands in the pond?", "How long does the dough rise?", "heron cormorant"]


@pytest.fixture(autouse=True)
def few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """To say what all passages are like: embedding as many as it really takes would be slow."""
    monkeypatch.setattr("retrieval.vectors._FEW", 5)


def sections_file(path: Path, subject: str, count: int) -> Path:
    told = "".join(f"\n## {subject} {n}\n\n{subject} {n} is {n} m deep.\n" for n in range(count))
    path.write_text(f"# {subject}\n{told}")
    return path


def answered(library: Library, question: str, owner: str) -> tuple[object, ...]:
    """All that a search and its evidence say."""
    found = library.search(question, owner=owner)
    evidence = library.evidence(found)
    return (
        [(passage.text, passage.score, passage.lexical_rank) for passage in found.passages],
        weights(found),
        evidence.gate,
        [(sentence.text, sentence.score) for sentence in evidence.sentences],
    )


def weights(found: SearchResult) -> dict[str, float]:
    assert found.asked is not None
    return dict(found.asked.weights)


@pytest.mark.parametrize("with_shared", [False, True])
def test_another_owners_documents_change_no_score_and_no_gate(
    library: Library, tmp_path: Path, with_shared: bool
) -> None:
    def add(file: Path, owner: str) -> None:
        view = library.wait(library.add(file, owner=owner).id, 120)
        assert view.state == "ready", view.reason

    add(sections_file(tmp_path / "ponds.md", "A pond with a heron", 60), "ada")
    if with_shared:
        add(sections_file(tmp_path / "bread.md", "Dough that rises", 5), SHARED)
    before = [answered(library, question, "ada") for question in QUESTIONS]
    assert len(library._indexes.vectors()._samples["ada"]) >= 5
    add(sections_file(tmp_path / "birds.md", "A heron, a cormorant", 80), "bob")
    assert [answered(library, question, "ada") for question in QUESTIONS] == before
    # The same question tells bob something else, so there was something to tell.
    assert answered(library, QUESTIONS[2], "bob") != before[2]


def test_what_all_passages_are_like_is_measured_on_what_the_owner_sees(
    library: Library, tmp_path: Path
) -> None:
    for owner, subject in (("ada", "A pond with a heron"), ("bob", "Interest on a loan")):
        file = sections_file(tmp_path / f"{owner}.md", subject, 60)
        assert library.wait(library.add(file, owner=owner).id, 120).state == "ready"
    index = library._indexes.vectors()
    vector = library.embedder.encode_question("Where does the heron stand?")
    library.search("heron", owner="ada")
    library.search("heron", owner="bob")
    mine, others = index._samples["ada"] @ vector, index._samples["bob"] @ vector
    assert min(len(mine), len(others)) >= 5
    assert mine.min() > others.max()
