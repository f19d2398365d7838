"""Late interaction (MaxSim): the sum, over the query's tokens, of the best match in the document (ColBERT, 2020)."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from resift._internal.arrays import Array, np
from resift._internal.forking import ForkSafeLock
from resift.deadline import Deadline
from resift.models.engine import Task, shared_engine, wait_for_job
from resift.models.loading import Lazy, ModelFolder, load, model_option
from resift.models.pairs import MAX_WINDOWS, Progress, report_progress, scored_in_time
from resift.models.registry import check_kind
from resift.models.tokenizer import check_language, replace_surrogates, split_windows
from resift.rerankers.rescore import FusesThenScores
from resift.types import Hit, Scores
from resift.validation import check_arguments, check_number

DEFAULT_MODEL = "answerdotai/answerai-colbert-small-v1"


@dataclass(frozen=True, kw_only=True)
class LateInteractionOptions(ModelFolder):
    """Options of late interaction in a pipeline file."""

    model_name: str = model_option("late-interaction", default=DEFAULT_MODEL)


class LateInteractionReranker(FusesThenScores):
    """Orders hits by MaxSim; cached documents are not encoded again. ValueError for a model that is not allowed."""

    Options = LateInteractionOptions
    name = "late-interaction"
    pointwise = True

    @check_arguments
    def __init__(
        self,
        model_name: str = DEFAULT_MODEL,
        *,
        folder: Path | str | None = None,
        max_windows: int = MAX_WINDOWS,
        cache_mb: float = 128,
        on_progress: Progress | None = None,
    ) -> None:
        spec = check_kind(model_name, "late-interaction")
        check_number(max_windows, "max_windows", gt=0)
        check_number(cache_mb, "cache_mb", gt=-1, lt=1e9)
        self.model_name = model_name
        self.on_progress = on_progress
        self.info = spec.scorer_info(self.name)
        self.revision = f"{spec.revision} {max_windows}"
        self.vectors = VectorCache(cache_mb)
        self._max_windows = max_windows
        self._model = Lazy(lambda: load(model_name, kind="late-interaction", folder=folder))

    async def score(self, query: str, hits: Sequence[Hit], *, deadline: Deadline) -> Scores:
        """Return one MaxSim score per hit, or None for hits that were not scored before the deadline."""
        model = await asyncio.to_thread(self._model)
        texts = list(dict.fromkeys(hit.text for hit in hits))
        check_language(model.tokenizer, self.model_name, query, texts)
        scores: dict[str, float] = {}
        tokens: dict[str, int] = {}
        query_tokens = 0
        lock = threading.Lock()

        def encode_query() -> list[Task]:
            nonlocal query_tokens
            query_vectors = self._encode(query, "query")
            if query_vectors is None:
                return []
            query_tokens = len(query_vectors)
            # Without a deadline, longest first balances the load best.
            order = texts if deadline.timeout_s is not None else sorted(texts, key=len, reverse=True)
            return [partial(compare, query_vectors, text) for text in order]

        def compare(query_vectors: Array, text: str) -> None:
            vectors = self._encode_document(text, give_up=lambda: deadline.expired)
            if vectors is None:
                return
            with lock:
                scores[text] = max_sim(query_vectors, vectors)
                tokens[text] = len(vectors)
                done = len(scores)
            report_progress(self.on_progress, done, len(texts))

        await wait_for_job(shared_engine().submit([encode_query], deadline=deadline))
        truncated = any(count >= self._max_windows * model.spec.max_length for count in tokens.values())
        note = f"only the first {self._max_windows} windows of the longest texts were scored" if truncated else ""
        values = [scores.get(hit.text) for hit in hits]
        total = sum(tokens.get(hit.text, 0) for hit in hits) + query_tokens
        return scored_in_time(values, self.info, note=note, tokens=total)

    @check_arguments
    def encode_documents(self, texts: Sequence[str]) -> list[Array]:
        """Return each text's token vectors, float32 of shape (tokens, width), and cache them."""
        self._model()
        vectors: dict[str, Array] = {}

        def encode(text: str) -> None:
            encoded = self._encode_document(text)
            if encoded is not None:
                vectors[text] = encoded

        tasks: list[Task] = [partial(encode, text) for text in dict.fromkeys(texts)]
        shared_engine().submit(tasks).future.result()
        return [vectors[text] for text in texts]

    def _encode_document(self, text: str, *, give_up: Callable[[], bool] | None = None) -> Array | None:
        vectors = self.vectors.get(text)
        if vectors is None:
            vectors = self._encode(text, "document", give_up=give_up)
            if vectors is not None:
                self.vectors.put(text, vectors)
        return vectors

    def _encode(
        self, text: str, kind: Literal["query", "document"], *, give_up: Callable[[], bool] | None = None
    ) -> Array | None:
        """Return the unit vectors (tokens, width) of a text's first windows, or None if `give_up` returned True."""
        model = self._model()
        spec, template = model.spec, model.tokenizer.template
        marker = spec.query_marker_id if kind == "query" else spec.document_marker_id
        prefix = spec.query_prefix if kind == "query" else spec.document_prefix
        ids = model.tokenizer.ids(prefix + text, give_up=give_up)
        if ids is None:
            return None
        budget = spec.max_length - len(template.before) - len(template.after) - (marker is not None)
        states: list[Array] = []
        for start, end in split_windows(len(ids), budget)[: self._max_windows]:
            if states and give_up is not None and give_up():
                return None
            states.append(model.forward(*template.single(ids[start:end], marker=marker)))
        vectors = np.concatenate(states).astype(np.float32)
        lengths: Array = np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors / np.maximum(lengths, 1e-12)


def max_sim(query: Array, document: Array) -> float:
    """Return the sum, over the query tokens, of the best cosine with any document token."""
    return float((query @ document.T).max(axis=1).sum(dtype="float64"))


class VectorCache:
    """Document vectors by text; the least recently used are evicted first. Thread-safe."""

    def __init__(self, limit_mb: float) -> None:
        self._limit_bytes = int(limit_mb * 1_000_000)
        self._size_bytes = 0
        self._vectors: OrderedDict[str, Array] = OrderedDict()
        self._lock = ForkSafeLock()

    def __len__(self) -> int:
        return len(self._vectors)

    def get(self, text: str) -> Array | None:
        """Return the vectors of a text, or None if they are not cached."""
        key = _digest(text)
        with self._lock:
            if key in self._vectors:
                self._vectors.move_to_end(key)
            return self._vectors.get(key)

    def put(self, text: str, vectors: Array) -> None:
        """Cache the vectors of a text."""
        key = _digest(text)
        with self._lock:
            old = self._vectors.pop(key, None)
            self._size_bytes += vectors.nbytes - (old.nbytes if old is not None else 0)
            self._vectors[key] = vectors
            while self._size_bytes > self._limit_bytes and self._vectors:
                self._size_bytes -= self._vectors.popitem(last=False)[1].nbytes


def _digest(text: str) -> str:
    return hashlib.sha256(replace_surrogates(text).encode()).hexdigest()
