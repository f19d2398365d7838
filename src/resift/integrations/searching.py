"""What an adapter searches: an Index, a pipeline, stores; or a framework's own retrievers, fused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from resift.errors import InputError
from resift.index import Index
from resift.integrations.external_store import ExternalStore
from resift.pipeline.pipeline import Pipeline
from resift.protocols import DocStore, Reranker, Scorer
from resift.ranking.fusion.rerankers import RRFReranker
from resift.stores.sqlite import SQLiteStore

T = TypeVar("T")

Searchable = Any
"""An Index, a Pipeline, one store, or several; frameworks' field types cannot say it more narrowly."""


def pipeline_over(source: Searchable) -> Pipeline:
    """Return the pipeline that answers for a source; several stores are fused by RRF."""
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


def fused_pipeline(
    retrievers: Mapping[str, T] | Sequence[T],
    as_store: Callable[..., ExternalStore],
    *,
    fuse: Reranker | None = None,
    weights: Sequence[float] | None = None,
    rerank: Scorer | None = None,
) -> Pipeline:
    """Return a pipeline over a framework's retrievers, each a store of its own with its own breaker.

    `weights` are for RRF, one per retriever; with a `fuse` of your own, give it its weights there.
    """
    named = _named(retrievers)
    if weights is not None:
        if fuse is not None:
            raise InputError("Both fuse and weights were given; give the weights to the reranker in fuse.")
        if len(weights) != len(named):
            raise InputError(f"{len(weights)} weights for {len(named)} retrievers; give one for each.")
        fuse = RRFReranker(weights=dict(zip(named, weights, strict=True)))
    stores = [as_store(retriever, name=name) for name, retriever in named.items()]
    return Pipeline(stores, fuse=fuse, rerank=rerank)


def _named(retrievers: Mapping[str, T] | Sequence[T]) -> dict[str, T]:
    if isinstance(retrievers, Mapping):
        return dict(retrievers)
    return {f"{type(one).__name__}-{at}": one for at, one in enumerate(retrievers, start=1)}
