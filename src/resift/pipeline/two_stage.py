"""Two-stage search: a broad first search, then a careful second look at what it found."""

from __future__ import annotations

import asyncio
import inspect
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, overload, runtime_checkable

from resift._internal.sync import run_sync
from resift.deadline import Deadline
from resift.errors import InputError
from resift.pipeline.over_fetch import OverFetch
from resift.protocols import DocStore, Scorer, Similarity
from resift.types import Hit, JsonMapping, JsonObject, Metadata
from resift.validation import check_k

Row = JsonObject

TEXT_KEYS = ("text", "content", "title")
"""Where the text of a row is looked for; the first that has some counts."""


class _Default(int):
    """A number that can be told from the same number given by a caller."""


TEN = _Default(10)


@runtime_checkable
class BatchSearch(Protocol):
    """txtai's shape of a search: many questions at once."""

    def batchsearch(self, queries: list[str], limit: int, **kwargs: Any) -> list[list[Any]]:
        """Return the rows found for each question."""
        ...


class TwoStage:
    """Searches `embeddings` for `limit*factor` rows and lets `similarity` choose the best `limit`.

    `embeddings`: a store, or an object with txtai's `batchsearch(queries, limit, **kwargs)` that keeps
    content. `similarity`: a callable `(query, texts)` that yields `(index, score)`, or a scorer. Rows
    that nobody judged stand last in their old order, with score None.
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
            raise InputError(
                f"embeddings is a {type(embeddings).__name__} without `batchsearch` or `search`."
            )
        if not callable(similarity) and not isinstance(similarity, Scorer):
            raise InputError(f"similarity is a {type(similarity).__name__}; pass a callable or a scorer.")
        self.embeddings = embeddings
        self.similarity = similarity
        self.fetch = fetch or OverFetch()
        self.text_keys = tuple(text_keys)

    @overload
    def __call__(self, query: str, limit: int = 3, factor: int = TEN, **kwargs: Any) -> list[Row]: ...
    @overload
    def __call__(
        self, query: list[str], limit: int = 3, factor: int = TEN, **kwargs: Any
    ) -> list[list[Row]]: ...
    def __call__(
        self, query: str | list[str], limit: int = 3, factor: int = TEN, **kwargs: Any
    ) -> list[Row] | list[list[Row]]:
        """Return the best rows for a query, or one list of rows per query for a list."""
        return run_sync(self.search(query, limit, factor, **kwargs))

    def batch(
        self, queries: Sequence[str], limit: int = 3, factor: int = TEN, **kwargs: Any
    ) -> list[list[Row]]:
        """Return one list of rows per query."""
        return self(list(queries), limit, factor, **kwargs)

    async def search(
        self, query: str | list[str], limit: int = 3, factor: int = TEN, **kwargs: Any
    ) -> list[Row] | list[list[Row]]:
        """Do what a call does, async. A `factor` given here replaces that of the fetch policy."""
        queries = _queries(query)
        check_k(limit, name="limit")
        policy = self.fetch if factor is TEN else replace(self.fetch, factor=factor)
        if limit == 0 or not queries:
            ranked: list[list[Row]] = [[] for _ in queries]
        else:
            found = await self._first(queries, policy(limit), kwargs)
            ranked = [(await self._second(q, rows))[:limit] for q, rows in zip(queries, found, strict=True)]
        return ranked[0] if isinstance(query, str) else ranked

    async def _first(self, queries: list[str], wanted: int, kwargs: JsonMapping) -> list[list[Row]]:
        if isinstance(self.embeddings, BatchSearch):
            found = await asyncio.to_thread(self.embeddings.batchsearch, queries, wanted, **kwargs)
            if len(found) != len(queries):
                raise InputError(f"batchsearch gave {len(found)} results for {len(queries)} queries.")
        else:
            search = self.embeddings.search
            found = [await _searched(search, query, wanted, kwargs) for query in queries]
        return [[_row(row, place) for place, row in enumerate(rows)] for rows in found]

    async def _second(self, query: str, rows: list[Row]) -> list[Row]:
        if not rows:
            return []
        texts = [self._text(row, place) for place, row in enumerate(rows)]
        scores = await self._scores(query, rows, texts)
        # Stable: what nobody judged keeps its order, and so do equal scores.
        order = sorted(range(len(rows)), key=lambda at: math.inf if (one := scores[at]) is None else -one)
        return [{**rows[at], "score": scores[at]} for at in order]

    def _text(self, row: Row, place: int) -> str:
        texts: list[str] = [row[key] for key in self.text_keys if isinstance(row.get(key), str)]
        if not texts:
            raise InputError(
                f"Row {place} (id {row.get('id')!r}) has no text under {', '.join(self.text_keys)}. "
                "The second stage reads it: keep content in the index (txtai: content=True), and select it."
            )
        return next((text for text in texts if text.strip()), texts[0])

    async def _scores(self, query: str, rows: list[Row], texts: list[str]) -> list[float | None]:
        if isinstance(self.similarity, Scorer):
            # By place and not by the row's own id: rows of strangers may have none, or one twice.
            hits = [
                Hit(str(at), text, metadata=_metadata(row))
                for at, (row, text) in enumerate(zip(rows, texts, strict=True))
            ]
            given = await self.similarity.score(query, hits, deadline=Deadline.never())
            return _paired(enumerate(given.values), len(rows))
        pairs = await asyncio.to_thread(self.similarity, query, texts)
        return _paired(await pairs if inspect.isawaitable(pairs) else pairs, len(rows))


async def _searched(search: Callable[..., Any], query: str, wanted: int, kwargs: JsonMapping) -> list[Any]:
    """Ask a store, or an index whose `search(query, limit)` is not async: that one in a thread."""
    if inspect.iscoroutinefunction(search):
        found: list[Any] = await search(query, k=wanted, **kwargs)
        return found
    # txtai calls it limit, Resift's stores k.
    named = "k" if "k" in inspect.signature(search).parameters else "limit"
    rows = await asyncio.to_thread(search, query, **{named: wanted}, **kwargs)
    return list(await rows if inspect.isawaitable(rows) else rows)


def _queries(query: object) -> list[str]:
    queries = [query] if isinstance(query, str) else query
    if not isinstance(queries, (list, tuple)) or not all(isinstance(one, str) for one in queries):
        raise InputError(f"The query is a {type(query).__name__}; pass a string or a list of strings.")
    return list(queries)


def _row(row: object, place: int) -> Row:
    if isinstance(row, Hit):
        return row.to_dict()
    if isinstance(row, Mapping):
        return dict(row)
    raise InputError(
        f"The first stage gave a {type(row).__name__} as row {place}, not a dict: content is not stored. "
        "Build the index with content=True, so that the second stage has texts to read."
    )


def _metadata(row: Row) -> Metadata:
    nested = row.get("metadata")
    return nested if isinstance(nested, Mapping) else {}


def _paired(pairs: Iterable[tuple[int, float | None]], size: int) -> list[float | None]:
    """Return one score per row from (index, score) pairs; refuse indices that are not rows."""
    scores: list[float | None] = [None] * size
    seen: set[int] = set()
    for index, score in pairs:
        try:
            at = operator.index(index)
        except TypeError:
            at = -1
        if not 0 <= at < size or at in seen:
            raise InputError(
                f"similarity gave index {index!r}; each must be one of 0 to {size - 1}, and only once."
            )
        seen.add(at)
        number = math.nan if score is None else float(score)
        scores[at] = number if math.isfinite(number) else None
    return scores
