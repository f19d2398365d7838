"""Building blocks shared by all stores: input and output, hybrid search, worker threads."""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial, wraps
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar

from resift._internal.arrays import Array, np
from resift._internal.forking import after_fork
from resift._internal.lazy_exports import renamed_names
from resift.errors import InputError, StoreError
from resift.external.candidates import Candidates, has_id, list_documents, read_hits
from resift.external.records import ID_KEYS
from resift.protocols import Embedder
from resift.stores.filters import parse_filter
from resift.types import Hit, Metadata, Where
from resift.validation import check_k, check_list, check_query

T = TypeVar("T")
P = ParamSpec("P")

Mode = Literal["hybrid", "text", "vector"]
Side = Literal["text", "vectors"]

HYBRID_DEPTH = 100
"""Minimum depth of each side of a hybrid search: a hit that both sides rank low may be the best after fusion."""

APPROXIMATE = "approximate"  # trace note of a list that came from an approximate index


class Match(NamedTuple):
    """A match that has not been ranked yet."""

    id: str
    text: str
    score: float
    metadata: Metadata


class DocumentLoadError(StoreError):
    """The text of a hit could not be read after the search: it is damaged, or has been removed since."""


class SearchHits(list[Hit]):
    """A list of hits. `approximate` is set if better hits may have been missed; `warning` explains why."""

    def __init__(self, hits: Iterable[Hit] = (), *, approximate: bool = False, warning: str = "") -> None:
        super().__init__(hits)
        self.approximate = approximate
        self.warning = warning


# Input of stores


def read_documents(candidates: Candidates) -> list[Hit]:
    """Return the documents to store; raise InputError for one without an id, which could overwrite another."""
    documents = list_documents(candidates, "documents")
    for number, candidate in enumerate(documents):
        if isinstance(candidate, str):
            raise InputError(f"Document {number} is a bare string; pass a dict with id and text, or a Hit.")
        if not has_id(candidate):
            raise InputError(f"Document {number} has no id; give each document its own {' or '.join(ID_KEYS)}.")
    return read_hits(documents, flags={})


def read_ids(ids: Iterable[str | int]) -> list[str]:
    """Return the distinct ids as strings. Integers are converted, as in `add`."""
    distinct: dict[str, None] = {}
    for id in ids if type(ids) is list else check_list(ids, "ids", "ids"):
        if isinstance(id, bool) or not isinstance(id, (str, int)):
            raise InputError(f"ids contains a value of type {type(id).__name__}; ids are strings.")
        distinct[str(id)] = None
    return list(distinct)


def is_empty_search(query: str, k: int, where: Where | None = None) -> bool:
    """Return whether the result must be empty; raise InputError for invalid arguments."""
    if where is not None:
        parse_filter(where)
    text = check_query(query, allow_empty=True)
    return check_k(k) == 0 or not text.strip()


# Output of stores


def top_k(matches: Iterable[Match], *, k: int, source: str) -> list[Hit]:
    """Return the best k matches as hits, ordered by descending score and then by id."""
    best = sorted(matches, key=lambda match: (-match.score, match.id))[:k]
    return [Hit(match.id, match.text, match.score, source, match.metadata) for match in best]


def select_by_ids(ids: Sequence[str], documents: Mapping[str, Hit]) -> list[Hit]:
    """Return the documents in the order of the ids; unknown ids are skipped."""
    return [documents[id] for id in ids if id in documents]


# Embedders


def embedder_name(embedder: Embedder) -> str:
    """Return the embedder name that a store records with its vectors."""
    for attribute in ("model_name", "model_id", "name"):
        name = getattr(embedder, attribute, None)
        if isinstance(name, str) and name:
            return name
    return type(embedder).__name__


async def embed_texts(
    embedder: Embedder, texts: Sequence[str], *, kind: Literal["query", "document"], store: str
) -> Array:
    """Return float32 unit vectors, one row per text; all-zero rows stay zero."""
    rows = np.asarray(await embedder.embed(list(texts), kind=kind), dtype=np.float32)
    if rows.ndim != 2 or rows.shape[0] != len(texts) or rows.shape[1] == 0:
        raise StoreError(
            f"The embedder of {store!r} returned shape {rows.shape} for {len(texts)} texts; "
            "it must return one vector per text.",
            store=store,
        )
    if not np.isfinite(rows).all():
        raise StoreError(f"The embedder of {store!r} returned NaN or infinity.", store=store)
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    return np.ascontiguousarray(rows / np.where(lengths == 0, 1, lengths), dtype=np.float32)


def resolve_mode(mode: Mode | None, embedder: Embedder | None, *, default: Mode) -> Mode:
    """Return the search mode: "text" without an embedder, else `default` unless a mode is given."""
    if mode is None:
        return "text" if embedder is None else default
    if mode not in ("hybrid", "text", "vector"):
        raise InputError(f"mode is {mode!r}; pass 'hybrid', 'text' or 'vector'.")
    if mode != "text" and embedder is None:
        raise InputError(f"mode {mode!r} needs vectors: pass embedder=, or use mode='text'.")
    return mode


# Hybrid search


