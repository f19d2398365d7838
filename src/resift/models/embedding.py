"""A bi-encoder on this machine: texts to unit vectors for first-stage search and cosine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from resift._internal.arrays import Array, np
from resift.errors import InputError
from resift.models.engine import Job, Task, shared_engine
from resift.models.first_use import OnFirstUse
from resift.models.loading import check_kind, load
from resift.models.windows import spans
from resift.validation import check_arguments

DEFAULT_EMBEDDER = "BAAI/bge-small-en-v1.5"

EmbedKind = Literal["query", "document"]


class Embedder:
    """Turns texts into float32 unit vectors. The model is loaded at the first use and then shared.

    A text longer than the model's window gets the mean of its windows' vectors. Raises ValueError for a
    model that is not allowed.
    """

    @check_arguments
    def __init__(self, model_name: str = DEFAULT_EMBEDDER, *, folder: Path | str | None = None) -> None:
        check_kind(model_name, "bi-encoder")
        self.model_name = model_name
        self._loaded = OnFirstUse(lambda: load(model_name, kind="bi-encoder", folder=folder))

    @property
    def dimension(self) -> int:
        """Length of the vectors; loads the model."""
        return int(self._loaded().width)

    async def embed(self, texts: Sequence[str], *, kind: EmbedKind) -> Array:
        """Return an array of shape (len(texts), dimension); queries get the model's own prefix."""
        await asyncio.to_thread(self._loaded)
        found, job = self._start(texts, kind)
        await asyncio.wrap_future(job.future)
        return self._stacked(texts, found)

    def embed_sync(self, texts: Sequence[str], *, kind: EmbedKind) -> Array:
        """Do the same and wait, from any thread."""
        found, job = self._start(texts, kind)
        job.future.result()
        return self._stacked(texts, found)

    def count_tokens(self, texts: Sequence[str]) -> int:
        """Return how many tokens the texts have together, without prefix and special tokens."""
        tokenizer = self._loaded().tokenizer
        return sum(map(tokenizer.count, texts))

    def _start(self, texts: Sequence[str], kind: EmbedKind) -> tuple[dict[str, Array], Job]:
        if isinstance(texts, (str, bytes)) or not isinstance(texts, Sequence):
            raise InputError(f"texts is a {type(texts).__name__}; pass a list of texts.")
        if not all(isinstance(text, str) for text in texts):
            raise InputError("One of the texts is no string; pass a list of texts.")
        if kind not in ("query", "document"):
            raise InputError(f"kind is {kind!r}; pass 'query' or 'document'.")
        spec = self._loaded().spec
        prefix = spec.query_prefix if kind == "query" else spec.document_prefix
        found: dict[str, Array] = {}
        # Longest first: the last worker to finish then has a short text.
        unique = sorted(dict.fromkeys(texts), key=len, reverse=True)
        tasks: list[Task] = [partial(self._one, text, prefix, found) for text in unique]
        return found, shared_engine().submit(tasks)

    def _one(self, text: str, prefix: str, found: dict[str, Array]) -> None:
        model = self._loaded()
        ids = model.tokenizer.ids(prefix + text) or []
        template = model.tokenizer.template
        budget = model.spec.max_length - len(template.before) - len(template.after)
        # Only the first token's state is read of a model that pools by it.
        first = 1 if model.spec.pooling == "cls" else None
        vectors = [
            _unit(_pooled(model.forward(*template.single(ids[start:end]), first=first), model.spec.pooling))
            for start, end in spans(len(ids), budget)
        ]
        found[text] = _unit(sum(vectors[1:], start=vectors[0]))

    def _stacked(self, texts: Sequence[str], found: dict[str, Array]) -> Array:
        # An empty array still has its dimension, so that callers can stack it.
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        return np.stack([found[text] for text in texts]).astype(np.float32)


def _pooled(states: Array, pooling: str) -> Array:
    pooled: Array = states[0] if pooling == "cls" else states.mean(axis=0)
    return pooled


def _unit(vector: Array) -> Array:
    return vector / max(float(np.linalg.norm(vector)), 1e-12)
