"""An index that belongs to somebody else, as a store to search: read only, nothing is copied."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from resift.errors import InputError, ResiftError, StoreError
from resift.resilience import CircuitBreaker
from resift.stores.documents import SearchHits
from resift.stores.filtering import matches
from resift.types import Hit, Metadata, Where

_FIRST_FETCH = 4
_MOST_FETCHED = 2_000


class Found(NamedTuple):
    """One document that the index found; `score` is None where the index tells only an order."""

    id: str
    text: str
    score: float | None
    metadata: Metadata


Fetch = Callable[[str, int], Awaitable[Sequence[Found]]]
"""Asks the index for so many documents, best first."""


class ExternalStore:
    """Asks an index through one function, and keeps what stores promise: k, filters, order, no raw errors.

    `where` is applied to what the index returns: more is fetched until k documents pass or the index has no
    more; after 2,000 the list says that it is approximate. A breaker stops asking an index that keeps
    failing, so that it costs a search no time.
    """

    kind = "search"

    def __init__(self, name: str, fetch: Fetch, *, breaker: CircuitBreaker | None = None) -> None:
        self.name = name
        self._fetch = fetch
        self.breaker = breaker or CircuitBreaker(name=name)

    async def search(self, query: str, *, k: int, where: Where | None = None) -> list[Hit]:
        """Return at most k hits, best first, whose metadata matches `where`."""
        if isinstance(k, bool) or not isinstance(k, int) or k < 0:
            raise InputError(f"k is {k!r}; ask for a whole number of hits ≥ 0.")
        if k == 0 or not query.strip():
            return []
        wanted = k if where is None else k * _FIRST_FETCH
        while True:
            found = await self._guarded(query, wanted)
            passing = [one for one in found if where is None or matches(one.metadata, where)]
            complete = len(passing) >= k or len(found) < wanted
            if complete or wanted >= _MOST_FETCHED:
                return SearchHits(self._hits(passing, k), approximate=not complete)
            wanted = min(wanted * 4, _MOST_FETCHED)

    async def _guarded(self, query: str, k: int) -> Sequence[Found]:
        try:
            async with self.breaker.guard():
                return await self._fetch(query, k)
        except ResiftError:
            raise
        except Exception as exc:
            # The text of somebody else's exception may quote a document or a key; its type cannot.
            raise StoreError(f"{self.name} failed: {type(exc).__name__}", store=self.name) from exc

    def _hits(self, found: Sequence[Found], k: int) -> list[Hit]:
        best: dict[str, Found] = {}
        for one in found:
            best.setdefault(one.id, one)
        rows = list(best.values())
        scores = [row.score for row in rows if row.score is not None]
        if len(scores) == len(rows):
            rows.sort(key=lambda row: (-(row.score or 0.0), row.id))
        return [Hit(row.id, row.text, row.score, self.name, dict(row.metadata)) for row in rows[:k]]


def id_from(text: str) -> str:
    """Name a document that has no id by its content, so that two lists agree on it."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
