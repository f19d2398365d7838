"""Use the index of another system as a store, through one search function; plus helpers shared by adapters."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict, TypeVar

from resift.errors import InputError, ResiftError, StoreError
from resift.external.candidates import Candidate, content_id, has_id, read_hits
from resift.index import Index
from resift.models.embedder import Embedder, EmbedKind
from resift.pipeline.pipeline import Pipeline
from resift.protocols import DocStore, Reranker, Scorer
from resift.ranking.fusion.rerankers import RRFReranker
from resift.reranking import arerank
from resift.resilience import CircuitBreaker
from resift.stores.base import SearchHits, is_empty_search
from resift.stores.filters import matches
from resift.stores.sqlite import SQLiteStore
from resift.types import Hit, Metadata, Ranking, Where, sort_key
from resift.validation import check_callable, check_list, check_text

T = TypeVar("T")

_FILTER_OVERFETCH = 4
_MAX_FETCH = 2_000


class Found(NamedTuple):
    """One result of an external index. Without a `score`, only its position counts."""

    id: str
    text: str
    score: float | None
    metadata: Metadata


FetchedRow = Found | Candidate
Fetch = Callable[[str, int], Awaitable[Sequence[FetchedRow]] | Sequence[FetchedRow]]
"""Returns up to k documents of the index for a query, best first. May be async or sync."""

# Programming errors. Their messages name variables and keys, so they are safe to show.
_CODE_ERRORS = (TypeError, AttributeError, LookupError, NameError, ImportError, NotImplementedError)


class ExternalStore:
    """Queries an index through one function and adds k, filters, a stable order and safe error messages.

    The function returns `Found` rows, hits or dicts; a sync one runs in a thread. With `where`, more are fetched until
    k documents match. Beyond 2,000 documents the search stops and its results are marked as approximate. A circuit
    breaker skips an index that keeps failing.
    """

    kind = "search"

    def __init__(self, name: str, fetch: Fetch, *, breaker: CircuitBreaker | None = None) -> None:
        self.name = check_text(name, "The name of a store")
        check_callable(fetch, "fetch", "a function of a query and k that returns documents")
        self._fetch = fetch
        self.breaker = breaker or CircuitBreaker(name=name)

    async def search(self, query: str, *, k: int, where: Where | None = None) -> list[Hit]:
        """Return at most k hits, best first, whose metadata matches `where`."""
        if is_empty_search(query, k, where):
            return []
        limit = k if where is None else k * _FILTER_OVERFETCH
        while True:
            hits = await self._fetch_safely(query, limit)
            passing = [hit for hit in hits if where is None or matches(hit.metadata, where)]
            complete = len(passing) >= k or len(hits) < limit
            if complete or limit >= _MAX_FETCH:
                break
            limit = min(limit * 4, _MAX_FETCH)
        first: dict[str, Hit] = {}
        for hit in passing:
            first.setdefault(hit.id, hit)
        unique = list(first.values())
        if all(hit.score is not None for hit in unique):
            unique.sort(key=sort_key)
        return SearchHits(unique[:k], approximate=not complete)

    async def _fetch_safely(self, query: str, k: int) -> list[Hit]:
        fetch = self._fetch
        is_async = inspect.iscoroutinefunction(fetch) or inspect.iscoroutinefunction(type(fetch).__call__)
        try:
            async with self.breaker.guard():
                rows = fetch(query, k) if is_async else await asyncio.to_thread(fetch, query, k)
                # A sync function may return a coroutine.
                rows = await rows if inspect.isawaitable(rows) else rows
                return [self._read_row(row) for row in check_list(rows, "The result of fetch", "Found, dicts or Hits")]
        except ResiftError:
            raise
        except Exception as exc:
            # The message of a client exception may contain document text or an API key.
            reason = f"{type(exc).__name__}{f': {exc}' if isinstance(exc, _CODE_ERRORS) else ''}"
            raise StoreError(f"{self.name} failed: {reason}", store=self.name) from exc

    def _read_row(self, row: FetchedRow) -> Hit:
        if isinstance(row, Found):
            return Hit(str(row.id), row.text, row.score, self.name, dict(row.metadata))
        [hit] = read_hits([row], flags={})
        id = hit.id if has_id(row) else content_id(hit.text)
        return Hit(id, hit.text, hit.score, self.name, dict(hit.metadata))


Searchable = Any  # an Index, a Pipeline, a store or several stores. Pydantic fields of frameworks need the wide type.


def make_pipeline(source: Searchable) -> Pipeline:
    """Return a pipeline that searches the source. Several stores are fused with RRF."""
    if isinstance(source, Pipeline):
        return source
    if isinstance(source, Index):
        return source.pipeline
    if isinstance(source, SQLiteStore):
        return Pipeline.default(source)
    if isinstance(source, str):
        raise InputError(f"{source!r} is a string; pass resift.Index({source!r}), a Pipeline or a store.")
    if isinstance(source, (Iterable, DocStore)):
        return Pipeline(source)
    raise InputError(f"A {type(source).__name__} cannot be searched; pass an Index, a Pipeline or a store.")


def make_fusion_pipeline(
    retrievers: Mapping[str, T] | Sequence[T],
    as_store: Callable[..., ExternalStore],
    *,
    fuse: Reranker | None = None,
    weights: Sequence[float] | None = None,
    rerank: Scorer | None = None,
) -> Pipeline:
    """Return a pipeline over a framework's retrievers, each a store with a breaker. `weights` are those of RRF."""
    if not isinstance(retrievers, Mapping):
        retrievers = {f"{type(item).__name__}-{number}": item for number, item in enumerate(retrievers, start=1)}
    if weights is not None:
        if fuse is not None:
            raise InputError("Both fuse and weights were passed; set the weights in the fuse reranker instead.")
        if len(weights) != len(retrievers):
            raise InputError(f"{len(weights)} weights for {len(retrievers)} retrievers; pass one per retriever.")
        fuse = RRFReranker(weights=dict(zip(retrievers, weights, strict=True)))
    stores = [as_store(retriever, name=name) for name, retriever in retrievers.items()]
    return Pipeline(stores, fuse=fuse, rerank=rerank)


