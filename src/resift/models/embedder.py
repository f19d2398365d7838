"""Embed texts as unit vectors with a local bi-encoder, for vector search and cosine similarity."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Literal

from resift._internal.arrays import Array, np
from resift.errors import InputError
from resift.models.engine import Job, Task, shared_engine
from resift.models.loading import Lazy, Model, load
from resift.models.registry import check_kind, find_spec, model_ids
from resift.models.tokenizer import split_windows
from resift.types import JsonObject, Languages
from resift.validation import Options, check_arguments

DEFAULT_EMBEDDER = "BAAI/bge-small-en-v1.5"

NO_EMBEDDER = "none"  # value of the option `embedder` that selects keyword search only

EmbedKind = Literal["query", "document"]


class Embedder:
    """Turns texts into float32 unit vectors; a long text gets the mean of its windows. Loads the model on first use."""

    @check_arguments
    def __init__(self, model_name: str = DEFAULT_EMBEDDER, *, folder: Path | str | None = None) -> None:
        check_kind(model_name, "bi-encoder")
        self.model_name = model_name
        self._model = Lazy(lambda: load(model_name, kind="bi-encoder", folder=folder))

    @cached_property
    def languages(self) -> Languages:
        """Language codes that the model was trained on, or "any"; does not load the model."""
        return find_spec(self.model_name).languages

    @property
    def dimension(self) -> int:
        """Length of the vectors; loads the model."""
        return self._model().width

    async def embed(self, texts: Sequence[str], *, kind: EmbedKind) -> Array:
        """Return an array of shape (len(texts), dimension). The model's prefix for `kind` is prepended to each text."""
        await asyncio.to_thread(self._model)
        vectors, job = self._start(texts, kind)
        await asyncio.wrap_future(job.future)
        return self._stack(texts, vectors)

    def embed_sync(self, texts: Sequence[str], *, kind: EmbedKind) -> Array:
        """Embed texts like `embed`, from synchronous code in any thread."""
        vectors, job = self._start(texts, kind)
        job.future.result()
        return self._stack(texts, vectors)

    def count_tokens(self, texts: Sequence[str]) -> int:
        """Return the total number of tokens in the texts, without prefixes and special tokens."""
        return sum(map(self._model().tokenizer.count, texts))

    def _start(self, texts: Sequence[str], kind: EmbedKind) -> tuple[dict[str, Array], Job]:
        if isinstance(texts, (str, bytes)) or not isinstance(texts, Sequence):
            raise InputError(f"texts is a {type(texts).__name__}; pass a list of texts.")
        if not all(isinstance(text, str) for text in texts):
            raise InputError("One of the texts is not a string; pass a list of texts.")
        if kind not in ("query", "document"):
            raise InputError(f"kind is {kind!r}; pass 'query' or 'document'.")
        spec = self._model().spec
        prefix = spec.query_prefix if kind == "query" else spec.document_prefix
        vectors: dict[str, Array] = {}
        # Longest first, so that the last worker to finish has a short text.
        unique = sorted(dict.fromkeys(texts), key=len, reverse=True)
        tasks: list[Task] = [partial(self._embed_text, text, prefix, vectors) for text in unique]
        return vectors, shared_engine().submit(tasks)

    def _embed_text(self, text: str, prefix: str, vectors: dict[str, Array]) -> list[Task]:
        """Embed a text that fits in one window; for a longer text, return one task per window for fairness."""
        model = self._model()
        ids, template = model.tokenizer.ids(prefix + text) or [], model.tokenizer.template
        spans = split_windows(len(ids), model.spec.max_length - len(template.before) - len(template.after))
        windows: dict[int, Array] = {}

        def embed_window(number: int) -> None:
            windows[number] = embed_tokens(model, ids[slice(*spans[number])])
            # Two workers may both see the last window finished; they compute the same mean.
            if len(windows) == len(spans):
                parts = [windows[i] for i in range(len(spans))]
                vectors[text] = _normalize(sum(parts[1:], start=parts[0]))

        if len(spans) == 1:
            embed_window(0)
            return []
        return [partial(embed_window, number) for number in range(len(spans))]

    def _stack(self, texts: Sequence[str], vectors: dict[str, Array]) -> Array:
        # An empty array still has the right width, so that callers can stack it.
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        return np.stack([vectors[text] for text in texts]).astype(np.float32)


def embed_tokens(model: Model, ids: list[int]) -> Array:
    """Return the unit vector of one window of tokens."""
    row = model.tokenizer.template.single(ids)
    if model.pools:
        return _normalize(model.forward(*row))
    use_first_token = model.spec.pooling == "cls"
    states = model.forward(*row, first=1 if use_first_token else None)
    return _normalize(states[0] if use_first_token else states.mean(axis=0))


def _normalize(vector: Array) -> Array:
    return vector / max(float(np.linalg.norm(vector)), 1e-12)


def embedding_models() -> list[str]:
    """Return the ids of all models that an embedder can use."""
    return model_ids("bi-encoder")


@dataclass(frozen=True, kw_only=True)
class EmbedderOptions(Options):
    """Base class for options that include an embedder; subclasses declare the option `embedder`."""

    def arguments(self) -> JsonObject:
        """Return the arguments, with the model name of the embedder replaced by an `Embedder`."""
        arguments = super().arguments()
        name = arguments.pop("embedder", NO_EMBEDDER)
        return arguments if name == NO_EMBEDDER else {**arguments, "embedder": Embedder(str(name))}
