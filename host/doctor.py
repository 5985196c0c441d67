"""`doctor`: what Pageturn needs, what is there, and the command that mends what is not.

Works before anything is installed, so every import of another package stands where it is used.
No model is loaded.
"""

import importlib.metadata
import json
import os
import platform
import re
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from host.settings import Settings

_INSTALL = "make run  (or: python -m pip install -e .)"
_FETCH = "python app.py fetch"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. `mend` is the command or step that mends a bad one."""

    name: str
    ok: bool
    found: str
    mend: str | None = None


def run(settings: "Settings", *, as_json: bool = False) -> int:
    """Print every check; returns the exit status: 1 if one is bad."""
    return _report([*_of_machine(), *_of_settings(settings)], as_json=as_json)


def without_dependencies(arguments: list[str], missing: ModuleNotFoundError) -> str | int:
    """What the command line does where its packages are not installed: an exit status or text."""
    if "doctor" not in arguments:
        return f"error: the package {missing.name} is not installed. Install with: {_INSTALL}"
    return _report(list(_of_machine()), as_json="--json" in arguments)


def _report(checks: list[Check], *, as_json: bool) -> int:
    ok = all(check.ok for check in checks)
    if as_json:
        print(json.dumps({"ok": ok, "checks": [asdict(check) for check in checks]}, indent=2))
        return 0 if ok else 1
    for check in checks:
        print(f"{'ok ' if check.ok else 'BAD'}  {check.name:<15} {check.found}")
        if check.mend:
            print(f"{'':21}mend it: {check.mend}")
    print("Everything is in order." if ok else "Something is missing; see above.")
    return 0 if ok else 1


# Python, packages, SQLite: these need nothing but the standard library --------------------------


def _of_machine() -> Iterator[Check]:
    version = platform.python_version()
    good = sys.version_info >= (3, 11)
    yield Check("Python", good, version, None if good else "install Python 3.11 or newer")
    yield _packages()
    yield _sqlite()
    yield _text_recognition()


def _packages() -> Check:
    try:
        own = importlib.metadata.version("pageturn")
        required = importlib.metadata.requires("pageturn") or []
    except importlib.metadata.PackageNotFoundError:
        return Check("packages", False, "pageturn is not installed in this Python", _INSTALL)
    wrong, versions = [], {}
    for requirement in required:
        match = re.fullmatch(r"([\w.-]+)==([\w.]+?)(\.\*)?", requirement.replace(" ", ""))
        if match is None:  # an extra's requirement carries a marker: not needed to run
            continue
        name, pinned, prefix = match.groups()
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{name} is missing")
            continue
        release = versions[name].split("+")[0]  # 2.13.0+cpu is a build of 2.13.0
        if release != pinned and not (prefix and release.startswith(f"{pinned}.")):
            wrong.append(f"{name} is {versions[name]}, not {pinned}{prefix or ''}")
    if wrong:
        return Check("packages", False, "; ".join(wrong), _INSTALL)
    shown = ", ".join(
        f"{name} {versions.get(name)}" for name in ("torch", "transformers", "gradio")
    )
    return Check("packages", True, f"pageturn {own}; {len(versions)} as pinned ({shown})")


def _sqlite() -> Check:
    with sqlite3.connect(":memory:") as connection:
        try:
            connection.execute("CREATE VIRTUAL TABLE probe USING fts5(text)")
        except sqlite3.Error:
            mend = "use a Python whose SQLite has FTS5 (that of python.org or of a distribution)"
            return Check("SQLite", False, f"{sqlite3.sqlite_version} without FTS5", mend)
    return Check("SQLite", True, f"{sqlite3.sqlite_version} with FTS5")


def _text_recognition() -> Check:
    """An optional program: without it nothing is broken, and scans are not read."""
    from retrieval.parsers import ocr

    if languages := ocr.languages():
        return Check("OCR", True, f"tesseract with {', '.join(languages)}")
    found = "no tesseract with English: scanned pages are not read"
    mend = "apt install tesseract-ocr tesseract-ocr-chi-sim  (optional; or brew install tesseract)"
    return Check("OCR", True, found, mend)


# Everything that the settings name --------------------------------------------------------------


def _of_settings(settings: "Settings") -> Iterator[Check]:
    looks: tuple[tuple[str, Callable[[], Check]], ...] = (
        ("device", lambda: _device(settings.device)),
        ("CPU kernels", lambda: _kernels(settings)),
        ("chat model", lambda: _model("chat model", settings.model, settings.models_dir)),
        ("embedder", lambda: _model("embedder", settings.embedder, settings.models_dir)),
        ("data folder", lambda: _data_folder(settings.data_dir)),
        ("database", lambda: _database(settings)),
        ("index", lambda: _index(settings)),
    )
    for name, look in looks:
        try:
            yield look()
        except Exception as error:  # a broken part is a finding, never the end of the examination
            yield Check(name, False, f"{type(error).__name__}: {error}", _INSTALL)


def _device(wanted: str) -> Check:
    import torch

    from engine.device import choose_device, device_memory
    from engine.errors import SettingError

    try:
        device = choose_device(wanted)
    except SettingError as error:
        return Check("device", False, str(error), "--device cpu, or a CUDA build of PyTorch")
    memory = device_memory(device, 0)
    found = f"{device.type}, {memory.name}, {memory.total_bytes / 2**30:.1f} GiB usable"
    return Check("device", True, f"{found}, {torch.get_num_threads()} threads")


def _kernels(settings: "Settings") -> Check:
    """Whether the native kernels run here; they are built if they have not been yet."""
    from engine.device import choose_device
    from engine.native import build

    name = "CPU kernels"
    if choose_device(settings.device).type != "cpu":
        return Check(name, True, "not needed on a GPU")
    if settings.backend == "torch":
        return Check(name, True, "PyTorch's, as set")
    try:
        library = build.load()
    except build.NativeUnavailable as reason:
        found = f"PyTorch's, several times slower: {reason}"
        mend = "apt install g++  (or another C++ compiler)" if build.variants() else None
        return Check(name, settings.backend == "auto", found, mend)
    return Check(name, True, f"native, {library.variant}, built with {build.compiler()}")


def _model(role: str, name: str, models_dir: Path) -> Check:
    from host.errors import ModelMissing
    from host.models import known, location, looks_like_hub_id, resolve

    model = known(name)
    if model is not None:
        problems = model.problems(models_dir)
        if problems:
            return Check(role, False, " ".join(problems), f"{_FETCH} {name}")
        where = model.folder(models_dir)
        return Check(role, True, f"{model.name} in {where}, checksums right")
    try:
        resolve(name, models_dir)
    except ModelMissing as error:
        mend = f"{_FETCH} {name}" if looks_like_hub_id(name) else "--model or --embedder"
        return Check(role, False, str(error), mend)
    return Check(role, True, f"{location(name, models_dir)} (no checksum is pinned)")


def _data_folder(path: Path) -> Check:
    from host.datafolder import DataFolder

    nearest = next(p for p in (path.absolute(), *path.absolute().parents) if p.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        mend = "give a folder of your own with --data-dir"
        return Check("data folder", False, f"{path} cannot be written", mend)
    free = f"{shutil.disk_usage(nearest).free / 1e9:,.1f} GB free"
    if nearest != path.absolute():
        return Check("data folder", True, f"{path} will be made when it is needed ({free})")
    server = DataFolder(path).server()
    holder = f"served at {server.address} (process {server.pid})" if server else "no server on it"
    return Check("data folder", True, f"{path}: {holder}, {free}")


def _database(settings: "Settings") -> Check:
    from host.workspace import DATABASE_FILE

    path = settings.data_dir / DATABASE_FILE
    if not path.exists():
        return Check("database", True, "none yet; it is made when it is needed")
    connection = sqlite3.connect(f"file:{path.absolute()}?mode=ro", uri=True)
    try:
        revision = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        problem = connection.execute("PRAGMA quick_check").fetchone()[0]
    except sqlite3.Error as error:
        mend = f"move {path} away; the documents have to be added again"
        return Check("database", False, f"{path} cannot be read: {error}", mend)
    finally:
        connection.close()
    if problem != "ok":
        return Check("database", False, f"{path} is damaged: {problem}", "restore a copy of it")
    newest = _newest_revision()
    if revision is None or revision[0] != newest:
        found = f"revision {revision[0] if revision else 'none'}, this version needs {newest}"
        return Check("database", False, found, "python app.py  (it brings the tables up to date)")
    return Check("database", True, f"{path}, revision {revision[0]}")


def _newest_revision() -> str | None:
    from alembic.script import ScriptDirectory

    import chat.migrations

    return ScriptDirectory(str(Path(chat.migrations.__file__).parent)).get_current_head()


def _index(settings: "Settings") -> Check:
    from host.datafolder import DataFolder
    from host.workspace import DATABASE_FILE, Workspace
    from retrieval.errors import EmbedderUnavailable

    if not (settings.data_dir / DATABASE_FILE).exists():
        return Check("index", True, "none yet")
    if DataFolder(settings.data_dir).server():
        return Check("index", True, "in the memory of the server, which checked it at its start")
    workspace = Workspace(settings)
    try:
        found = workspace.library.check()
    except EmbedderUnavailable as error:
        return Check("index", False, f"not checked: {error}", _FETCH)
    finally:
        workspace.close()
    counts = f"{found.documents} documents, {found.passages} passages"
    if found.ok:
        return Check("index", True, counts)
    mend = "python app.py  (it builds again what is derived)"
    return Check("index", False, f"{counts}: {' '.join(found.problems)}", mend)
