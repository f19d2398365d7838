"""Embedded shards into a store: SQLite by one writer, others in parallel; by id, so that again is no harm.

Loading is bulk work like any other: its input are the shards of an index job, its output are receipts, in a
hidden folder beside them. What has a receipt is not loaded again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from resift._internal.sync import run_sync
from resift.batch.arrow import RecordBatch
from resift.batch.job import BatchEngine, BatchProgress, BatchReport, EngineName, run_batch
from resift.batch.shared_ids import check_shared_ids
from resift.batch.work import NotTheRow, to_batch
from resift.errors import InputError, StoreError, require
from resift.stores.embedding import identity_of
from resift.stores.sqlite import SQLiteStore
from resift.types import JsonObject

TRIES = 6
"""How often rows are handed to a store that fails: two first writers, or a server that starts again."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadWork:
    """Rows of an index job go into a store; each becomes its `id`, as a receipt.

    `store` is an index file, or a pipeline file (YAML) that describes one store. `model` made the vectors.
    """

    store: str
    model: str

    kind = "load"
    rows_at_once = 512

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the input must have."""
        return ("id", "text", "metadata", "vector")

    def describe(self) -> JsonObject:
        """Return which store, and whose vectors."""
        return {"store": self.store, "model": self.model}

    def __call__(self, batch: RecordBatch) -> RecordBatch:
        """Return the batch of receipts, after the store has the documents."""
        rows = batch.to_pylist()
        if self.store not in _stores:
            _stores[self.store] = open_store(self.store, self.model)
        run_sync(_added(_stores[self.store], rows))
        return to_batch([{"id": row["id"], "row": row["row"]} for row in rows], {"id": "text"})


_stores: JsonObject = {}


def load_shards(
    folder: str | Path,
    store: str | Path,
    *,
    engine: EngineName | BatchEngine = "local",
    workers: int | None = None,
    on_progress: Callable[[BatchProgress], None] = lambda _: None,
) -> BatchReport:
    """Put the shards of a finished index job into a store, several at a time where it can take that.

    `store` is an index file, which is made if need be, or a pipeline file (YAML) that describes one store. A
    run that was interrupted goes on with the shards that have no receipt; documents that the store has
    under the same id are replaced. Different documents of one id in the shards are refused by name.
    """
    place, target = Path(folder), Path(store).absolute()
    manifest = _manifest(place)
    work = LoadWork(store=str(target), model=manifest["options"]["model"])
    receipts = place / ".loaded" / hashlib.sha256(work.store.encode()).hexdigest()[:16]
    alone = run_sync(_checked(work, receipts))
    shards = [place / shard["name"] for shard in manifest["shards"]]
    if not (receipts / "manifest.json").exists():  # else all of them are in the store
        check_shared_ids(shards)
    return run_batch(
        work,
        shards,
        receipts,
        engine="local" if alone else engine,
        workers=1 if alone else workers,
        on_progress=on_progress,
    )


def open_store(file: str, model: str) -> Any:
    """Open the store to load: an index file, or the one that a pipeline file describes."""
    vectors = GivenVectors(model)
    if Path(file).suffix.lower() not in (".yaml", ".yml"):
        return SQLiteStore(file, embedder=vectors, create=True)
    from resift.config import load_yaml
    from resift.config.build import build_store

    sections = load_yaml(file)["stores"]
    if len(sections) != 1:
        raise InputError(f"{file} has {len(sections)} stores; name a file with the one to load.")
    store = build_store(sections[0])[0].owner
    held = getattr(store, "embedder", None)
    if held is None or not callable(getattr(store, "add", None)):
        raise InputError(f"The store of {file} takes no vectors; give it `embedder: {model}`.")
    if identity_of(held) != model:
        raise InputError(f"The store of {file} has vectors of {identity_of(held)}; the shards, of {model}.")
    store.embedder = vectors
    return store


async def _checked(work: LoadWork, receipts: Path) -> bool:
    """Forget receipts of documents that are no longer in the store; say whether it takes one writer only."""
    store = open_store(work.store, work.model)
    try:
        manifest = receipts / "manifest.json"
        if manifest.exists() and await store.count() == 0:
            shutil.rmtree(receipts)
        # A file has one writer; Qdrant in a folder lets one process in.
        return isinstance(store, SQLiteStore) or bool(getattr(store, "_local", False))
    finally:
        await store.close()


async def _added(store: Any, rows: Sequence[JsonObject]) -> None:
    documents = [
        {"id": row["id"], "text": row["text"], "metadata": json.loads(row["metadata"])} for row in rows
    ]
    store.embedder.give({row["text"]: row["vector"] for row in rows})
    for left in reversed(range(TRIES)):
        try:
            await store.add(documents)
        except StoreError as exc:
            if not left:
                raise NotTheRow(f"{exc} Start again to go on from here.") from exc
            await asyncio.sleep(0.1 * 2 ** (TRIES - left) * random.uniform(0.5, 1))  # noqa: S311 - no secret
        else:
            return


def _manifest(folder: Path) -> JsonObject:
    path = folder / "manifest.json"
    if not path.exists():
        raise InputError(f"{folder} has no manifest.json: finish the job first, then load it.")
    manifest: JsonObject = json.loads(path.read_text())
    if manifest.get("kind") != "index":
        raise InputError(f"{folder} is a {manifest.get('kind')} job; only index jobs can be loaded.")
    return manifest
