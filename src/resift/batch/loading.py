"""Load the embedded shards of an index job into a store, by id, so that loading again does no harm.

Loading is a batch job, too: its inputs are the shards, its outputs are receipts in a hidden folder next to
them. A shard with a receipt is not loaded again. SQLite has one writer; other stores are loaded in parallel.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from resift._internal.sync import run_sync
from resift.batch.job import MANIFEST, BatchEngine, BatchProgress, BatchReport, EngineName, run_batch
from resift.batch.work import StopJobError, to_batch
from resift.errors import InputError, StoreError, require
from resift.stores.base import embedder_name
from resift.stores.sqlite import SQLiteStore

if TYPE_CHECKING:
    from pyarrow import RecordBatch

MAX_ATTEMPTS = 6
"""Attempts to write to a store that fails: two first writers, or a server that restarts."""
_BATCH_ROWS = 4096
_MAX_SHOWN_IDS = 5


class PrecomputedVectors:
    """An embedder that returns given vectors, under the name of the model that made them."""

    def __init__(self, model_name: str) -> None:
        self.model_name = model_name
        self.vectors: dict[str, Sequence[float]] = {}
        """Text -> vector, set before each write."""

    async def embed(self, texts: Sequence[str], *, kind: Literal["query", "document"]) -> Any:
        """Return the vectors of these texts."""
        np = require("numpy", extra="local")
        return np.asarray([self.vectors[text] for text in texts], dtype=np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadWork:
    """Writes the rows of an index job to a store, and returns their ids as receipts.

    `store` is an index file, or a pipeline file (YAML) with one store. `model` made the vectors.
    """

    store: str
    model: str

    kind = "load"
    rows_at_once = 512
    columns = ("id", "text", "metadata", "vector")

    def describe(self) -> dict[str, object]:
        """Return the store and the model."""
        return {"store": self.store, "model": self.model}

    def __call__(self, batch: RecordBatch) -> RecordBatch:
        """Return the receipts, after the store has the documents."""
        rows = batch.to_pylist()
        if self.store not in _stores:
            _stores[self.store] = open_store(self.store, self.model)
        run_sync(_add_documents(_stores[self.store], rows))
        return to_batch([{"id": row["id"], "row": row["row"]} for row in rows], {"id": "text"})


_stores: dict[str, Any] = {}


def load_shards(
    folder: str | Path,
    store: str | Path,
    *,
    engine: EngineName | BatchEngine = "local",
    workers: int | None = None,
    on_progress: Callable[[BatchProgress], None] = lambda _: None,
) -> BatchReport:
    """Load the shards of a finished index job into a store, in parallel if the store supports it.

    `store` is an index file, which is created if necessary, or a pipeline file (YAML) with one store. An
    interrupted run resumes with the shards that have no receipt. Documents with the same id in the store are
    replaced. Different documents with the same id in the shards are refused.
    """
    source, target = Path(folder), Path(store).absolute()
    path = source / MANIFEST
    if not path.exists():
        raise InputError(f"{source} has no {MANIFEST}: finish the job first, then load it.")
    manifest = json.loads(path.read_text())
    if manifest.get("kind") != "index":
        raise InputError(f"{source} is a {manifest.get('kind')} job; only index jobs can be loaded.")
    work = LoadWork(store=str(target), model=manifest["options"]["model"])
    receipts = source / ".loaded" / hashlib.sha256(work.store.encode()).hexdigest()[:16]
    single_writer = run_sync(_prepare_store(work, receipts))
    shards = [source / shard["name"] for shard in manifest["shards"]]
    if not (receipts / MANIFEST).exists():  # else all of them are in the store
        check_duplicate_ids(shards)
    return run_batch(
        work,
        shards,
        receipts,
        engine="local" if single_writer else engine,
        workers=1 if single_writer else workers,
        on_progress=on_progress,
    )


def open_store(file: str, model: str) -> Any:
    """Open the store to load: an index file, or the store of a pipeline file."""
    vectors = PrecomputedVectors(model)
    if Path(file).suffix.lower() not in (".yaml", ".yml"):
        return SQLiteStore(file, embedder=vectors, create=True)
    from resift.config import load_yaml
    from resift.config.build import build_store

    sections = load_yaml(file)["stores"]
    if len(sections) != 1:
        raise InputError(f"{file} has {len(sections)} stores; name a file with the one to load.")
    store = build_store(sections[0])[0].owner
    embedder = getattr(store, "embedder", None)
    if embedder is None or not callable(getattr(store, "add", None)):
        raise InputError(f"The store of {file} takes no vectors; give it `embedder: {model}`.")
    if embedder_name(embedder) != model:
        raise InputError(
            f"The store of {file} has vectors of {embedder_name(embedder)}; the shards, of {model}."
        )
    store.embedder = vectors
    return store


async def _prepare_store(work: LoadWork, receipts: Path) -> bool:
    """Delete receipts of documents that the store no longer has; return whether it takes one writer only."""
    store = open_store(work.store, work.model)
    try:
        if (receipts / MANIFEST).exists() and await store.count() == 0:
            shutil.rmtree(receipts)
        # A folder of Qdrant can be opened by one process.
        return isinstance(store, SQLiteStore) or bool(getattr(store, "single_writer", False))
    finally:
        await store.close()


async def _add_documents(store: Any, rows: Sequence[dict[str, Any]]) -> None:
    documents = [
        {"id": row["id"], "text": row["text"], "metadata": json.loads(row["metadata"])} for row in rows
    ]
    store.embedder.vectors = {row["text"]: row["vector"] for row in rows}
    for attempt in range(1, MAX_ATTEMPTS + 1):
        try:
            await store.add(documents)
        except StoreError as exc:
            if attempt == MAX_ATTEMPTS:
                raise StopJobError(f"{exc} Start again to resume here.") from exc
            await asyncio.sleep(0.1 * 2**attempt * random.uniform(0.5, 1))  # noqa: S311 - not a secret
        else:
            return


def check_duplicate_ids(shards: Sequence[Path]) -> None:
    """Refuse shards in which different documents have the same id: a store would keep one of them.

    Takes 16 bytes per document: 160 MB for ten million.
    """
    np = require("numpy", extra="local")
    pairs = ((_hash(id), _hash(content)) for shard in shards for id, content in _read_documents(shard))
    hashes = np.fromiter(pairs, dtype=[("id", "<u8"), ("content", "<u8")])
    hashes.sort(order=("id", "content"))
    same_id = hashes["id"][1:] == hashes["id"][:-1]
    conflicts = same_id & (hashes["content"][1:] != hashes["content"][:-1])
    duplicates = set(hashes["id"][1:][conflicts].tolist())
    if not duplicates:
        return
    names = sorted({id for shard in shards for id, _ in _read_documents(shard) if _hash(id) in duplicates})
    shown = ", ".join(map(repr, names[:_MAX_SHOWN_IDS])) + (", …" if len(names) > _MAX_SHOWN_IDS else "")
    raise InputError(
        f"{len(names)} id{'s name' if len(names) > 1 else ' names'} several different documents, "
        f"of which a store keeps one: {shown}. Nothing was loaded. "
        "Give each row its own id, or none, and run again into a new folder."
    )


def _read_documents(shard: Path) -> Iterator[tuple[str, str]]:
    """Yield each row's id and content."""
    with require("pyarrow.parquet", extra="batch").ParquetFile(shard) as file:
        for batch in file.iter_batches(_BATCH_ROWS, columns=["id", "text", "metadata"]):
            for row in batch.to_pylist():
                yield row["id"], f"{row['text']}\0{row['metadata']}"


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
