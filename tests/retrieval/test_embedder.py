import shutil
import subprocess
import sys
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
