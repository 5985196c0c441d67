import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from retrieval.embedder import Embedder
from retrieval.errors import EmbedderUnavailable


def test_vectors_are_normalised_and_independent_of_the_batch(embedder: Embedder) -> None:
    texts = ["a heron", "the dough rises overnight " * 30, "x", *["pond"] * 20]
    vectors = embedder.encode(texts)
    assert vectors.shape == (len(texts), embedder.dim)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(vectors[1], embedder.encode([texts[1]])[0], atol=1e-5)


def test_a_question_lies_near_its_answer(embedder: Embedder) -> None:
    answers = embedder.encode(["Herons eat fish and frogs.", "Bread needs flour and yeast."])
    question = embedder.encode_question("What do herons feed on?")
    assert answers[0] @ question > answers[1] @ question + 0.3


def test_limits_are_known_without_loading_the_weights(embedder_folder: str) -> None:
    code = (
        "import sys; from retrieval.embedder import Embedder; e = Embedder(sys.argv[1]);"
        "print(e.dim, e.max_tokens, len(e.fingerprint), 'torch' in sys.modules)"
    )
    run = [sys.executable, "-c", code, embedder_folder]
    out = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    assert out.split() == ["384", "256", "64", "False"]


def test_a_missing_model_says_how_to_get_it() -> None:
    with pytest.raises(EmbedderUnavailable, match=r"python app\.py fetch"):
        Embedder("nobody/no-such-model").encode(["x"])


def test_a_folder_that_holds_no_model_says_so(tmp_path: Path) -> None:
    with pytest.raises(EmbedderUnavailable, match=r"tokenizer\.json"):
        Embedder(str(tmp_path)).encode(["x"])


def test_weights_that_cannot_be_loaded_say_so(tmp_path: Path, embedder_folder: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(
        embedder_folder, folder, ignore=shutil.ignore_patterns("*.safetensors", "*.bin")
    )
    with pytest.raises(EmbedderUnavailable, match="cannot be loaded"):
        Embedder(str(folder), "cpu").encode(["x"])


def test_another_version_of_a_model_has_another_fingerprint(
    tmp_path: Path, embedder: Embedder, embedder_folder: str
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(embedder_folder, folder)
    assert Embedder(str(folder)).fingerprint == embedder.fingerprint
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x7f")
    assert Embedder(str(folder)).fingerprint != embedder.fingerprint


def test_a_question_does_not_wait_for_all_passages_that_are_being_embedded(
    embedder: Embedder,
) -> None:
    passages = ["The heron waits at the edge of the water for a fish. " * 12] * 60
    embedder.encode(passages[:1])
    embedding = threading.Thread(target=embedder.encode, args=(passages,))
    embedding.start()
    for number in range(3):
        embedder.encode_question(f"What does heron number {number} wait for?")
    assert embedding.is_alive()
    embedding.join()


def test_a_question_that_was_asked_lately_is_not_embedded_again(
    embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = "Where do bitterns hide?"
    vector = embedder.encode_question(question)
    monkeypatch.setattr(embedder, "_encode", None)
    np.testing.assert_array_equal(embedder.encode_questions([question, question])[1], vector)


def test_whether_texts_are_read_to_their_end_is_known(embedder: Embedder) -> None:
    assert embedder.reads_whole(["heron " * 200, "pond"])
    assert not embedder.reads_whole(["pond", "heron " * 300])
