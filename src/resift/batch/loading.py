"""Embedded shards into a store: SQLite by one writer, others in parallel; by id, so that again is no harm."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from resift.atomic_files import atomic_write
from resift.errors import InputError, require
from resift.sync import run_sync

_ROWS = 512
DONE = "loaded"


class WritableStore(Protocol):
    """A store that takes documents, and names itself."""

    name: str
    embedder: Any

    async def add(self, documents: Any) -> int:
        """Store the documents, replacing those of the same id."""
        ...


class GivenVectors:
    """An embedder that knows the vectors already: for documents from shards, under their model's name."""

    def __init__(self, model_name: str) -> None:
        self.model_name = model_name
        self._known: dict[str, Sequence[float]] = {}

    def give(self, vectors: dict[str, Sequence[float]]) -> None:
        """Take the vectors of the texts that come next."""
        self._known = vectors

    async def embed(self, texts: Sequence[str], *, kind: Literal["query", "document"]) -> Any:
        """Return the vectors that were given for these texts."""
        np = require("numpy", extra="local")
        return np.asarray([self._known[text] for text in texts], dtype=np.float32)


def load_shards(
    folder: str | Path,
    open_store: Callable[[GivenVectors], WritableStore],
    *,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> int:
    """Put the shards of a finished index job into a store; return how many chunks.

    `open_store` gets an embedder under the job's model name and returns the store to fill. A run that was
    interrupted goes on with the shards that are not marked as loaded.
    """
    return run_sync(aload_shards(folder, open_store, on_progress=on_progress))


async def aload_shards(
    folder: str | Path,
    open_store: Callable[[GivenVectors], WritableStore],
    *,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> int:
    """Do what `load_shards` does, from async code."""
    place = Path(folder)
    manifest = _manifest(place)
    vectors = GivenVectors(manifest["options"]["model"])
    store = open_store(vectors)
    marks = place / f".{DONE}-{store.name}.json"
    loaded: list[str] = json.loads(marks.read_text()) if marks.exists() else []
    count = 0
    try:
        for shard in manifest["shards"]:
            if shard["name"] not in loaded:
                async for rows in _rows(place / shard["name"]):
                    vectors.give({row["text"]: row["vector"] for row in rows})
                    await store.add([_document(row) for row in rows])
                loaded.append(shard["name"])
                atomic_write(marks, json.dumps(loaded))
            count += shard["written"]
            on_progress(count, manifest["written"])
    finally:
        await _closed(store)
    return count


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    if not path.exists():
        raise InputError(f"{folder} has no manifest.json: finish the job first, then load it.")
    manifest: dict[str, Any] = json.loads(path.read_text())
    if manifest.get("kind") != "index":
        raise InputError(f"{folder} is a {manifest.get('kind')} job; only index jobs can be loaded.")
    return manifest


async def _rows(shard: Path) -> AsyncIterator[list[dict[str, Any]]]:
    pq = require("pyarrow.parquet", extra="batch")
    file = pq.ParquetFile(shard)
    for batch in file.iter_batches(_ROWS):
        yield await asyncio.to_thread(batch.to_pylist)


def _document(row: dict[str, Any]) -> dict[str, Any]:
    return {"id": row["id"], "text": row["text"], "metadata": json.loads(row["metadata"])}


async def _closed(store: Any) -> None:
    close = getattr(store, "close", None)
    if callable(close):
        outcome = close()
        if hasattr(outcome, "__await__"):
            await outcome
