"""What every store on another engine shares: modes, over-fetching, ties, threads and error messages."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple, TypeVar

from resift._internal.arrays import Array
from resift._internal.environment import require_variable
from resift.errors import ResiftError, StoreError
from resift.models.embedder import NO_EMBEDDER, EmbedderOptions, embedding_models
from resift.models.registry import pin_advice
from resift.protocols import Embedder
from resift.stores.base import (
    HYBRID_DEPTH,
    Mode,
    SearchHits,
    Side,
    Workers,
    embed_texts,
    fuse_views,
    is_empty_search,
)
from resift.stores.filters import Condition, Test, list_conditions, parse_filter
from resift.types import Hit, JsonMapping, JsonObject, Where
from resift.validation import Options, check_text, option

T = TypeVar("T")

_SIDES: tuple[Side, Side] = ("text", "vectors")
_SCORE_TOLERANCE = 1e-5  # engines sum float32 in any order, so closer scores may be equal


@dataclass(frozen=True, kw_only=True)
class SearchOptions(EmbedderOptions):
    """Search options that several stores share."""

    embedder: str | None = option(
        "Model that embeds the query: a model's id, or `none` to search by keywords only.",
        default=None,
        choices=lambda: [NO_EMBEDDER, *embedding_models()],
        advice=pin_advice,
    )
    mode: Mode | None = option("Search by keywords, by vectors, or by both.", default=None)
    exact: bool | None = option("Compare every vector, even if an index would be faster.", default=None)


class ApiKeyOptions(Options):
    """Options with `api_key_env`, whose value is the argument `api_key` of the store."""

    def arguments(self) -> JsonObject:
        """Return the arguments of the store, with the API key from its variable."""
        arguments = super().arguments()
        variable = arguments.pop("api_key_env", None)
        return arguments if variable is None else {**arguments, "api_key": require_variable(str(variable))}


class Row(NamedTuple):
    """One row that an engine returned, with its score if it has one."""

    values: JsonMapping
    score: float | None = None


class BackendStore:
    """The part of a store that does not depend on its engine.

    Subclasses fetch rows: the best by keywords, or the nearest by vectors. If an approximate index returns
    too few rows that pass the filter, the search is repeated without it.
    """

    max_fetch: ClassVar[int] = sys.maxsize
    """Rows that are fetched at most to find k that pass the filter."""
    extra_rows: ClassVar[int] = 0
    """Rows fetched beyond k, because engines break ties differently; here they are broken by id."""

    def __init__(self, name: str, embedder: Embedder | None, mode: Mode, *, threads: int) -> None:
        self.name = check_text(name, "name")
        self.embedder = embedder
        self.mode: Mode = mode
        self._workers = Workers(name, threads=threads)

    async def search(self, query: str, *, k: int, where: Where | None = None) -> list[Hit]:
        """Return at most k hits whose metadata passes `where`, best first."""
        if self.mode != "hybrid":
            side: Side = "text" if self.mode == "text" else "vectors"
            return await self.search_side(side, query, k=k, where=where, source=self.name)
        depth = max(k, HYBRID_DEPTH) if k else 0
        sides = [
            await self.search_side(side, query, k=depth, where=where, source=f"{self.name}.{side}")
            for side in _SIDES
        ]
        return fuse_views(sides, k=k, source=self.name)

    async def search_side(
        self, side: Side, query: str, *, k: int, where: Where | None, source: str
    ) -> list[Hit]:
        """Search by keywords or by vectors alone."""
        if is_empty_search(query, k, where):
            return []
        tests = self._filter_tests(where)
        self._check_filter(list_conditions(tests))
        accepts_nothing = any(
            isinstance(test, Condition) and test.operator == "=" and not test.values for test in tests
        )
        if accepts_nothing or not await self._exists():
            return []
        if side == "text":
            return await self._search_text(query, tests, k, source)
        if self.embedder is None:
            return await self._collect(partial(self._fetch_by_query, query, tests), tests, k, source)
        vector = (await embed_texts(self.embedder, [query], kind="query", store=self.name))[0]
        self._check_dimension(len(vector))
        return await self._search_vectors(vector, tests, k, source)

    async def close(self) -> None:
        """Release connections and threads; the next call opens new ones where the engine allows it."""
        self.release()

    def release(self) -> None:
        """Do the same without an event loop."""
        self._disconnect()
        self._workers.close()

    async def _search_text(self, query: str, tests: Sequence[Test], k: int, source: str) -> list[Hit]:
        return await self._collect(partial(self._fetch_text, query, tests), tests, k, source)

    async def _search_vectors(self, vector: Array, tests: Sequence[Test], k: int, source: str) -> list[Hit]:
        exact = not await self._has_vector_index()
        fetch = partial(self._fetch_nearest, vector, tests)
        hits = await self._collect(partial(fetch, exact=exact), tests, k, source)
        if not exact and len(hits) < k:  # a filtered search of an approximate index may stop early
            exact = True
            hits = await self._collect(partial(fetch, exact=True), tests, k, source)
        hits.approximate = hits.approximate or not exact
        return hits

    async def _collect(
        self, fetch: Callable[[int], Awaitable[list[Row]]], tests: Sequence[Test], k: int, source: str
    ) -> SearchHits:
        """Fetch until k rows pass the tests and no further row can tie with the last of them."""
        limit = k + self.extra_rows
        while True:
            rows = await fetch(limit)
            passing = [row for row in rows if self._passes(row, tests)] if tests else rows
            complete = len(rows) < limit or (len(passing) >= k and not self._may_tie(passing[k - 1], rows))
            if complete or limit >= self.max_fetch:
                break
            # Four times as many: selective tests would otherwise query the engine again and again.
            limit = min(self.max_fetch, max(100, 4 * limit))
        hits = SearchHits(self._make_hits(passing, source)[:k], approximate=not complete)
        if not complete:
            hits.warning = (
                f"{self.name}: only {len(passing)} of the best {limit:,} rows pass the filter, and further "
                "rows were not read. Narrow it with a filter that the engine can test."
            )
        return hits

    def _may_tie(self, last: Row, rows: Sequence[Row]) -> bool:
        if not self.extra_rows:
            return False
        return (last.score or 0.0) - (rows[-1].score or 0.0) <= _SCORE_TOLERANCE

    def _make_hits(self, rows: Iterable[Row], source: str) -> list[Hit]:
        hits = [self._make_hit(row, source) for row in rows]
        repeated = [id for id, count in Counter(hit.id for hit in hits).items() if count > 1]
        if repeated:
            raise StoreError(
                f"Two rows of {self.name!r} have the id {repeated[0]!r}; name a unique column with id=, or "
                "several.",
                store=self.name,
            )
        if all(hit.score is None for hit in hits):
            return hits  # the order of the engine is all there is
        return sorted(hits, key=lambda hit: (hit.score is None, -(hit.score or 0.0), hit.id))

    async def _work(self, job: Callable[[], T], *, interrupt: Callable[[], None] | None = None) -> T:
        """Run blocking work in a thread; errors of the engine become StoreError.

        When the caller gives up, at its deadline for instance, `interrupt` stops the engine.
        """
        try:
            return await self._workers.run(job)
        except asyncio.CancelledError:
            if interrupt is not None:
                interrupt()
            raise
        except ResiftError:
            raise
        except Exception as exc:
            raise self._explain(exc) from exc

    # Implemented by engines

    def _filter_tests(self, where: Where | None) -> list[Test]:
        return parse_filter(where)

    def _check_filter(self, conditions: Sequence[Condition]) -> None:
        """Raise InputError for a condition on a column that does not exist."""

    def _check_dimension(self, dimension: int) -> None:
        """Raise StoreError if the vectors of the table have another length."""

    async def _exists(self) -> bool:
        """Return whether there is a table to search."""
        return True

    async def _has_vector_index(self) -> bool:
        """Return whether vector search is approximate."""
        return False

    async def _fetch_text(self, query: str, tests: Sequence[Test], limit: int) -> list[Row]:
        """Return the best rows by keywords, best first; some may fail the tests."""
        raise NotImplementedError

    async def _fetch_nearest(
        self, vector: Array, tests: Sequence[Test], limit: int, *, exact: bool
    ) -> list[Row]:
        """Return the nearest rows, best first; some may fail the tests."""
        raise NotImplementedError

    async def _fetch_by_query(self, query: str, tests: Sequence[Test], limit: int) -> list[Row]:
        """Do the same with a query that the engine embeds."""
        raise NotImplementedError

    def _passes(self, row: Row, tests: Sequence[Test]) -> bool:
        raise NotImplementedError

    def _make_hit(self, row: Row, source: str) -> Hit:
        raise NotImplementedError

    def _explain(self, exc: Exception) -> StoreError:
        """Return the error to raise for one of the engine's, whose message may quote documents."""
        return StoreError(f"Store {self.name!r} failed: {type(exc).__name__}.", store=self.name)

    def _disconnect(self) -> None:
        """Close connections that this store opened."""
