"""Two-stage search with txtai's interface: a broad first stage, then reranking."""

from __future__ import annotations

import asyncio
import inspect
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, overload, runtime_checkable

from resift._internal.sync import run_sync
from resift.deadline import Deadline
from resift.errors import InputError
from resift.pipeline.fan_out import OverFetch
from resift.protocols import DocStore, Scorer, Similarity
from resift.types import Hit, JsonObject, JsonValue
from resift.validation import check_k

Row = JsonObject

TEXT_KEYS = ("text", "content", "title")  # keys under which a row may contain its text; the first one with text is used


class _Default(int):
    """A default value that can be distinguished from the same number passed by a caller."""


TEN = _Default(10)


@runtime_checkable
class BatchSearch(Protocol):
    """txtai's interface for searching many queries at once."""

    def batchsearch(self, queries: list[str], limit: int, **kwargs: JsonValue) -> list[list[object]]:
        """Return the rows for each query."""


class TwoStage:
    """Searches `embeddings` for `limit*factor` rows and returns the best `limit` according to `similarity`.

    `embeddings` is a store, or an object with txtai's `batchsearch(queries, limit, **kwargs)` that stores
    content. `similarity` is a scorer, or a callable `(query, texts)` that yields `(index, score)`. Unscored
    rows come last in their previous order, with score None.
    """

    def __init__(
        self,
        embeddings: BatchSearch | DocStore,
        similarity: Similarity | Scorer,
        *,
        fetch: OverFetch | None = None,
        text_keys: Sequence[str] = TEXT_KEYS,
    ) -> None:
        if not isinstance(embeddings, (BatchSearch, DocStore)):
            raise InputError(f"embeddings is a {type(embeddings).__name__} without `batchsearch` or `search`.")
        if not callable(similarity) and not isinstance(similarity, Scorer):
            raise InputError(f"similarity is a {type(similarity).__name__}; pass a callable or a scorer.")
        self.embeddings = embeddings
        self.similarity = similarity
        self.fetch = fetch or OverFetch()
        self.text_keys = tuple(text_keys)

    @overload
    def __call__(self, query: str, limit: int = 3, factor: int = TEN, **kwargs: object) -> list[Row]: ...
    @overload
    def __call__(self, query: list[str], limit: int = 3, factor: int = TEN, **kwargs: object) -> list[list[Row]]: ...
    def __call__(
        self, query: str | list[str], limit: int = 3, factor: int = TEN, **kwargs: object
    ) -> list[Row] | list[list[Row]]:
        """Return the best rows for a query, or one list of rows per query for a list of queries."""
        return run_sync(self.search(query, limit, factor, **kwargs))

    def batch(self, queries: Sequence[str], limit: int = 3, factor: int = TEN, **kwargs: object) -> list[list[Row]]:
        """Return one list of rows per query."""
        return self(list(queries), limit, factor, **kwargs)

    async def search(
        self, query: str | list[str], limit: int = 3, factor: int = TEN, **kwargs: object
    ) -> list[Row] | list[list[Row]]:
        """Async version of calling the object. `factor` replaces the factor of the fetch policy."""
        query_list = [query] if isinstance(query, str) else query
        if not isinstance(query_list, (list, tuple)) or not all(isinstance(each, str) for each in query_list):
            raise InputError(f"The query is a {type(query).__name__}; pass a string or a list of strings.")
        queries = list(query_list)
        check_k(limit, name="limit")
        policy = self.fetch if factor is TEN else replace(self.fetch, factor=factor)
        if limit == 0 or not queries:
            ranked: list[list[Row]] = [[] for _ in queries]
        else:
            results = await self._retrieve(queries, policy(limit), kwargs)
            ranked = [(await self._rerank(q, rows))[:limit] for q, rows in zip(queries, results, strict=True)]
        return ranked[0] if isinstance(query, str) else ranked

    async def _retrieve(self, queries: list[str], k: int, kwargs: Mapping[str, object]) -> list[list[Row]]:
        if isinstance(self.embeddings, BatchSearch):
            results = await asyncio.to_thread(self.embeddings.batchsearch, queries, k, **kwargs)
            if len(results) != len(queries):
                raise InputError(f"batchsearch returned {len(results)} results for {len(queries)} queries.")
        else:
            search = self.embeddings.search
            results = [await _call_search(search, query, k, kwargs) for query in queries]
        return [[_to_dict(row, i) for i, row in enumerate(rows)] for rows in results]

    async def _rerank(self, query: str, rows: list[Row]) -> list[Row]:
        if not rows:
            return []
        texts = [self._text(row, i) for i, row in enumerate(rows)]
        pairs: Iterable[tuple[int, float | None]]
        if isinstance(self.similarity, Scorer):
            # Use the position as the id: rows of other systems may have no id, or the same id twice.
            hits = [
                Hit(str(i), text, metadata=nested if isinstance(nested := row.get("metadata"), Mapping) else {})
                for i, (row, text) in enumerate(zip(rows, texts, strict=True))
            ]
            result = await self.similarity.score(query, hits, deadline=Deadline.never())
            pairs = enumerate(result.values)
        else:
            output = await asyncio.to_thread(self.similarity, query, texts)
            pairs = await output if inspect.isawaitable(output) else output
        scores = _scores_by_row(pairs, len(rows))
        # The sort is stable: unscored rows and rows with equal scores keep their order.
        order = sorted(range(len(rows)), key=lambda i: math.inf if (score := scores[i]) is None else -score)
        return [{**rows[i], "score": scores[i]} for i in order]

    def _text(self, row: Row, i: int) -> str:
        texts: list[str] = [row[key] for key in self.text_keys if isinstance(row.get(key), str)]
        if not texts:
            raise InputError(
                f"Row {i} (id {row.get('id')!r}) has no text under {', '.join(self.text_keys)}. "
                "The second stage needs it: store content in the index (txtai: content=True) and select it."
            )
        return next((text for text in texts if text.strip()), texts[0])


async def _call_search(search: Callable[..., object], query: str, k: int, kwargs: Mapping[str, object]) -> list[object]:
    """Call an async `search`, or run a synchronous `search(query, limit)` in a thread."""
    if inspect.iscoroutinefunction(search):
        return list(await search(query, k=k, **kwargs))
    # The argument is called `limit` in txtai and `k` in Resift's stores.
    name = "k" if "k" in inspect.signature(search).parameters else "limit"
    rows: JsonValue = await asyncio.to_thread(search, query, **{name: k}, **kwargs)
    return list(await rows if inspect.isawaitable(rows) else rows)


def _to_dict(row: object, i: int) -> Row:
    if isinstance(row, Hit):
        return row.to_dict()
    if isinstance(row, Mapping):
        return dict(row)
    raise InputError(
        f"The first stage returned a {type(row).__name__} as row {i}, not a dict: content is not stored. "
        "Build the index with content=True, so that the second stage has texts."
    )


def _scores_by_row(pairs: Iterable[tuple[int, float | None]], size: int) -> list[float | None]:
    """Return one score per row from (index, score) pairs; raises InputError for an invalid index."""
    scores: list[float | None] = [None] * size
    seen: set[int] = set()
    for index, score in pairs:
        try:
            i = operator.index(index)
        except TypeError:
            i = -1
        if not 0 <= i < size or i in seen:
            raise InputError(
                f"similarity returned index {index!r}; each index must be from 0 to {size - 1} and occur only once."
            )
        seen.add(i)
        number = math.nan if score is None else float(score)
        scores[i] = number if math.isfinite(number) else None
    return scores
