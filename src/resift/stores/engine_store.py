"""What the stores on other engines share: how a search is made of an engine's two kinds of answers.

An engine says how it finds the nearest vectors and the rows that hold some terms. When it used an index that
may pass over rows, and too few rows passed the filter, the question is asked again without the index.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar, TypeVar

from resift._internal.arrays import Array
from resift.errors import InputError, ResiftError, StoreError
from resift.protocols import Embedder
from resift.stores.documents import SearchHits, nothing_to_find, ranked
from resift.stores.embedding import identity_of, unit_vectors
from resift.stores.hybrid import DEPTH, fuse_views
from resift.stores.memory import Mode, resolve_mode
from resift.stores.records import Filter, Row, enough, found_by_vector, found_by_words
from resift.stores.workers import Workers
from resift.text import Analyzer
from resift.types import Hit, Where
from resift.validation import check_choice

T = TypeVar("T")


class EngineStore:
    """The part of a store that does not depend on its engine."""

    indexes: ClassVar[tuple[str, ...]] = ("",)
    """The kinds of vector index that `optimise` can build."""

    def __init__(
        self,
        name: str,
        embedder: Embedder | None,
        mode: Mode | None,
        *,
        language: str | None = None,
        exact: bool = False,
        threads: int,
        index: str = "",
    ) -> None:
        self.name = name
        self.index = check_choice(index, self.indexes, f"index of {name}")
        self.embedder = embedder
        self.mode: Mode = resolve_mode(mode, embedder, default="vector")
        self.exact = exact
        self._language = language
        self._workers = Workers(name, threads=threads)
        Analyzer(language or "auto")  # refuses a language that there is none of

    async def search(self, query: str, *, k: int, where: Where | None = None) -> list[Hit]:
        """Return at most k hits, best first, whose metadata passes `where`."""
        wanted = Filter.of(where)
        if nothing_to_find(query, k) or wanted.empty or not await self._exists():
            return []
        if wanted.groups and not await self._tags_lists():
            wanted = Filter.untagged(where)
        if self.mode == "text":
            return await self._by_words(query, wanted, k, self.name)
        if self.mode == "vector":
            return await self._by_vector(query, wanted, k, self.name)
        depth = max(k, DEPTH)
        text = await self._by_words(query, wanted, depth, f"{self.name}.text")
        vectors = await self._by_vector(query, wanted, depth, f"{self.name}.vectors")
        return fuse_views([text, vectors], k=k, source=self.name)

    async def _by_vector(self, query: str, wanted: Filter, k: int, source: str) -> list[Hit]:
        assert self.embedder is not None  # noqa: S101 - resolve_mode refuses vector mode without one
        asked = (await unit_vectors(self.embedder, [query], kind="query", store=self.name))[0]
        approximate = not self.exact and await self._has_index()

        async def fetch(limit: int) -> list[Row]:
            return await self._nearest(asked, wanted.groups, limit, exact=not approximate)

        rows = await enough(fetch, k, wanted.tests)
        if approximate and len(rows) < k:
            approximate = False
            rows = await enough(fetch, k, wanted.tests)
        hits = ranked(found_by_vector(rows, asked), k=k, source=source)
        return SearchHits(hits, approximate=approximate)

    async def _by_words(self, query: str, wanted: Filter, k: int, source: str) -> list[Hit]:
        terms = list(dict.fromkeys((await self._analyzer()).query_terms(query)))
        if not terms:
            return []
        rows = await enough(lambda limit: self._matching(terms, wanted.groups, limit), k, wanted.tests)
        return ranked(found_by_words(rows), k=k, source=source)

    async def _analyzer(self) -> Analyzer:
        """Return the analysis that the table's terms were made with, for a new table the one asked for."""
        held = await self._table_language()
        if held is None:
            return Analyzer(self._language or "auto")
        if self._language not in (None, held):
            raise InputError(
                f"The table of {self.name!r} was made with language {held!r}, not {self._language!r}. "
                "Leave language out, or use another table."
            )
        return Analyzer(held)

    async def _work(self, job: Callable[[], T]) -> T:
        """Run blocking work in a worker thread; failures of the engine become StoreError."""
        try:
            return await self._workers.run(job)
        except (ResiftError, asyncio.CancelledError):
            raise
        except Exception as exc:
            raise self._failure(exc) from exc

    @property
    def _identity(self) -> str:
        return "" if self.embedder is None else identity_of(self.embedder)

    async def _exists(self) -> bool:
        """Say whether there is a table to search."""
        raise NotImplementedError

    async def _table_language(self) -> str | None:
        """Return the language of the table's terms, None while there is no table."""
        return None

    async def _tags_lists(self) -> bool:
        """Return whether the rows' tags include the items of lists; tables of Resift 0.2 have none."""
        raise NotImplementedError

    async def _has_index(self) -> bool:
        """Say whether vectors are found by an index that may pass over some."""
        return False

    async def _nearest(self, asked: Array, groups: list[list[str]], limit: int, *, exact: bool) -> list[Row]:
        """Return the rows with a tag of every group that are nearest, best first."""
        raise NotImplementedError

    async def _matching(self, terms: list[str], groups: list[list[str]], limit: int) -> list[Row]:
        """Return the rows with a tag of every group that hold any of the terms, best first."""
        raise NotImplementedError

    def _failure(self, exc: Exception) -> StoreError:
        """Return the error to raise for one of the engine's; engines' messages may quote documents."""
        return StoreError(f"Store {self.name!r} failed: {type(exc).__name__}.", store=self.name)
