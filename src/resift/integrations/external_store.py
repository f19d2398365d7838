"""An index that belongs to somebody else, as a store to search: read only, nothing is copied."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from resift.errors import ResiftError, StoreError
from resift.external.candidates import Candidate, hits_from
from resift.external.records import ID_KEYS
from resift.resilience import CircuitBreaker
from resift.stores.documents import SearchHits, nothing_to_find
from resift.stores.filtering import matches
from resift.types import Hit, Metadata, Where
from resift.validation import check_callable, check_list, check_text

_FIRST_FETCH = 4
_MOST_FETCHED = 2_000


class Found(NamedTuple):
    """One document that the index found; `score` is None where the index tells only an order."""

    id: str
    text: str
    score: float | None
    metadata: Metadata


Row = Found | Candidate
Fetch = Callable[[str, int], Awaitable[Sequence[Row]] | Sequence[Row]]
"""Returns up to k documents of the index for a query, best first. An async function, or a plain one."""

_MISTAKES = (TypeError, AttributeError, LookupError, NameError, ImportError, NotImplementedError)
"""Exceptions of faulty code. Their texts name variables and keys, so they may be shown."""


class ExternalStore:
    """Asks an index through one function, and keeps what stores promise: k, filters, order, no raw errors.

    The function may be async or plain; a plain one runs in a thread. It returns `Found`, hits or dicts.
    `where` is applied to what the index returns: more is fetched until k documents pass or the index has no
    more; after 2,000 the list says that it is approximate. A breaker stops asking an index that keeps
    failing, so that it costs a search no time.
    """

    kind = "search"

    def __init__(self, name: str, fetch: Fetch, *, breaker: CircuitBreaker | None = None) -> None:
        self.name = check_text(name, "The name of a store")
        check_callable(fetch, "fetch", "a function of a query and k that returns documents")
        self._fetch = fetch
        self.breaker = breaker or CircuitBreaker(name=name)

    async def search(self, query: str, *, k: int, where: Where | None = None) -> list[Hit]:
        """Return at most k hits, best first, whose metadata matches `where`."""
        if nothing_to_find(query, k, where):
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
                return _found_documents(await self._answer(query, k))
        except ResiftError:
            raise
        except Exception as exc:
            # The text of a client's exception may quote a document or a key; that of faulty code does not.
            reason = f"{type(exc).__name__}{f': {exc}' if isinstance(exc, _MISTAKES) else ''}"
            raise StoreError(f"{self.name} failed: {reason}", store=self.name) from exc

    async def _answer(self, query: str, k: int) -> Sequence[Row]:
        fetch = self._fetch
        if inspect.iscoroutinefunction(fetch) or inspect.iscoroutinefunction(type(fetch).__call__):
            answer = fetch(query, k)
        else:
            answer = await asyncio.to_thread(fetch, query, k)
        # A plain function may also return the coroutine of another one.
        return await answer if inspect.isawaitable(answer) else answer

    def _hits(self, found: Sequence[Found], k: int) -> list[Hit]:
        best: dict[str, Found] = {}
        for one in found:
            best.setdefault(one.id, one)
        rows = list(best.values())
        scores = [row.score for row in rows if row.score is not None]
        if len(scores) == len(rows):
            rows.sort(key=lambda row: (-(row.score or 0.0), row.id))
        return [Hit(row.id, row.text, row.score, self.name, dict(row.metadata)) for row in rows[:k]]


def _found_documents(answer: Iterable[Row]) -> list[Found]:
    """Return the rows of an answer in one form; raises InputError for rows of unknown types."""
    rows = check_list(answer, "The answer of fetch", "Found, dicts or Hits")
    found = []
    for row in rows:
        if isinstance(row, Found):
            found.append(row if isinstance(row.id, str) else row._replace(id=str(row.id)))
        else:
            [hit] = hits_from([row], flags={})
            # Without an id, texts are named by their content: two answers agree on it.
            own = isinstance(row, Hit) or (
                isinstance(row, Mapping) and any(row.get(key) is not None for key in ID_KEYS)
            )
            found.append(Found(hit.id if own else id_from(hit.text), hit.text, hit.score, hit.metadata))
    return found


def id_from(text: str) -> str:
    """Name a document that has no id by its content, so that two lists agree on it."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
