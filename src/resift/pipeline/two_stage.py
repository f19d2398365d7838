"""Two-stage search with the interface of txtai: a broad first search, then reranking."""

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

TEXT_KEYS = ("text", "content", "title")
"""Keys of the text of a row; the first one with text counts."""


class _Default(int):
    """The default of a number, distinguishable from the same number of a caller."""


TEN = _Default(10)


@runtime_checkable
class BatchSearch(Protocol):
    """The search interface of txtai: many queries at once."""

    def batchsearch(self, queries: list[str], limit: int, **kwargs: JsonValue) -> list[list[object]]:
        """Return the rows for each query."""
        ...


class TwoStage:
    """Searches `embeddings` for `limit*factor` rows and lets `similarity` choose the best `limit`.

    `embeddings`: a store, or an object with txtai's `batchsearch(queries, limit, **kwargs)` that keeps
    content. `similarity`: a callable `(query, texts)` that yields `(index, score)`, or a scorer. Unscored
    rows come last in their old order, with score None.
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
        """Return the best rows for a query, or one list of rows per query for a list."""
        return run_sync(self.search(query, limit, factor, **kwargs))

    def batch(self, queries: Sequence[str], limit: int = 3, factor: int = TEN, **kwargs: object) -> list[list[Row]]:
        """Return one list of rows per query."""
        return self(list(queries), limit, factor, **kwargs)

    async def search(
        self, query: str | list[str], limit: int = 3, factor: int = TEN, **kwargs: object
    ) -> list[Row] | list[list[Row]]:
        """Return the same as a call, async. A `factor` replaces that of the fetch policy."""
        listed = [query] if isinstance(query, str) else query
        if not isinstance(listed, (list, tuple)) or not all(isinstance(each, str) for each in listed):
            raise InputError(f"The query is a {type(query).__name__}; pass a string or a list of strings.")
        queries = list(listed)
        check_k(limit, name="limit")
        policy = self.fetch if factor is TEN else replace(self.fetch, factor=factor)
        if limit == 0 or not queries:
            ranked: list[list[Row]] = [[] for _ in queries]
        else:
            results = await self._retrieve(queries, policy(limit), kwargs)
            ranked = [(await self._rerank(q, rows))[:limit] for q, rows in zip(queries, results, strict=True)]
        return ranked[0] if isinstance(query, str) else ranked

    async def _retrieve(self, queries: list[str], wanted: int, kwargs: Mapping[str, object]) -> list[list[Row]]:
        if isinstance(self.embeddings, BatchSearch):
            results = await asyncio.to_thread(self.embeddings.batchsearch, queries, wanted, **kwargs)
            if len(results) != len(queries):
                raise InputError(f"batchsearch returned {len(results)} results for {len(queries)} queries.")
        else:
            search = self.embeddings.search
            results = [await _call_search(search, query, wanted, kwargs) for query in queries]
        return [[_to_dict(row, i) for i, row in enumerate(rows)] for rows in results]

    async def _rerank(self, query: str, rows: list[Row]) -> list[Row]:
        if not rows:
            return []
        texts = [self._text(row, i) for i, row in enumerate(rows)]
        pairs: Iterable[tuple[int, float | None]]
        if isinstance(self.similarity, Scorer):
            # By position: rows of other systems may have no id, or the same id twice.
            hits = [
                Hit(str(i), text, metadata=nested if isinstance(nested := row.get("metadata"), Mapping) else {})
                for i, (row, text) in enumerate(zip(rows, texts, strict=True))
            ]
            result = await self.similarity.score(query, hits, deadline=Deadline.never())
            pairs = enumerate(result.values)
        else:
            answer = await asyncio.to_thread(self.similarity, query, texts)
            pairs = await answer if inspect.isawaitable(answer) else answer
        scores = _scores_by_row(pairs, len(rows))
        # Stable: unscored rows and equal scores keep their order.
        order = sorted(range(len(rows)), key=lambda i: math.inf if (score := scores[i]) is None else -score)
        return [{**rows[i], "score": scores[i]} for i in order]

    def _text(self, row: Row, i: int) -> str:
        texts: list[str] = [row[key] for key in self.text_keys if isinstance(row.get(key), str)]
        if not texts:
            raise InputError(
                f"Row {i} (id {row.get('id')!r}) has no text under {', '.join(self.text_keys)}. "
                "The second stage needs it: keep content in the index (txtai: content=True), and select it."
            )
        return next((text for text in texts if text.strip()), texts[0])


async def _call_search(
    search: Callable[..., object], query: str, wanted: int, kwargs: Mapping[str, object]
) -> list[object]:
    """Search a store, or in a thread an index whose `search(query, limit)` is not async."""
    if inspect.iscoroutinefunction(search):
        return list(await search(query, k=wanted, **kwargs))
    # txtai calls it limit, Resift's stores k.
    name = "k" if "k" in inspect.signature(search).parameters else "limit"
    answer: JsonValue = await asyncio.to_thread(search, query, **{name: wanted}, **kwargs)
    return list(await answer if inspect.isawaitable(answer) else answer)


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
    """Return one score per row from (index, score) pairs; raises InputError for other indices."""
    scores: list[float | None] = [None] * size
    seen: set[int] = set()
    for index, score in pairs:
        try:
            i = operator.index(index)
        except TypeError:
            i = -1
        if not 0 <= i < size or i in seen:
            raise InputError(
                f"similarity returned index {index!r}; each must be one of 0 to {size - 1}, and only once."
            )
        seen.add(i)
        number = math.nan if score is None else float(score)
        scores[i] = number if math.isfinite(number) else None
    return scores
