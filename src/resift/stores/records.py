"""Documents in the shape that server and file engines hold: hashed keys, filter tags, words, a vector.

Ids, metadata keys and values reach an engine only as hashes or as JSON text, so that nothing in them can
be read as syntax, and every engine filters by the same equality (`filtering.value_key`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from resift.candidates import Candidate
from resift.errors import StoreError
from resift.protocols import Embedder
from resift.stores.documents import Found, documents_from
from resift.stores.embedding import unit_vectors
from resift.stores.filtering import Where, conditions, is_scalar, value_key
from resift.stores.memory import words
from resift.types import Hit, to_json

_SPARE = 32
_CLOSE = 1e-5
_LONGEST_WORD = 100


class Record(NamedTuple):
    """One document as an engine stores it; `document` is JSON in plain ASCII and holds all of it."""

    key: str
    document: str
    tags: list[str]
    words: list[str]
    vector: Any

    @classmethod
    def of(cls, hit: Hit, vector: Any) -> Record:
        """Return the record of a document and its vector (None without an embedder)."""
        plain = json.loads(to_json({"id": hit.id, "text": hit.text, "metadata": dict(hit.metadata)}))
        return cls(key_of(hit.id), json.dumps(plain), tags_of(hit.metadata), index_words(hit.text), vector)


class Row(NamedTuple):
    """One row that an engine found: its document, its score by the engine, its vector if asked for."""

    document: str
    score: float
    vector: Any = None


async def records_from(
    documents: Iterable[Candidate], embedder: Embedder | None, *, store: str
) -> list[Record]:
    """Return the records to store, embedded in one call with the store's own embedder."""
    given = documents_from(documents)
    if embedder is None or not given:
        return [Record.of(hit, None) for hit in given]
    rows = await unit_vectors(embedder, [hit.text for hit in given], kind="document", store=store)
    return [Record.of(hit, row) for hit, row in zip(given, rows, strict=True)]


def key_of(id: str) -> str:
    """Return the hash under which an engine knows a document."""
    return hashlib.sha256(str(id).encode("utf-8", "surrogatepass")).hexdigest()


def tags_of(metadata: Mapping[str, Any]) -> list[str]:
    """Return one tag per metadata entry that can be filtered on."""
    return sorted(_tag(key, value_key(value)) for key, value in metadata.items() if is_scalar(value))


def tag_groups(where: Where | None) -> list[list[str]]:
    """Return the filter as groups of tags: a document passes when it has a tag of every group."""
    return [
        sorted({_tag(key, value_key(value)) for value in allowed})
        for key, allowed in conditions(where).items()
    ]


def index_words(text: str) -> list[str]:
    """Return the words to index or ask for; overlong ones by their hash, so that no engine drops them."""
    return [word if len(word) <= _LONGEST_WORD else key_of(word) for word in words(text)]


def document_hit(document: str, *, source: str) -> Hit:
    """Return the stored document as a hit without score or ledger."""
    held = json.loads(document)
    return Hit(held["id"], held["text"], source=source, metadata=held["metadata"])


async def enough(fetch: Callable[[int], Awaitable[list[Row]]], k: int) -> list[Row]:
    """Fetch until no row left behind can tie with the k-th, so that the cut is by id and not by chance."""
    limit = k + _SPARE
    while True:
        rows = await fetch(limit)
        if len(rows) < limit or rows[k - 1].score - rows[-1].score > _CLOSE:
            return rows
        limit *= 4


def found_by_words(rows: Sequence[Row]) -> list[Found]:
    """Return the matches with the engine's own scores."""
    return [_found(row, row.score) for row in rows]


def found_by_vector(rows: Sequence[Row], asked: Any) -> list[Found]:
    """Return the matches with exact cosines; engines add float32 up in an order of their own."""
    import numpy as np

    query = asked.astype(np.float64)
    held = [np.asarray(row.vector, dtype=np.float32).astype(np.float64) for row in rows]
    return [_found(row, float(vector @ query)) for row, vector in zip(rows, held, strict=True)]


def refuse_other_embedder(held: str, mine: str, *, store: str) -> None:
    """Raise StoreError when an index holds the vectors of another embedder."""
    if held != mine:
        raise StoreError(
            f"{store!r} holds vectors of {held or 'no embedder'!r}, not of {mine or 'no embedder'!r}; "
            "their distances mean nothing to each other. Use that embedder, or another table.",
            store=store,
        )


def _found(row: Row, score: float) -> Found:
    held = json.loads(row.document)
    return Found(held["id"], held["text"], score, held["metadata"])


def _tag(key: str, value: str) -> str:
    return hashlib.sha256(json.dumps([key, value]).encode("ascii")).hexdigest()[:32]
