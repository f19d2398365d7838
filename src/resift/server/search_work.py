"""Searching: the pipeline or the indexes that the server was started with, or documents of the request."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

from resift.external.candidates import hits_from
from resift.ingest.opening import open_index
from resift.pipeline.defaults import views
from resift.pipeline.pipeline import Pipeline
from resift.pipeline.store_ref import Store, StoreRef
from resift.server.bodies import dump_json
from resift.server.failures import RequestFailed
from resift.server.search_settings import SearchSettings
from resift.server.serving import Serving
from resift.stores.memory import MemoryStore
from resift.stores.sqlite import SQLiteStore
from resift.types import Hit, JsonMapping, JsonValue

KEPT_SETS = 8
"""Sets of pasted documents that stay indexed for the next question, the most recent ones."""


class Searching:
    """Pipelines by settings, made when first asked for."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._opened: list[SQLiteStore] | None = None
        self._pipelines: dict[SearchSettings, Pipeline] = {}
        self._pasted: OrderedDict[str, list[MemoryStore]] = OrderedDict()
        self._lock = asyncio.Lock()

    @property
    def has_index(self) -> bool:
        """Whether a search needs no documents of its own."""
        return bool(self._serving.options.stores) or self._serving.pipeline is not None

    async def pipeline(
        self, settings: SearchSettings | None, documents: Sequence[JsonValue] | None
    ) -> Pipeline:
        """Return the pipeline for a request; without settings and documents the one of the server."""
        if documents is not None:
            return self._made(settings or SearchSettings(), await self._pool(documents))
        if not self.has_index:
            raise RequestFailed(
                "not_found",
                "This server has no index: start it with --store FILE or --pipeline FILE, or send documents",
            )
        if self._serving.pipeline is not None and settings is None:
            return self._serving.pipeline
        chosen = settings or SearchSettings()
        if chosen not in self._pipelines:
            self._pipelines[chosen] = self._made(chosen, await self._stores())
        return self._pipelines[chosen]

    async def close(self) -> None:
        """Close the indexes."""
        for store in self._opened or ():
            await store.close()

    def _made(self, settings: SearchSettings, stores: Sequence[Store | StoreRef]) -> Pipeline:
        _, scorer = self._serving.model(None)
        return settings.pipeline(stores, scorer, self._serving.embedder, self._serving.metrics.sink)

    async def _stores(self) -> list[Store | StoreRef]:
        if self._serving.pipeline is not None and not self._serving.options.stores:
            return list(self._serving.pipeline.stores)
        async with self._lock:
            if self._opened is None:
                self._opened = await asyncio.to_thread(self._open_all)
        return [view for store in self._opened for view in views(store)]

    def _open_all(self) -> list[SQLiteStore]:
        files = self._serving.options.stores
        opened = []
        for at, file in enumerate(files):
            store = open_index(file, read_only=True)
            # Several indexes need names of their own; the file's says most.
            twin = any(other.stem == file.stem for other in files[:at])
            store.name = f"{file.stem}-{at + 1}" if twin else file.stem
            opened.append(store)
        return opened

    async def _pool(self, documents: Sequence[JsonValue]) -> list[MemoryStore]:
        """Return stores of a request's own documents: one finds by words, one by meaning."""
        hits = documents_of(documents)
        digest = hashlib.sha256(dump_json([[hit.id, hit.text, hit.metadata] for hit in hits])).hexdigest()
        if digest in self._pasted:
            self._pasted.move_to_end(digest)
            return self._pasted[digest]
        stores = [MemoryStore(name="words")]
        if self._serving.embedder is not None:
            stores.append(MemoryStore(self._serving.embedder, name="vectors", mode="vector"))
        for store in stores:
            await store.add(hits)
        self._pasted[digest] = stores
        while len(self._pasted) > KEPT_SETS:
            self._pasted.popitem(last=False)
        return stores


def documents_of(documents: Sequence[JsonValue]) -> list[Hit]:
    """Return the documents of a request as hits, each with an id of its own."""
    hits = hits_from([_plain(document) for document in documents], unique=False)
    taken: dict[str, int] = {}
    named = []
    for hit in hits:
        # An id that is there already gets a number: no document is lost.
        taken[hit.id] = taken.get(hit.id, 0) + 1
        named.append(hit if taken[hit.id] == 1 else replace(hit, id=f"{hit.id} #{taken[hit.id]}"))
    return named


def _plain(document: JsonValue) -> JsonValue:
    """Return only what a document of a request may have: no scores and no history."""
    if isinstance(document, str):
        return document
    kept: JsonMapping = document
    return {name: kept[name] for name in ("id", "text", "title", "metadata") if kept.get(name) is not None}
