"""A cross-encoder, when one is named, decides the order of what was found."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

from retrieval.embedder import Embedder
from retrieval.errors import RerankerUnavailable
from retrieval.library import Library
from retrieval.reranker import Reranker
from tests.retrieval.make_files import make_database

TEXTS = [f"The heron of pond {n} waits for fish." for n in range(5)]


@pytest.fixture(scope="module")
def cross_encoder(embedder_folder: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A real, tiny cross-encoder with random weights: its order is like no other's."""
    folder = tmp_path_factory.mktemp("cross-encoder")
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(embedder_folder, local_files_only=True)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        num_labels=1,
        initializer_range=0.5,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def test_the_reranker_orders_what_search_found(
    tmp_path: Path, embedder: Embedder, cross_encoder: str
) -> None:
    database = make_database(tmp_path / "data")
    library = Library(
        database, tmp_path / "data", embedder, reranker=Reranker(cross_encoder, "cpu")
    )
    library.start()
    for n, text in enumerate(TEXTS):
        (tmp_path / f"{n}.txt").write_text(text)
        library.wait(library.add(tmp_path / f"{n}.txt").id, 60)
    plain = Library(database, tmp_path / "data", embedder)
    question = "Where does the heron wait?"
    expected = Reranker(cross_encoder, "cpu").order(question, plain.search(question).passages)
    found = library.search(question, limit=4).passages
    scores = [passage.score for passage in found]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == 4
    best = max(expected, key=lambda passage: passage.score)
    assert found[0].score >= best.score
    library.close()
    database.close()


def test_a_reranker_that_is_not_there_is_named_with_what_to_do(
    tmp_path: Path, library: Library, open_library: Callable[..., Library]
) -> None:
    missing = Reranker(str(tmp_path / "none"), "cpu")
    library._reranker = missing
    (tmp_path / "a.txt").write_text(TEXTS[0])
    library.wait(library.add(tmp_path / "a.txt").id, 60)
    with pytest.raises(RerankerUnavailable, match="--reranker"):
        library.search("heron")