class HybridSearch:
    """Searches by keywords, by vectors or by both, according to the mode of the store."""

    name: str
    mode: Mode

    async def search(self, query: str, *, k: int, where: Where | None = None) -> list[Hit]:
        """Return at most k hits whose metadata passes `where`, best first."""
        if self.mode != "hybrid":
            side: Side = "text" if self.mode == "text" else "vectors"
            return await self.search_side(side, query, k=k, where=where, source=self.name)
        depth = max(k, HYBRID_DEPTH) if k else 0
        views = await asyncio.gather(
            self.search_side("text", query, k=depth, where=where, source=f"{self.name}.text"),
            self.search_side("vectors", query, k=depth, where=where, source=f"{self.name}.vectors"),
        )
        from resift.ranking.fusion import rrf

        # Fuse by rank, because BM25 and cosine scores have no common scale.
        hits = [replace(hit, source=self.name) for hit in rrf(views, k_param=60, k=k)]
        approximate = any(getattr(view, "approximate", False) for view in views)
        warning = " ".join(filter(None, (getattr(view, "warning", "") for view in views)))
        return SearchHits(hits, approximate=approximate, warning=warning)

    async def search_side(self, side: Side, query: str, *, k: int, where: Where | None, source: str) -> list[Hit]:
        """Search one side only: keywords or vectors."""
        raise NotImplementedError


class StoreView:
    """One side of a store as a separate store, such as `docs.text`. Only a `lazy` view has `search_lazy`."""

    def __init__(
        self, store: Any, side: Side, search: Callable[..., Awaitable[list[Hit]]], *, lazy: bool = False
    ) -> None:
        self.store = store
        self.kind = "doc" if side == "text" else "vector"
        self.name = f"{store.name}.{side}"
        self._search = search
        if lazy:
            self.search_lazy = partial(search, where=None, source=self.name, lazy=True)

    async def search(self, query: str, *, k: int, where: Where | None = None) -> list[Hit]:
        """Return at most k hits whose metadata passes `where`, best first."""
        return await self._search(query, k=k, where=where, source=self.name)


class HybridStore(HybridSearch):
    """A store whose text and vector sides can be used as separate stores."""

    embedder: Embedder | None
    lazy_views = False

    @property
    def text(self) -> StoreView:
        """Keyword search of the same documents, as a store."""
        return StoreView(self, "text", partial(self.search_side, "text"), lazy=self.lazy_views)

    @property
    def vectors(self) -> StoreView:
        """Vector search of the same documents, as a store."""
        if self.embedder is None:
            raise InputError(f"Store {self.name!r} has no embedder, so it cannot search by vectors.")
        return StoreView(self, "vectors", partial(self.search_side, "vectors"), lazy=self.lazy_views)


# Concurrency


class Workers:
    """A small thread pool for one store, so that a store that hangs does not block the others.

    The threads start on first use, and again after `close` or in a forked child.
    """

    def __init__(self, name: str, *, threads: int) -> None:
        self._name, self._threads = name, threads
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        after_fork(self)

    async def run(self, job: Callable[[], T]) -> T:
        """Run a blocking function in a worker thread and return its result."""
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix=f"resift-{self._name}")
            try:
                future = asyncio.get_running_loop().run_in_executor(self._pool, job)
            except RuntimeError as exc:  # Python has ended its thread pools
                raise StoreError(
                    f"{self._name} is closed, because the interpreter is exiting.", store=self._name
                ) from exc
        return await future

    def close(self, *, wait: bool = False) -> None:
        """Stop the threads after their current job. Queued work is dropped, or completed if `wait` is set."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=wait, cancel_futures=not wait)

    def reset_after_fork(self) -> None:
        """Discard the parent's threads in a forked child."""
        self._lock = threading.Lock()
        self._pool = None


class _End(NamedTuple):
    error: Exception | None


async def read_ahead(source: AsyncGenerator[T, None], *, depth: int) -> AsyncGenerator[T, None]:
    """Yield the items of the source, while up to `depth` more are produced in the background."""
    ready: asyncio.Queue[T | _End] = asyncio.Queue(depth)

    async def fill() -> None:
        error = None
        try:
            async for item in source:
                await ready.put(item)
        except Exception as exc:  # the reader gets the earlier items first
            error = exc
        await ready.put(_End(error))

    producer = asyncio.create_task(fill())
    try:
        while not isinstance(item := await ready.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        producer.cancel()
        await asyncio.wait([producer])
        await source.aclose()


# Names of Resift 0.2, which 0.4 will remove


def deprecated_name(old: str, method: Callable[P, T]) -> Callable[P, T]:
    """Return a method that warns about its old name (DeprecationWarning) and calls `method`."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        message = f"{old} is now {method.__name__}; Resift 0.4 removes the old name."
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return method(*args, **kwargs)

    return call


# From the documentation of custom stores in 0.2.
__getattr__ = renamed_names(
    __name__,
    {
        "Found": "Match",
        "documents_from": "read_documents",
        "ids_from": "read_ids",
        "nothing_to_find": "is_empty_search",
        "ranked": "top_k",
        "in_order": "select_by_ids",
    },
)
