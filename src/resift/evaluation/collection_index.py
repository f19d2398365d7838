"""A collection's index: built once per corpus and embedder, kept in the cache, then only opened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from resift._internal.file_lock import locked
from resift._internal.sync import run_sync
from resift.errors import DataFormatError
from resift.evaluation.beir import Collection
from resift.models.embedder import DEFAULT_EMBEDDER, Embedder
from resift.stores.sqlite import SQLiteStore
from resift.types import JsonObject

Progress = Callable[[int, int], None]
"""Called with how many are done, and how many there are."""

_BATCH = 256


def index_of(
    collection: Collection,
    cache: Path,
    *,
    embedder: str | None = DEFAULT_EMBEDDER,
    progress: Progress | None = None,
) -> Path:
    """Return the index file of a collection's documents, building what is missing of it.

    A build that was stopped goes on where it was. Without an embedder the index holds words only.
    """
    if not collection.corpus_file.exists():
        raise DataFormatError(
            "no such file. The built-in pipelines and ${RESIFT_COLLECTION} search this corpus; "
            "without one, evaluate a pipeline file that names its own stores",
            file=str(collection.corpus_file),
        )
    model = (embedder or "words").replace("/", "--")
    path = cache / "indexes" / f"{collection.corpus_digest()[:24]}-{model}.db"
    done = path.with_suffix(".done")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not done.exists():
        with locked(path.with_suffix(".lock")):
            if not done.exists():
                run_sync(_build(path, list(collection.documents()), embedder, progress))
                done.touch()
    return path


async def _build(
    path: Path, documents: list[JsonObject], embedder: str | None, progress: Progress | None
) -> None:
    store = SQLiteStore(path, embedder=Embedder(embedder) if embedder else None, create=True)
    try:
        for start in range(0, len(documents), _BATCH):
            # Documents that an earlier, stopped build already stored are not embedded again.
            await store.add(documents[start : start + _BATCH])
            if progress:
                progress(min(start + _BATCH, len(documents)), len(documents))
    finally:
        await store.close()
