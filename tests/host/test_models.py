import shutil

import pytest

from host.errors import ModelMissing
from host.models import CATALOGUE, CHAT_MODEL, EMBEDDER, known, resolve


def test_the_default_models_are_there_with_their_pinned_checksums(models_dir):
    assert [model.problems(models_dir) for model in CATALOGUE] == [[], []]


def test_a_default_model_resolves_to_what_its_loader_takes(models_dir):
    assert resolve("SmolLM2-135M-Instruct", models_dir).endswith(".gguf")
    assert resolve("all-minilm-l6-v2", models_dir).rstrip("/").endswith("all-MiniLM-L6-v2")


def test_a_missing_default_model_names_the_command_that_brings_it(tmp_path):
    with pytest.raises(ModelMissing, match=r"python app\.py fetch"):
        resolve(CHAT_MODEL.name, tmp_path)


def test_a_path_is_taken_as_it_is(tmp_path):
    assert resolve(str(tmp_path), tmp_path) == str(tmp_path)


def test_an_unknown_hub_id_names_its_fetch(tmp_path):
    with pytest.raises(ModelMissing, match=r"python app\.py fetch nobody/nothing-at-all"):
        resolve("nobody/nothing-at-all", tmp_path)


@pytest.mark.parametrize("name", ["nonsense", "./nowhere", "weights/none.gguf", "a/b/c"])
def test_what_is_nothing_at_all_is_refused(name, tmp_path):
    with pytest.raises(ModelMissing, match="There is no model"):
        resolve(name, tmp_path)


def test_an_altered_file_is_found_by_its_checksum_alone(models_dir, tmp_path):
    shutil.copytree(EMBEDDER.folder(models_dir), EMBEDDER.folder(tmp_path))
    config = EMBEDDER.folder(tmp_path) / "config.json"
    content = bytearray(config.read_bytes())
    content[0] ^= 1
    config.write_bytes(content)
    assert EMBEDDER.missing(tmp_path) == []
    [problem] = EMBEDDER.problems(tmp_path)
    assert "config.json" in problem
    assert "SHA-256" in problem


def test_names_are_found_whatever_their_case():
    assert known("smollm2-135m-instruct") is CHAT_MODEL
    assert known("SmolLM2") is None
