"""Search by meaning: a FAISS index that is derived from the database and never trusted alone."""

import hashlib
import json
import math
import os
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
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


# Up to here every vector is compared (7 ms at 384 numbers on two cores); beyond, they are sorted
# into lists around centres, and a question looks into the nearest quarter of the lists. 100,000
# compared one by one take 36 ms.
FLAT_PASSAGES = 20_000
_LOOKED_INTO = 4
_TRAINING_PASSAGES_PER_LIST = 64
# What all passages are like is measured on so many of them, and not at all on fewer than a few.
_SAMPLED = 500
_FEW = 50


class VectorIndex:
    """Inner products over the vectors of ready documents, by passage id. Thread-safe.

    Search waits for nothing that takes long: what is removed is only marked, until `compact` makes
    an index without it beside the one that answers; training and saving happen beside it as well.
    An id is never used twice.

    Kept at `index.faiss` with `index.json` saying what it was built of. The file may be missing
    or older than the database at any moment: then `load` refuses it and it is built again.
    """

    def __init__(self, folder: Path, fingerprint: str, dim: int) -> None:
        import faiss

        self._faiss: Any = faiss
        self.fingerprint = fingerprint
        self.dim = dim
        self._file = folder / "index.faiss"
        # Held by whoever changes the index, for as long as that takes; and for the moments in which
        # the index is asked, or another one takes its place.
        self._changing = threading.RLock()
        self._lock = threading.Lock()
        self._index: Any = self._flat()
        self._removed: frozenset[int] = frozenset()
        self._dirty = True
        # What the passages that an owner sees are like, until the index changes.
        self._samples: dict[str, NDArray[np.float32]] = {}

    def _flat(self) -> Any:
        return self._faiss.IndexIDMap2(self._faiss.IndexFlatIP(self.dim))

    def ids(self) -> list[int]:
        with self._lock:
            return [int(id) for id in self._kept(self._index, self._removed)]

    def _kept(self, index: Any, removed: frozenset[int]) -> NDArray[np.int64]:
        ids = self._ids(index)
        return ids[~np.isin(ids, _array(removed))] if removed else ids

    def _ids(self, index: Any) -> NDArray[np.int64]:
        lists = self._lists(index)
        if lists is None:
            ids: NDArray[np.int64] = self._faiss.vector_to_array(index.id_map)
            return ids
        parts = [
            self._faiss.rev_swig_ptr(lists.get_ids(number), lists.list_size(number)).copy()
            for number in range(lists.nlist)
            if lists.list_size(number)
        ]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def _lists(self, index: Any) -> Any:
        """Its inverted lists, or None for a flat index."""
        inverted = self._faiss.try_extract_index_ivf(index)
        return None if inverted is None else inverted.invlists

    def load(self, expected: Sequence[int]) -> bool:
        """Read the file if it holds exactly the `expected` passages of this embedder."""
        identity = IndexIdentity.of("", self.fingerprint, self.dim, expected)
        return self.load_as(identity)

    def load_as(self, identity: IndexIdentity) -> bool:
        """Read the file if that is what it holds."""
        described = _described(self._file.parent)
        if not identity.holds_same(_identity(described)):
            return False
        try:
            data = self._file.read_bytes()
            # Native code is to read nothing that it has not written.
            if hashlib.sha256(data).hexdigest() != described.get("sha256"):
                return False
            index = self._faiss.deserialize_index(np.frombuffer(data, np.uint8))
        except (OSError, RuntimeError):
            return False
        # The little file may be right and the big one another: ask the index itself.
        found = IndexIdentity.of("", self.fingerprint, index.d, self._ids(index))
        if not identity.holds_same(found):
            return False
        self._take(index, self._removed)
        self._dirty = False
        return True

    def _take(self, index: Any, without: frozenset[int]) -> None:
        """Let another index answer, which was made without those that were removed till then."""
        with self._lock:
            self._index, self._dirty, self._samples = index, True, {}
            self._removed -= without

    def rebuild(self, vectors: Iterable[tuple[int, bytes]]) -> None:
        """Forget everything and take these (passage id, vector) instead."""
        with self._changing:
            removed = self._removed
            self._take(self._built(*self._matrix(vectors)), removed)

    def add(self, vectors: Iterable[tuple[int, bytes]]) -> None:
        """Take in more passages. Once there are many for its lists, the index is made anew beside
        the one that goes on answering."""
        ids, matrix = self._matrix(vectors)
        if not len(ids):
            return
        with self._changing:
            with self._lock:
                self._index.add_with_ids(matrix, ids)
                self._dirty, self._samples = True, {}
                index, removed = self._index, self._removed
            lists = self._lists(index)
            if list_count(index.ntotal) > (2 * lists.nlist if lists else 0):
                kept = self._kept(index, removed)
                self._take(self._built(kept, index.reconstruct_batch(kept)), removed)

    def _matrix(
        self, vectors: Iterable[tuple[int, bytes]]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        rows = list(vectors)
        matrix = np.frombuffer(b"".join(v for _, v in rows), dtype=VECTOR_DTYPE)
        ids = np.array([id for id, _ in rows], dtype=np.int64)
        return ids, matrix.reshape(len(rows), self.dim).astype(np.float32)

    def _built(self, ids: NDArray[np.int64], matrix: NDArray[np.float32]) -> Any:
        """An index of these vectors [passages, dim]: flat, or in lists if they are many."""
        count = list_count(len(ids))
        if not count:
            index = self._flat()
        else:
            centres = self._faiss.IndexFlatIP(self.dim)
            inner = self._faiss.METRIC_INNER_PRODUCT
            index = self._faiss.IndexIVFFlat(centres, self.dim, count, inner)
            index.cp.max_points_per_centroid = _TRAINING_PASSAGES_PER_LIST
            index.train(matrix)
            # Without it, neither removing nor looking up a passage by its id would be quick.
            index.set_direct_map_type(self._faiss.DirectMap.Hashtable)
            index.nprobe = max(1, count // _LOOKED_INTO)
        if len(ids):
            index.add_with_ids(matrix, ids)
        return index

    def remove(self, ids: Sequence[int]) -> None:
        """Never find these again; their vectors go with `compact`."""
        with self._lock:
            self._dirty, self._samples = True, {}
            self._removed |= frozenset(ids)

    def compact(self) -> None:
        """Let go of the vectors of what was removed."""
        with self._changing:
            with self._lock:
                index, removed = self._index, self._removed
            if not removed:
                return
            if self._lists(index) is None:
                kept = self._kept(index, removed)
                smaller = self._built(kept, index.reconstruct_batch(kept))
            else:  # the lists stay as they were trained
                smaller = self._faiss.clone_index(index)
                smaller.remove_ids(_array(removed))
            self._take(smaller, removed)

    def search(
        self, vector: NDArray[np.float32], limit: int, allowed: Sequence[int] | None = None
    ) -> list[DenseHit]:
        """Passages by falling cosine; `allowed` narrows the search to some of them."""
        with self._lock:
            if not self._index.ntotal:
                return []
            parameters = self._narrowed(allowed)
            cosines, ids = self._index.search(vector.reshape(1, self.dim), limit, params=parameters)
        pairs = zip(ids[0].tolist(), cosines[0].tolist(), strict=True)
        return [DenseHit(id, cosine) for id, cosine in pairs if id >= 0]

    def _narrowed(self, allowed: Sequence[int] | None) -> Any:
        """To look for some passages only, in every list (few lists may hold none of them), or for
        all that were not removed."""
        faiss, lists = self._faiss, self._lists(self._index)
        if allowed is not None:
            selector = faiss.IDSelectorBatch(_array(frozenset(allowed) - self._removed))
        elif self._removed:
            selector = faiss.IDSelectorNot(faiss.IDSelectorBatch(_array(self._removed)))
        else:
            return None
        if lists is None:
            return faiss.SearchParameters(sel=selector)
        count = lists.nlist if allowed is not None else self._index.nprobe
        return faiss.SearchParametersIVF(sel=selector, nprobe=count)

    def cosines(self, vector: NDArray[np.float32], ids: Iterable[int]) -> dict[int, float]:
        """How near these passages are, those of them that the index holds."""
        found = {}
        with self._lock:
            for id in frozenset(ids) - self._removed:
                try:
                    found[id] = float(self._index.reconstruct(id) @ vector)
                except RuntimeError:  # there is no other way to ask whether it is there
                    continue
        return found

    def stands_out(
        self,
        vector: NDArray[np.float32],
        cosine: float,
        owner: str,
        visible: Callable[[], Collection[int] | None],
    ) -> float | None:
        """By how many standard deviations a cosine is above the mean of what an owner sees.

        Measured on a sample of the passages that are `visible` (None: all), which is asked for
        when the index has changed; None if they are too few to say.
        """
        sample = self._samples.get(owner)
        if sample is None:
            sample = self._sampled(owner, visible())
        if len(sample) < _FEW:
            return None
        cosines = sample @ vector
        return float((cosine - cosines.mean()) / (cosines.std() or 1.0))

    def _sampled(self, owner: str, visible: Collection[int] | None) -> NDArray[np.float32]:
        """Vectors [passages, dim], the same ones whatever else the index holds."""
        with self._lock:
            ids = np.sort(self._kept(self._index, self._removed))
            if visible is not None:
                ids = np.intersect1d(ids, _array(visible))
            ids = ids[:: max(1, len(ids) // _SAMPLED)]
            sample = np.empty((0, self.dim), np.float32)
            if len(ids):
                sample = self._index.reconstruct_batch(ids)
            self._samples[owner] = sample
        return sample

    def save(self, model: str) -> None:
        """Write the file if something changed, and that its embedder is found at `model`.

        Raises OSError; the old file is gone then.
        """
        with self._changing:
            if not self._dirty:
                return
            self.compact()
            index, self._dirty = self._index, False  # what is removed from here on is written next
            try:
                self._write(index, model)
            except OSError:
                self._dirty = True
                raise

    def _write(self, index: Any, model: str) -> None:
        data = self._faiss.serialize_index(index).tobytes()
        identity = IndexIdentity.of(model, self.fingerprint, self.dim, self._ids(index))
        described = identity._asdict() | {"sha256": hashlib.sha256(data).hexdigest()}
        # Without its description an index is not read, so a kill in between does no harm.
        discard(self._file.parent)
        _write(self._file, data)
        _write(self._file.with_suffix(".json"), json.dumps(described).encode())


def _array(ids: Collection[int]) -> NDArray[np.int64]:
    return np.fromiter(ids, dtype=np.int64, count=len(ids))


def list_count(passages: int) -> int:
    """Into how many lists so many passages are sorted, a power of two; 0 for none at all."""
    return 0 if passages < FLAT_PASSAGES else 2 ** round(math.log2(2 * math.sqrt(passages)))


def stored_identity(folder: Path) -> IndexIdentity | None:
    """What the index file in a folder says it was built of; None if there is none to read."""
    return _identity(_described(folder))


def _described(folder: Path) -> dict[str, Any]:
    try:
        described = json.loads((folder / "index.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return described if isinstance(described, dict) else {}


def _identity(described: dict[str, Any]) -> IndexIdentity | None:
    try:
        return IndexIdentity(*(described[field] for field in IndexIdentity._fields))
    except KeyError:
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
