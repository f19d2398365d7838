"""Embed in bulk: texts become vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from resift._internal.sync import run_sync
from resift.batch.arrow import RecordBatch
from resift.batch.work import (
    NamesColumns,
    each_row,
    load_model,
    model_digest,
    text_in,
    text_or_none,
    to_batch,
)
from resift.external.records import check_text_keys, read_text
from resift.models.embedder import DEFAULT_EMBEDDER, Embedder, EmbedKind
from resift.types import JsonMapping, JsonObject

COLUMNS = {"id": "text", "vector": "vector"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedWork(NamesColumns):
    """Rows with text, and perhaps an `id`. Each becomes its `vector` (float32, of length one).

    The text is the title and every other text field of a row, joined, or the fields named by `text_keys`.
    """

    model: str = DEFAULT_EMBEDDER
    text_keys: Sequence[str] | str | None = None
    embed_kind: EmbedKind = "document"

    kind = "embed"

    def describe(self) -> JsonObject:
        """Return the options and the digest of the model."""
        return {
            "text_keys": list(check_text_keys(self.text_keys) or ()),
            "as": self.embed_kind,
            **model_digest(self.model),
        }

    def __call__(self, batch: RecordBatch) -> RecordBatch:
        """Return the batch of vectors."""
        rows, keys = batch.to_pylist(), check_text_keys(self.text_keys)
        good = [text for row in rows if (text := read_text(row, keys).text).strip()]
        # Texts that are texts go to the model together: its workers then never wait for one another.
        vectors = dict(zip(good, embedded(good, self.model, self.embed_kind), strict=True))

        def answer(row: JsonMapping) -> list[JsonObject]:
            text = text_in(row, keys).text
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
