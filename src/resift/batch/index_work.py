"""Index in bulk: documents are cut into chunks and embedded; `loading` then puts them into a store."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from resift.batch.arrow import RecordBatch
from resift.batch.embed import embedded
from resift.batch.work import ERROR, NamesColumns, each_row, kind_of, model_digest, text_or_none, to_batch
from resift.errors import InputError
from resift.ingest.chunking import ChunkSize, chunks
from resift.models.embedding import DEFAULT_EMBEDDER
from resift.types import JsonMapping, JsonObject, to_json

COLUMNS = {"id": "text", "text": "text", "metadata": "text", "vector": "vector"}


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexWork(NamesColumns):
    """Rows with a `text`, and perhaps `id`, `title` and more, which becomes metadata.

    Each becomes one row per chunk: `id`, `text`, `metadata` (JSON) and `vector`. A chunk is named by its
    document's id and its number; a document without an id by its content.
    """

    model: str = DEFAULT_EMBEDDER
    text_column: str = "text"
    words: int = ChunkSize().words
    overlap: int = ChunkSize().overlap

    kind = "index"

    def describe(self) -> JsonObject:
        """Return the options and the digest of the model."""
        size = {"words": self.words, "overlap": self.overlap}
        return {"text": self.text_column, **size, **model_digest(self.model)}

    def __call__(self, batch: RecordBatch) -> RecordBatch:
        """Return the batch of chunks with their vectors."""
        rows = each_row(batch.to_pylist(), self._chunks)
        made = [row for row in rows if ERROR not in row]
        for row, vector in zip(made, embedded([row["text"] for row in made], self.model), strict=True):
            row["vector"] = vector
        return to_batch(rows, COLUMNS)

    def _chunks(self, row: JsonMapping) -> list[JsonObject]:
        text = row.get(self.text_column)
        if not isinstance(text, str) or not text.strip():
            what = "empty" if isinstance(text, str) else kind_of(text)
            raise InputError(f"{self.text_column} is {what}; a text is needed.")
        title = str(row.get("title") or "")
        known = (self.text_column, "id", "metadata", "row")
        extra = {key: value for key, value in row.items() if key not in known and value is not None}
        held = row.get("metadata")
        nested = held if isinstance(held, Mapping) else {}
        # In a batch every row has the keys of all, null where it has none.
        metadata = {**{key: value for key, value in nested.items() if value is not None}, **extra}
        id = text_or_none(row.get("id")) or _content_id(text, metadata)
        pieces = list(chunks(text, ChunkSize(self.words, self.overlap)))
        return [
            {
                "id": id if len(pieces) == 1 else f"{id}#{number}",
                "text": f"{title}\n\n{piece}" if title else piece,
                "metadata": to_json({**metadata, **({"chunk": number} if len(pieces) > 1 else {})}),
            }
            for number, piece in enumerate(pieces, start=1)
        ]


def _content_id(text: str, metadata: JsonMapping) -> str:
    # Metadata too: the same words at two addresses are two documents.
    held = f"{text}\0{to_json(metadata)}" if metadata else text
    return hashlib.sha256(held.encode()).hexdigest()[:16]
