"""Search by meaning: a FAISS index that is derived from the database and never trusted alone."""

import hashlib
import json
import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

VECTOR_DTYPE = np.dtype("<f4")


def to_bytes(vector: NDArray[np.float32]) -> bytes:
    return vector.astype(VECTOR_DTYPE, copy=False).tobytes()


class DenseHit(NamedTuple):
    id: int
    cosine: float


class IndexIdentity(NamedTuple):
    """What an index was built of: by which embedder, found at `model`, and of which passages."""

    model: str
    fingerprint: str
    dim: int
    passages: int
    digest: str

    @classmethod
    def of(cls, model: str, fingerprint: str, dim: int, ids: Iterable[int]) -> "IndexIdentity":
        array = np.sort(np.fromiter(ids, dtype="<i8"))
        digest = hashlib.sha256(array.tobytes()).hexdigest()
        return cls(model, fingerprint, dim, len(array), digest)

    def holds_same(self, other: "IndexIdentity | None") -> bool:
        """Whether both are of the same passages and vectors, wherever the model was."""
        return other is not None and self[1:] == other[1:]


class VectorIndex:
    """Inner products over the vectors of ready documents, by passage id. Thread-safe.

    Kept at `index.faiss` with `index.json` saying what it was built of. The file may be missing
    or older than the database at any moment: then `load` refuses it and it is built again.
    """

    def __init__(self, folder: Path, fingerprint: str, dim: int) -> None:
        import faiss

        self._faiss: Any = faiss
        self.fingerprint = fingerprint
        self.dim = dim
        self._file = folder / "index.faiss"
        self._lock = threading.Lock()
        self._index: Any = self._empty()
        self._dirty = True

    def _empty(self) -> Any:
        return self._faiss.IndexIDMap2(self._faiss.IndexFlatIP(self.dim))

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def ids(self) -> list[int]:
        with self._lock:
            return self._ids()

    def _ids(self) -> list[int]:
        ids: list[int] = self._faiss.vector_to_array(self._index.id_map).tolist()
        return ids

    def load(self, expected: Sequence[int]) -> bool:
        """Read the file if it holds exactly the `expected` passages of this embedder."""
        identity = IndexIdentity.of("", self.fingerprint, self.dim, expected)
        return self.load_as(identity)

    def load_as(self, identity: IndexIdentity) -> bool:
        """Read the file if that is what it holds."""
        if not identity.holds_same(stored_identity(self._file.parent)):
            return False
        try:
            index = self._faiss.read_index(str(self._file))
        except RuntimeError:
            return False
        with self._lock:
            self._index, self._dirty = index, False
            # The little file may be right and the big one another: ask the index itself.
            found = IndexIdentity.of("", self.fingerprint, index.d, self._ids())
            if not identity.holds_same(found):
                self._index, self._dirty = self._empty(), True
                return False
        return True

    def rebuild(self, vectors: Iterable[tuple[int, bytes]]) -> None:
        """Forget everything and take these (passage id, vector) instead."""
        with self._lock:
            self._index = self._empty()
            self._add(vectors)

    def add(self, vectors: Iterable[tuple[int, bytes]]) -> None:
        with self._lock:
            self._add(vectors)

    def _add(self, vectors: Iterable[tuple[int, bytes]]) -> None:
        self._dirty = True
        rows = list(vectors)
        if not rows:
            return
        matrix = np.frombuffer(b"".join(v for _, v in rows), dtype=VECTOR_DTYPE)
        ids = np.array([id for id, _ in rows], dtype=np.int64)
        self._index.add_with_ids(matrix.reshape(len(rows), self.dim).astype(np.float32), ids)

    def remove(self, ids: Sequence[int]) -> None:
        with self._lock:
            self._dirty = True
            self._index.remove_ids(np.array(ids, dtype=np.int64))

    def search(
        self, vector: NDArray[np.float32], limit: int, allowed: Sequence[int] | None = None
    ) -> list[DenseHit]:
        """Passages by falling cosine; `allowed` narrows the search to some of them."""
        parameters = None
        if allowed is not None:
            selector = self._faiss.IDSelectorBatch(np.array(allowed, dtype=np.int64))
            parameters = self._faiss.SearchParameters(sel=selector)
        with self._lock:
            if not self._index.ntotal:
                return []
            cosines, ids = self._index.search(vector.reshape(1, self.dim), limit, params=parameters)
        pairs = zip(ids[0].tolist(), cosines[0].tolist(), strict=True)
        return [DenseHit(id, cosine) for id, cosine in pairs if id >= 0]

    def save(self, model: str) -> None:
        """Write the file if something changed, and that its embedder is found at `model`.

        Raises OSError; the old file is gone then.
        """
        with self._lock:
            if not self._dirty:
                return
            identity = IndexIdentity.of(model, self.fingerprint, self.dim, self._ids())
            # Without its description an index is not read, so a kill in between does no harm.
            discard(self._file.parent)
            data = self._faiss.serialize_index(self._index).tobytes()
            _write(self._file, data)
            _write(self._file.with_suffix(".json"), json.dumps(identity._asdict()).encode())
            self._dirty = False


def stored_identity(folder: Path) -> IndexIdentity | None:
    """What the index file in a folder says it was built of; None if there is none to read."""
    try:
        return IndexIdentity(**json.loads((folder / "index.json").read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def discard(folder: Path) -> None:
    """Delete the index file; it can always be built again."""
    (folder / "index.json").unlink(missing_ok=True)
    (folder / "index.faiss").unlink(missing_ok=True)


def _write(path: Path, data: bytes) -> None:
    temporary = path.with_suffix(path.suffix + ".new")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
