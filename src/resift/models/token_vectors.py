"""Token vectors for late interaction: one unit vector per token, kept in memory, storable without pickle.

MaxSim is Khattab & Zaharia, "ColBERT" (SIGIR 2020): for each token of the query the best match in the
document, summed.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from resift._internal.arrays import Array, np
from resift._internal.atomic_files import atomic_file
from resift._internal.forking import ForkSafeLock
from resift.errors import DataFormatError
from resift.models.loading import Model
from resift.models.tokenizer import replace_surrogates, split_windows
from resift.types import JsonMapping, JsonObject

GiveUp = Callable[[], bool]
"""Asked between two pieces of work: True ends it."""

_FORMAT = "resift token vectors 1"


def max_sim(query: Array, document: Array) -> float:
    """Return the sum over query tokens of the best cosine with a document token."""
    return float((query @ document.T).max(axis=1).sum(dtype="float64"))


class TokenEncoder:
    """Turns texts into arrays of shape (tokens, width) with unit rows."""

    def __init__(self, model: Model, *, max_windows: int) -> None:
        self.model = model
        self.max_windows = max_windows

    @property
    def most_tokens(self) -> int:
        """How many vectors a text has of which only the first windows were read."""
        return self.max_windows * self.model.spec.max_length

    def encode(
        self, text: str, kind: Literal["query", "document"], *, give_up: GiveUp | None = None
    ) -> Array | None:
        """Return a text's vectors, of its first windows if it is very long; None when told to give up."""
        spec, template = self.model.spec, self.model.tokenizer.template
        marker = spec.query_marker_id if kind == "query" else spec.document_marker_id
        prefix = spec.query_prefix if kind == "query" else spec.document_prefix
        ids = self.model.tokenizer.ids(prefix + text, give_up=give_up)
        if ids is None:
            return None
        budget = spec.max_length - len(template.before) - len(template.after) - (marker is not None)
        states: list[Array] = []
        for start, end in split_windows(len(ids), budget)[: self.max_windows]:
            if states and give_up is not None and give_up():
                return None
            states.append(self.model.forward(*template.single(ids[start:end], marker=marker)))
        vectors = np.concatenate(states).astype(np.float32)
        lengths: Array = np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors / np.maximum(lengths, 1e-12)


class VectorCache:
    """Document vectors by text, the least recently used dropped first. Safe to share between threads."""

    def __init__(self, limit_mb: float, *, model: str) -> None:
        self._limit = int(limit_mb * 1_000_000)
        self._model = model
        self._size = 0
        self._kept: OrderedDict[str, Array] = OrderedDict()
        self._lock = ForkSafeLock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, text: str) -> Array | None:
        """Return a text's vectors or None."""
        key = _key(text)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, text: str, vectors: Array) -> None:
        """Keep a text's vectors."""
        self._put(_key(text), vectors)

    def save(self, path: Path | str) -> None:
        """Write everything kept to one .npz file; texts themselves are not in it."""
        with self._lock:
            kept = dict(self._kept)
        head = {"format": _FORMAT, "model": self._model, "keys": list(kept)}
        arrays: JsonObject = {f"v{number}": vectors for number, vectors in enumerate(kept.values())}
        written = np.frombuffer(json.dumps(head).encode(), dtype=np.uint8)
        with atomic_file(path) as file:
            np.savez(file, head=written, **arrays)

    def load(self, path: Path | str) -> int:
        """Take over what `save` wrote and return how many texts that were; never unpickles."""
        try:
            # Opened here: numpy leaves a damaged file open.
            with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as stored:
                head = json.loads(stored["head"].tobytes())
                found = [(key, stored[f"v{number}"]) for number, key in enumerate(head["keys"])]
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            EOFError,
            RuntimeError,
            zipfile.BadZipFile,
            zlib.error,
        ) as exc:
            raise DataFormatError(
                f"not a file of token vectors: {type(exc).__name__}", file=str(path)
            ) from exc
        self._refuse_others(head, found, str(path))
        for key, vectors in found:
            self._put(key, vectors)
        return len(found)

    def _refuse_others(self, head: JsonMapping, found: Sequence[tuple[str, Array]], path: str) -> None:
        if head.get("format") != _FORMAT or head.get("model") != self._model:
            held = f"{head.get('format')!r} of {head.get('model')!r}"
            raise DataFormatError(f"holds {held}; needed: {_FORMAT!r} of {self._model!r}", file=path)
        # A file of others may hold anything; MaxSim would broadcast over wrong shapes in silence.
        if any(array.ndim != 2 or array.dtype != "float32" for _, array in found):
            raise DataFormatError("holds arrays that are no float32 matrices", file=path)

    def _put(self, key: str, vectors: Array) -> None:
        with self._lock:
            old = self._kept.pop(key, None)
            self._size += vectors.nbytes - (old.nbytes if old is not None else 0)
            self._kept[key] = vectors
            while self._size > self._limit and self._kept:
                self._size -= self._kept.popitem(last=False)[1].nbytes


def _key(text: str) -> str:
    return hashlib.sha256(replace_surrogates(text).encode()).hexdigest()
