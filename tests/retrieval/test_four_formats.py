"""One text in every format: a question finds the same words wherever they are."""

import textwrap
from pathlib import Path

import docx
import pytest

from retrieval.library import Library
from tests.retrieval.conftest import OpenLibrary
from tests.retrieval.make_files import pdf
from tests.retrieval.make_packages import book

SECTIONS = {
    "The lighthouse": (
        "The lighthouse on Ternel island was built in 1871 from granite that came by barge. Its "
        "lamp burned rape oil for thirty years and paraffin for another forty. Three keepers took "
        "turns of four hours each, and the logbook shows that they missed only two nights in all "
        "that time, both because of ice on the gallery. The tower is 38 metres high and has 197 "
        "steps. Since 1964 nobody lives there: a cable brings power from the mainland, and the "
        "light is watched from the harbour office. Visitors may climb it on the first Sunday of "
        "each month between May and September, in groups of no more than twelve."
    ),
    "The ferry": (
        "A ferry crosses the sound six times a day in summer and twice in winter. It carries forty "
        "passengers and eight cars, and a crossing takes twenty-five minutes when the tide is "
        "right. Bicycles travel free of charge; dogs pay half the fare of a child. When the wind "
        "blows stronger than fifty knots the captain decides alone whether to sail, and the notice "
        "board at the pier is changed at once. Tickets are sold on board only, because the wooden "
        "booth was carried away by the storm of 1987 and the parish never found the money for "
        "another one. The ship itself, the Marit, was launched at a yard in Bergen."
    ),
    "Sheep and salt": (
        "Some four hundred sheep graze on the salt meadows of the northern shore. They belong to "
        "eleven families who share the pasture by a rule that is older than the church: each may "
        "keep as many animals as it can feed with its own hay from November to March. The wool is "
        "coarse and dark, good for sails and blankets, and was sold to the navy until steam made "
        "sails useless. Salt was boiled from sea water in flat iron pans over fires of peat, and "
        "the last of the seven huts in which this was done can still be seen beside the creek. "
        "A pound of salt needed nearly a hundredweight of peat."
    ),
    "The school": (
        "The school has one room and, in most years, fewer than ten pupils. Older children teach "
        "the younger ones to read, and everybody learns to row before the age of eight, which the "
        "inspectors from the capital thought strange and later praised. Lessons end early when the "
        "mackerel arrive. In 1932 the teacher, Oda Lind, began to write down the weather every "
        "morning at seven; her pupils went on with it, and the row of notebooks now fills two "
        "shelves. Climate researchers borrowed all of them in 2009 and found that the series is "
        "among the longest without a gap anywhere on that coast."
    ),
    "Birds of the cliffs": (
        "From April the cliffs are white with kittiwakes, and on the ledges below them stand the "
        "guillemots, which build no nest and lay a single egg that rolls in a circle instead of "
        "over the edge. Puffins dig holes in the turf above. The islanders once took eggs there on "
        "ropes of plaited horsehair, never more than one from each ledge, and stopped altogether "
        "when the colonies shrank after the war. A count made from a boat in 2021 found 6,300 "
        "pairs of kittiwakes, a third fewer than ten years before; nobody knows yet whether "
        "they died or moved to the oil platforms further out."
    ),
}
QUESTIONS = {
    "When may visitors climb the lighthouse?": "first Sunday of each month",
    "How many cars does the ferry carry?": "eight cars",
    "Who decides whether the ship sails in strong wind?": "the captain decides alone",
    "What was salt boiled in?": "flat iron pans",
    "Who began to write down the weather?": "Oda Lind",
    "How many pairs of kittiwakes were counted in 2021?": "6,300 pairs of kittiwakes",
}


def html(body: str) -> str:
    return f"<html><head><title>Ternel</title></head><body>{body}</body></html>"


def as_text(path: Path) -> Path:
    path.write_text("\n\n".join(f"{name}\n\n{text}" for name, text in SECTIONS.items()))
    return path


def as_html(path: Path) -> Path:
    path.write_text(html("".join(f"<h2>{n}</h2><p>{t}</p>" for n, t in SECTIONS.items())))
    return path


def as_epub(path: Path) -> Path:
    chapters = {f"{i}.html": f"<h2>{n}</h2><p>{t}</p>" for i, (n, t) in enumerate(SECTIONS.items())}
    return book(path, chapters)


def as_docx(path: Path) -> Path:
    document = docx.Document()
    for name, text in SECTIONS.items():
        document.add_heading(name, level=2)
        document.add_paragraph(text)
    document.save(str(path))
    return path


def as_pdf(path: Path) -> Path:
    path.write_bytes(
        pdf(["\n".join([name, *textwrap.wrap(text, 80)]) for name, text in SECTIONS.items()])
    )
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("ternel")
    return [
        as_text(folder / "ternel.txt"),
        as_html(folder / "ternel.html"),
        as_epub(folder / "ternel.epub"),
        as_docx(folder / "ternel.docx"),
        as_pdf(folder / "ternel.pdf"),
    ]


def test_a_question_finds_the_same_words_in_every_format(
    open_library: OpenLibrary, files: list[Path]
) -> None:
    library: Library = open_library()
    views = [library.add(path) for path in files]
    for view in views:
        assert library.wait(view.id, 120).state == "ready"
    for question, answer in QUESTIONS.items():
        for view in views:
            found = library.search(question, documents=[view.id], limit=1).passages[0]
            assert answer in " ".join(found.text.split()), (view.name, question)
            page = library.page_text(view.id, found.page)
            assert page[found.char_start : found.char_end] == found.text