async def embed_lists(embedder: Embedder, texts: Sequence[str], kind: EmbedKind) -> list[list[float]]:
    """Return one vector per text as a list of numbers."""
    vectors: list[list[float]] = (await embedder.embed(texts, kind=kind)).tolist()
    return vectors


class HitMetadata(TypedDict):
    """Metadata that every adapter adds to a framework's document. Unscored documents have no `relevance_score`."""

    relevance_score: float | None
    tier: str | None
    degraded: bool
    reason: str | None
    why: str


def hits_with_metadata(ranking: Ranking) -> Iterator[tuple[Hit, HitMetadata]]:
    """Yield each hit with the metadata that adapters add to its document."""
    reasons, tier, degraded, reason = ranking.why_all(), ranking.tier, ranking.degraded, ranking.reason
    for hit, score in zip(ranking, ranking.scores(), strict=True):
        why = reasons[hit.id]
        yield hit, HitMetadata(relevance_score=score, tier=tier, degraded=degraded, reason=reason, why=why)


async def rerank_items(
    query: str, items: Sequence[T], texts: Iterable[tuple[str, Metadata]], *, source: str, **options: Any
) -> list[tuple[T, HitMetadata]]:
    """Rerank documents of a framework by position, because most have no ids. `options` are those of `rerank`."""
    hits = [Hit(str(i), text, source=source, metadata=metadata) for i, (text, metadata) in enumerate(texts)]
    ranking = await arerank(query, hits, **options)
    return [(items[int(hit.id)], added) for hit, added in hits_with_metadata(ranking)]


_NEW = {"chroma_store": "ChromaCollection(collection)", "elasticsearch_store": "ElasticsearchQuery(index, client=…)"}


def __getattr__(name: str) -> object:
    if name in _NEW:
        raise ImportError(f"{name} of Resift 0.2 was removed. Use resift.stores.tables.{_NEW[name]}.")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
