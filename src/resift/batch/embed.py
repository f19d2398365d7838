"""Embed in bulk: texts become vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from resift.batch.arrow import RecordBatch
from resift.batch.work import (
    NamesColumns,
    each_row,
    kind_of,
    load_model,
    model_digest,
    text_or_none,
    to_batch,
)
from resift.errors import InputError
from resift.models.embedding import DEFAULT_EMBEDDER, Embedder, EmbedKind
from resift.sync import run_sync
from resift.types import JsonMapping, JsonObject

COLUMNS = {"id": "text", "vector": "vector"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedWork(NamesColumns):
    """Rows with a `text`, and perhaps an `id`. Each becomes its `vector` (float32, of length one)."""

    model: str = DEFAULT_EMBEDDER
    text_column: str = "text"
    embed_kind: EmbedKind = "document"

    kind = "embed"

    def describe(self) -> JsonObject:
        """Return the options and the digest of the model."""
        return {"text": self.text_column, "as": self.embed_kind, **model_digest(self.model)}

    def __call__(self, batch: RecordBatch) -> RecordBatch:
        """Return the batch of vectors."""
        rows = batch.to_pylist()
        texts = [row.get(self.text_column) for row in rows]
        good = [text for text in texts if isinstance(text, str)]
        # Texts that are texts go to the model together: its workers then never wait for one another.
        vectors = dict(zip(good, embedded(good, self.model, self.embed_kind), strict=True))

        def answer(row: JsonMapping) -> list[JsonObject]:
            text = row.get(self.text_column)
            if not isinstance(text, str):
                raise InputError(f"{self.text_column} is {kind_of(text)}; a text is needed.")
            return [{"id": text_or_none(row.get("id")), "vector": vectors[text]}]

        return to_batch(each_row(rows, answer), COLUMNS)


_embedders: dict[str, Embedder] = {}


def embedded(texts: list[str], model: str, kind: EmbedKind = "document") -> list[Any]:
    """Return one vector (an array) per text, by this process's embedder of that model."""
    if not texts:
        return []
    load_model(model, "bi-encoder")
    embedder = _embedders.setdefault(model, Embedder(model))
    return list(run_sync(embedder.embed(texts, kind=kind)))
