import itertools
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from retrieval.chunking import MAX_CHARACTERS, Chunker
from retrieval.embedder import Embedder
from retrieval.outline import Outline, blocks

LINES = st.sampled_from(
    [
        "# Birds",
        "## Ponds and lakes",
        "The heron waits at the edge of the water for a long time.",
        "键值缓存保存每一层的键和值。" * 6,
        "- one thing\n- another",
        "```\n# no heading\ncode()\n```",
        "| name | depth |\n| --- | --- |\n" + "| pond | 3 m |\n" * 20,
        "é👩‍👩‍👧 مرحبا",
        "x" * 500,
        "键" * 300,
        "| " + " | ".join(f"column {n}" for n in range(40)) + " |\n|" + " --- |" * 40 + "\n| 1 |\n",
        "```\n" + "call(x)\n" * 60 + "```",
        "",
        "    indented",
        "\t",
    ]
)


@pytest.fixture(scope="module")
def chunker(embedder: Embedder) -> Chunker:
    return Chunker(str(embedder.tokenizer_file), embedder.max_tokens)


@pytest.fixture(scope="module")
def tokenizer(embedder: Embedder) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(embedder.tokenizer_file))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


@given(st.lists(st.lists(LINES, max_size=25).map("\n\n".join), max_size=3), st.booleans())
@settings(max_examples=60, deadline=None)
def test_passages_fit_the_embedder_and_hold_all_the_text_in_order(
    chunker: Chunker, tokenizer: Tokenizer, pages: list[str], markdown: bool
) -> None:
    cuts = chunker.cut(pages, markdown)
    covered = [""] * len(pages)
    end, page = 0, 1
    for cut in cuts:
        if cut.page != page:
            end, page = 0, cut.page
        text = pages[cut.page - 1][cut.char_start : cut.char_end]
        assert end <= cut.char_start < cut.char_end <= len(pages[cut.page - 1])
        assert text.strip()
        assert len(text) <= MAX_CHARACTERS
        assert len(tokenizer.encode(f"{cut.heading}\n{text}").ids) <= 256
        covered[cut.page - 1] += text
        end = cut.char_end
    assert list(map(without_headings, pages)) == list(map(without_headings, covered))


def without_headings(text: str) -> str:
    """All but white space and heading lines: a heading alone may be left to what follows it."""
    return re.sub(r"\s|# ?Birds|# ?Ponds and lakes|#", "", text)


def test_a_line_without_spaces_is_cut_inside(chunker: Chunker) -> None:
    page = "ffd8ffe0" * 5_000
    cuts = chunker.cut([page], markdown=False)
    assert "".join(page[c.char_start : c.char_end] for c in cuts) == page
    assert max(c.char_end - c.char_start for c in cuts) <= MAX_CHARACTERS


@pytest.mark.parametrize("text", ["键" * 80_000, "x" * 80_000, "a键" * 40_000, "e\u0301" * 40_000])
def test_a_line_without_any_pause_is_cut_between_whole_characters(
    chunker: Chunker, tokenizer: Tokenizer, text: str
) -> None:
    parts = [text[c.char_start : c.char_end] for c in chunker.cut([text], markdown=False)]
    assert "".join(parts) == text
    assert not any(part.startswith("\u0301") for part in parts)
    assert max(len(tokenizer.encode(part).ids) for part in parts) <= 256


