"""Index in bulk: documents are cut into chunks and embedded; `loading` then puts them into a store."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from resift.batch.arrow import RecordBatch
from resift.batch.embed import embedded
from resift.batch.work import ERROR, NamesColumns, each_row, model_digest, text_in, text_or_none, to_batch
from resift.external.records import ID_KEYS, JOIN, check_text_keys, read_metadata
from resift.ingest.chunking import ChunkSize, chunks
from resift.models.embedder import DEFAULT_EMBEDDER
from resift.types import JsonMapping, JsonObject, to_json

COLUMNS = {"id": "text", "text": "text", "metadata": "text", "vector": "vector"}


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexWork(NamesColumns):
    """Rows with text, and perhaps an `id` and more, which becomes metadata.

    The text is the title and every other text field of a row, joined, or the fields named by `text_keys`.

    Each becomes one row per chunk: `id`, `text`, `metadata` (JSON) and `vector`. A chunk is named by its
    document's id and its number; a document without an id by its content.
    """

    model: str = DEFAULT_EMBEDDER
    text_keys: Sequence[str] | str | None = None
    words: int = ChunkSize().words
    overlap: int = ChunkSize().overlap

    kind = "index"

    def describe(self) -> JsonObject:
        """Return the options and the digest of the model."""
        size = {"words": self.words, "overlap": self.overlap}
        return {"text_keys": list(check_text_keys(self.text_keys) or ()), **size, **model_digest(self.model)}

    def __call__(self, batch: RecordBatch) -> RecordBatch:
        """Return the batch of chunks with their vectors."""
        rows = each_row(batch.to_pylist(), self._chunks)
        made = [row for row in rows if ERROR not in row]
        for row, vector in zip(made, embedded([row["text"] for row in made], self.model), strict=True):
            row["vector"] = vector
        return to_batch(rows, COLUMNS)

    def _chunks(self, row: JsonMapping) -> list[JsonObject]:
        text = text_in(row, check_text_keys(self.text_keys))
        # In a batch every row has the keys of all, null where it has none.
        kept = read_metadata(row, text, without=("row",))
        metadata = {key: value for key, value in kept.items() if value is not None}
        own = next((row[key] for key in ID_KEYS if row.get(key) is not None), None)
        id = text_or_none(own) or _content_id(text.body, metadata)
        pieces = list(chunks(text.body, ChunkSize(self.words, self.overlap)))
        return [
            {
                "id": id if len(pieces) == 1 else f"{id}#{number}",
                "text": f"{text.title.strip()}{JOIN}{piece}" if text.title else piece,
                "metadata": to_json({**metadata, **({"chunk": number} if len(pieces) > 1 else {})}),
            }
            for number, piece in enumerate(pieces, start=1)
        ]


def _content_id(text: str, metadata: JsonMapping) -> str:
    # Metadata too: the same words at two addresses are two documents.
    held = f"{text}\0{to_json(metadata)}" if metadata else text
    return hashlib.sha256(held.encode()).hexdigest()[:16]
