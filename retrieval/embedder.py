"""Text to vectors, by a sentence-transformers model on this machine."""

import hashlib
import json
import threading
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retrieval.errors import EmbedderUnavailable

# Longer inputs cost more and are no better as passages, even where a model takes them.
MAX_TOKENS = 256
# Between two steps another thread's question gets its turn. A step holds texts of like length,
# so many that they are about this long together: a tenth of a second on two cores.
_STEP_CHARACTERS = 4_000
_STEP_TEXTS = 64
_REMEMBERED_QUESTIONS = 256
# A model knows a script if its vocabulary has this many pieces in it: English MiniLM has 27,762
# in Latin and 86 in Cyrillic; multilingual ones have tens of thousands in each.
_KNOWN_SCRIPT_PIECES = 1_000
_EDGE_BYTES = 2**20

Vectors = NDArray[np.float32]


class Embedder:
    """A model given by its folder or by the Hub id of one in the local cache. Thread-safe.

    Nothing is loaded before it is needed: paths and limits at their first use, weights (and
    torch) at the first `encode`. Everything raises EmbedderUnavailable if the model is missing.
    """

    def __init__(self, model: str, device: str = "auto") -> None:
        self.model = model
        self.device = device
        self._lock = threading.Lock()  # held while the model is loaded or runs
        self._loaded: Any = None
        # Questions that wait for the model; passages wait for them, or they would hardly get it.
        self._waiting = 0
        self._changed = threading.Condition()
        self._asked: dict[str, Vectors] = {}  # guarded by _changed

    @cached_property
    def folder(self) -> Path:
        folder = Path(self.model)
        if not folder.is_dir():
            folder = self._cached()
        if not (folder / "tokenizer.json").is_file():
            raise EmbedderUnavailable(
                f"The embedding model folder {folder} has no tokenizer.json. Fetch the model "
                "again (`python app.py fetch`) or name another one with --embedder."
            )
        return folder

    def _cached(self) -> Path:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

        try:
            return Path(snapshot_download(self.model, local_files_only=True))
        except (LocalEntryNotFoundError, HFValidationError, OSError) as error:
            raise EmbedderUnavailable(
                f"The embedding model {self.model!r} is not on this machine. "
                "Fetch it with `python app.py fetch`, or name a folder with --embedder."
            ) from error

    @property
    def tokenizer_file(self) -> Path:
        return self.folder / "tokenizer.json"

    @cached_property
    def max_tokens(self) -> int:
        """Tokens of an input that are read, special ones included."""
        limit = self._setting("sentence_bert_config.json", "max_seq_length")
        limit = limit or self._setting("config.json", "max_position_embeddings") or MAX_TOKENS
        return min(int(limit), MAX_TOKENS)

    @cached_property
    def dim(self) -> int:
        """Numbers in a vector."""
        known = self._setting("1_Pooling/config.json", "word_embedding_dimension")
        dense = (self.folder / "2_Dense").is_dir()
        if known and not dense:
            return int(known)
        return int(self._model().get_embedding_dimension())

    @cached_property
    def fingerprint(self) -> str:
        """Changes whenever another model, or another version of it, is in the folder."""
        digest = hashlib.sha256()
        for path in sorted(self.folder.rglob("*")):
            if path.suffix not in (".json", ".txt", ".safetensors", ".bin", ".model"):
                continue
            size = path.stat().st_size
            digest.update(f"{path.relative_to(self.folder)}\0{size}\0".encode())
            with path.open("rb") as file:
                digest.update(file.read(_EDGE_BYTES))
                # The ends of big weights are enough to tell two models apart, and quick.
                if size > 2 * _EDGE_BYTES:
                    file.seek(-_EDGE_BYTES, 2)
                digest.update(file.read())
        return digest.hexdigest()

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(self.tokenizer_file))
        # The file may say "cut and fill to 128"; counting needs the true length.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    def reads_whole(self, texts: Sequence[str]) -> bool:
        """Whether none of the texts is longer than what the model reads of one."""
        encoded = self._tokenizer.encode_batch(list(texts))
        return all(len(text.ids) <= self.max_tokens for text in encoded)

    @cached_property
    def _scripts(self) -> frozenset[str]:
        counts: Counter[str] = Counter()
        for piece in self._tokenizer.get_vocab():
            counts.update({script for script in map(_script, piece) if script})
        return frozenset(s for s, count in counts.items() if count >= _KNOWN_SCRIPT_PIECES)

    def handles(self, text: str) -> bool:
        """Whether the model knows the script that most of a text's letters are in."""
        counts = Counter(script for script in map(_script, text) if script)
        return not counts or counts.most_common(1)[0][0] in self._scripts

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Vectors of passages, float32 [texts, dim], each of length 1."""
        vectors = np.empty((len(texts), self.dim), dtype=np.float32)
        # The shorter texts of a step are padded to its longest, so like goes with like.
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        while order:
            count = max(1, _STEP_CHARACTERS // (len(texts[order[-1]]) + 1))
            chosen = order[-min(count, _STEP_TEXTS) :]
            del order[-len(chosen) :]
            with self._changed:
                self._changed.wait_for(lambda: not self._waiting)
            vectors[chosen] = self._encode([texts[i] for i in chosen], query=False)
        return vectors

    def encode_question(self, question: str) -> Vectors:
        """The vector of a question, float32 [dim], of length 1."""
        vector: Vectors = self.encode_questions([question])[0]
        return vector

    def encode_questions(self, questions: Sequence[str]) -> Vectors:
        """Vectors of questions, float32 [questions, dim], each of length 1.

        Those asked lately are remembered: the next question of a conversation is read in the
        light of them.
        """
        with self._changed:
            known = {text: self._asked[text] for text in questions if text in self._asked}
        new = [text for text in dict.fromkeys(questions) if text not in known]
        if new:
            with self._first():
                known |= zip(new, self._encode(new, query=True), strict=True)
        with self._changed:
            for text in questions:
                self._asked.pop(text, None)
                self._asked[text] = known[text]
            while len(self._asked) > _REMEMBERED_QUESTIONS:
                del self._asked[next(iter(self._asked))]
        return np.stack([known[text] for text in questions])

    @contextmanager
    def _first(self) -> Iterator[None]:
        """Before any passages that wait as well."""
        with self._changed:
            self._waiting += 1
        try:
            yield
        finally:
            with self._changed:
                self._waiting -= 1
                self._changed.notify_all()

    def _encode(self, texts: list[str], query: bool) -> Vectors:
        model = self._model()
        encode = model.encode_query if query else model.encode_document
        with self._lock:
            vectors = encode(
                texts,
                batch_size=_STEP_TEXTS,
                normalize_embeddings=True,
                convert_to_numpy=True,
                show_progress_bar=False,
            )
        return np.ascontiguousarray(vectors, dtype=np.float32)

    def _model(self) -> Any:
        with self._lock:
            if self._loaded is None:
                self._loaded = self._load()
            return self._loaded

    def _load(self) -> Any:
        folder = self.folder
        from sentence_transformers import SentenceTransformer

        device = None if self.device == "auto" else self.device
        try:
            model = SentenceTransformer(str(folder), device=device, local_files_only=True)
        except (OSError, ValueError, KeyError) as error:
            raise EmbedderUnavailable(
                f"The embedding model in {folder} cannot be loaded ({error}). "
                "Fetch it again with `python app.py fetch`."
            ) from error
        model.max_seq_length = self.max_tokens
        return model

    def _setting(self, file: str, key: str) -> Any:
        path = self.folder / file
        if not path.is_file():
            return None
        return json.loads(path.read_text(encoding="utf-8")).get(key)


_SAME_SCRIPT = {"HIRAGANA": "CJK", "KATAKANA": "CJK", "HALFWIDTH": "CJK", "FULLWIDTH": "LATIN"}


def _script(character: str) -> str | None:
    """The script of a letter by its Unicode name; kana counts as CJK. None for anything else."""
    if not character.isalpha():
        return None
    name = unicodedata.name(character, "").partition(" ")[0]
    return _SAME_SCRIPT.get(name, name) or None