def test_a_novel_is_cut_whole_and_in_order(chunker: Chunker) -> None:
    words = ("The", "heron", "waits", "at", "the", "water.", "“Why?”", "asked", "Ann.", "\n\n")
    page = " ".join(words[(n * n + n // 7) % 10] for n in range(150_000))
    cuts = chunker.cut([page], markdown=False)
    covered = "".join(page[c.char_start : c.char_end] for c in cuts)
    assert re.sub(r"\s", "", covered) == re.sub(r"\s", "", page)
    assert all(a.char_end <= b.char_start for a, b in itertools.pairwise(cuts))
    assert sum(c.char_end - c.char_start < 40 for c in cuts) < 0.01 * len(cuts)


def test_a_passage_knows_the_headings_above_it(chunker: Chunker) -> None:
    text = "The heron waits at the edge of the water for a long time. " * 40
    page = f"# Birds\n\n{text}\n\n## Herons\n\n{text}\n\n# Fish\n\n{text}"
    headings = [cut.heading for cut in chunker.cut([page], markdown=True)]
    assert list(dict.fromkeys(headings)) == ["Birds", "Birds > Herons", "Fish"]


def test_a_comment_in_code_is_no_heading(chunker: Chunker) -> None:
    page = "# Birds\n\n```python\n# not a heading\nx = 1\n```\n\n" + "The heron waits. " * 100
    assert {cut.heading for cut in chunker.cut([page], markdown=True)} == {"Birds"}


def test_the_later_rows_of_a_table_keep_its_header(chunker: Chunker) -> None:
    rows = "".join(f"| pond number {n} | {n} m | {n * 7} birds |\n" for n in range(120))
    page = f"# Ponds\n\n| Name | Depth | Birds |\n| --- | --- | --- |\n{rows}"
    cuts = chunker.cut([page], markdown=True)
    assert len(cuts) > 3
    for cut in cuts[1:]:
        assert cut.heading == "Ponds > | Name | Depth | Birds |"
        assert page[cut.char_start : cut.char_end].startswith("| pond number")


def test_a_short_table_is_never_cut(chunker: Chunker) -> None:
    table = "| Name | Depth |\n| --- | --- |\n" + "| pond | 3 m |\n" * 12
    page = "\n\n".join(["The heron waits at the edge of the water. " * n for n in range(1, 9)])
    page = page.replace("\n\n", f"\n\n{table}\n")
    for cut in chunker.cut([page], markdown=True):
        text = page[cut.char_start : cut.char_end]
        assert text.count("| Name") == text.count("| --- | --- |")
        assert text.count("| pond") == 12 * text.count("| Name")


def test_a_short_table_stays_with_the_words_around_it(chunker: Chunker) -> None:
    page = "# Ponds\n\nAs counted:\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\nThat was in May."
    cuts = chunker.cut([page], markdown=True)
    assert [page[c.char_start : c.char_end] for c in cuts] == [page]


def test_code_that_fits_is_kept_whole(chunker: Chunker) -> None:
    code = "```\n" + "wait(heron)\n\n" * 14 + "```"
    page = f"{'The heron waits at the edge. ' * 20}\n\n{code}\n\n{'It goes on. ' * 40}\n\n{code}"
    texts = [page[c.char_start : c.char_end] for c in chunker.cut([page], markdown=True)]
    assert sum(code in text for text in texts) == 2


def test_the_rows_of_a_wide_table_keep_the_beginning_of_its_header(
    chunker: Chunker, tokenizer: Tokenizer
) -> None:
    names = [f"column{n}" for n in range(60)]
    rows = "".join(f"| {' | '.join(f'{n}.{i}' for i in range(60))} |\n" for n in range(9))
    page = f"| {' | '.join(names)} |\n|{' --- |' * 60}\n{rows}"
    for cut in chunker.cut([page], markdown=True)[1:]:
        text = f"{cut.heading}\n{page[cut.char_start : cut.char_end]}"
        assert len(tokenizer.encode(text).ids) <= 256


@pytest.mark.parametrize(
    "page",
    [
        "# " + " " * 300_000 + "x",
        "a|b\n" + "|   " * 100_000 + "x\n",
        "|-" * 150_000 + "\n" + "|-" * 150_000 + "\n",
        "# " * 150_000,
        "~~~\n```\n" * 40_000,
    ],
    ids=["spaces", "rule", "rules", "headings", "fences"],
)
def test_hostile_markdown_takes_no_longer_than_its_length(page: str) -> None:
    assert list(blocks(page))
    Outline().read(page)


def test_an_endless_heading_is_shortened(chunker: Chunker, tokenizer: Tokenizer) -> None:
    page = f"# {'very long heading ' * 40}\n\n" + "The heron waits at the water. " * 100
    last = chunker.cut([page], markdown=True)[-1]
    assert len(tokenizer.encode(last.heading, add_special_tokens=False).ids) <= 48


def test_an_embedder_too_small_for_passages_is_refused(tmp_path: Path, embedder: Embedder) -> None:
    with pytest.raises(ValueError, match="too small"):
        Chunker(str(embedder.tokenizer_file), 32)
