"""A model by name: its folder, its configuration, its tensors.

Whatever a model comes as, it is read from a folder with `config.json`, `tokenizer.json` and
safetensors. A GGUF file is converted to such a folder once. Model files are never executed.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from safetensors import SafetensorError, safe_open

from engine.errors import ModelNotFound, WeightsUnusable
from engine.gguf_file import CONVERTER_VERSION, convert
from engine.quantised import Quantised

Progress = Callable[[str], None]

_STAMP = "converted-from.json"
_WEIGHT_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def model_folder(model: str, convert_dir: Path | None, progress: Progress) -> Path:
    """The folder that holds a model.

    Args:
        model: a folder, a .gguf file, a folder with one .gguf file, or a Hub id in the local cache.
        convert_dir: where GGUF files are converted to; None means beside the file.
        progress: told of work that takes longer than a moment.

    Raises:
        ModelNotFound: nothing of that name is here. Nothing is ever downloaded.
        WeightsUnusable: a GGUF file that cannot be converted.
    """
    path = Path(model).expanduser()
    if path.is_dir():
        if (path / "config.json").is_file():
            return path
        return _convert_gguf(only_gguf(path), convert_dir, progress)
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise WeightsUnusable(f"{path} is not a .gguf file: give the model's folder instead.")
        return _convert_gguf(path, convert_dir, progress)
    if model.count("/") == 1 and not model.startswith((".", "/", "~")):
        from huggingface_hub import snapshot_download

        try:
            return Path(snapshot_download(model, local_files_only=True))
        except Exception as error:
            raise ModelNotFound(model) from error
    raise ModelNotFound(model)


def only_gguf(folder: Path) -> Path:
    """The GGUF file of a folder without a configuration.

    Raises:
        WeightsUnusable: there is none, or more than one.
    """
    files = list(folder.glob("*.gguf"))
    if len(files) != 1:
        raise WeightsUnusable(
            f"The folder {folder} holds neither a config.json nor exactly one .gguf file."
        )
    return files[0]


def converted(file: Path, convert_dir: Path | None) -> Path | None:
    """The folder that a GGUF file was converted to; None where that is still to be done."""
    target = _target(file, convert_dir)
    stamp = target / _STAMP
    return target if stamp.is_file() and stamp.read_text() == _stamp(file) else None


def _target(file: Path, convert_dir: Path | None) -> Path:
    return (convert_dir or file.parent) / f"{file.stem}.converted"


def _stamp(file: Path) -> str:
    """Identifies the file that a folder was made from: one of another size or time is not it."""
    stat = file.stat()
    return json.dumps(
        {
            "version": CONVERTER_VERSION,
            "file": file.name,
            "size": stat.st_size,
            "mtime_ns": stat.st_mtime_ns,
        }
    )


def _convert_gguf(file: Path, convert_dir: Path | None, progress: Progress) -> Path:
    """Convert a GGUF file to a folder, once."""
    if found := converted(file, convert_dir):
        return found
    target, stamp = _target(file, convert_dir), _stamp(file)
    home = target.parent
    part = home / f"{file.stem}.converting"
    try:
        home.mkdir(parents=True, exist_ok=True)
        with FileLock(home / f".{file.stem}.lock"):
            if converted(file, convert_dir):
                return target  # another process has done it in the meantime
            progress(f"Converting {file.name}, once")
            shutil.rmtree(part, ignore_errors=True)  # left by a kill
            try:
                convert(file, part, progress)
                (part / _STAMP).write_text(stamp)
                shutil.rmtree(target, ignore_errors=True)
                part.replace(target)
            finally:
                shutil.rmtree(part, ignore_errors=True)
    except (OSError, SafetensorError) as error:  # safetensors' own name for a full disk
        raise WeightsUnusable(f"{file} could not be converted to {target}: {error}") from error
    return target


def read_json(folder: Path, name: str) -> dict[str, Any]:
    """A model folder's JSON file; empty where there is none.

    Raises:
        WeightsUnusable: the file is not JSON.
    """
    path = folder / name
    if not path.is_file():
        return {}
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise WeightsUnusable(f"{path} is not valid JSON: {error}") from error


def chat_template(folder: Path) -> tuple[str, dict[str, Any]]:
    """The folder's chat template and the variables that it may use.

    Raises:
        WeightsUnusable: the model has no chat template, so it is not made for conversations.
    """
    config = read_json(folder, "tokenizer_config.json")
    file = folder / "chat_template.jinja"
    template = file.read_text(encoding="utf-8") if file.is_file() else config.get("chat_template")
    if isinstance(template, list):  # several named ones
        named = {item["name"]: item["template"] for item in template}
        template = named.get("default")
    if not template:
        raise WeightsUnusable(
            f"The model in {folder} has no chat template: take its instruct or chat version."
        )
    variables = {}
    for key in ("bos_token", "eos_token", "pad_token", "unk_token"):
        value = config.get(key)
        variables[key] = value["content"] if isinstance(value, dict) else (value or "")
    return str(template), variables


def stop_tokens(folder: Path, special: dict[str, int]) -> set[int]:
    """Ids that end an answer, from the generation settings, the configuration and the tokenizer."""
    found: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        ids = read_json(folder, name).get("eos_token_id")
        found |= set(ids) if isinstance(ids, list) else {ids} if isinstance(ids, int) else set()
    eos = chat_template(folder)[1]["eos_token"]
    return found | ({special[eos]} if eos in special else set())


class Tensors:
    """The tensors of a folder's safetensors files, read one by one. A context manager."""

    def __init__(self, folder: Path) -> None:
        """Open the files.

        Raises:
            WeightsUnusable: there are none, or one is broken.
        """
        self._stack = ExitStack()
        self._home: dict[str, Any] = {}
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise WeightsUnusable(
                f"{folder} holds no safetensors files; other formats can run code and are not read."
            )
        for file in files:
            try:
                opened = self._stack.enter_context(safe_open(file, framework="pt"))
            except (SafetensorError, OSError) as error:
                self._stack.close()
                raise WeightsUnusable(f"{file} is broken or incomplete: {error}") from error
            self._home.update(dict.fromkeys(opened.keys(), opened))

    def __enter__(self) -> "Tensors":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __contains__(self, name: str) -> bool:
        return name in self._home

    def __iter__(self) -> Iterator[str]:
        return iter(self._home)

    def quantised(self, name: str, shape: tuple[int, ...]) -> Quantised | None:
        """One matrix in the groups of the GGUF file that it came from; None if it had none.

        Raises:
            WeightsUnusable: it has another shape than the configuration says.
        """
        file = self._home.get(f"{name}.scales")
        if file is None:
            return None
        stored = {
            part: file.get_tensor(f"{name}.{part}")
            for part in ("codes", "scales", "least")
            if f"{name}.{part}" in self._home
        }
        matrix = Quantised.from_stored(stored)
        if tuple(matrix.codes.shape) != shape:
            raise WeightsUnusable(
                f"The tensor {name} is {tuple(matrix.codes.shape)}; the configuration says {shape}."
            )
        return matrix

    def get(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """One tensor.

        Raises:
            WeightsUnusable: it is missing or has another shape than the configuration says.
        """
        if name not in self._home:
            raise WeightsUnusable(f"The model's files lack the tensor {name}.")
        tensor: torch.Tensor = self._home[name].get_tensor(name)
        if tensor.dtype not in _WEIGHT_DTYPES:
            raise WeightsUnusable(
                f"The tensor {name} holds {tensor.dtype}, which needs scales that are not read: "
                "take the model's 16-bit version, or a GGUF file."
            )
        if tuple(tensor.shape) != shape:
            raise WeightsUnusable(
                f"The tensor {name} is {tuple(tensor.shape)}; the configuration says {shape}."
            )
        return tensor
