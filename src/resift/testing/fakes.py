"""Small working fakes: a store and a scorer that count shared words and can fail on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from resift.deadline import Deadline
from resift.errors import ProviderServerError, StoreError
from resift.external.candidates import Candidate, read_hits
from resift.types import Hit, Scores, Where
from resift.validation import check_k


def words(text: str) -> set[str]:
    """Return the lower-case words of a text."""
    return {"".join(filter(str.isalnum, word)) for word in text.casefold().split()} - {""}


class FakeStore:
    """A store that finds documents by shared words. `fails` makes it raise, `hangs` makes it never return."""

    def __init__(
        self,
        documents: Sequence[Candidate] = (),
        *,
        name: str = "fake",
        fails: bool = False,
        hangs: bool = False,
    ) -> None:
        self.name = name
        self.queries: list[str] = []
        self._hits = read_hits(documents, source=name)
        self._fails = fails
        self._hangs = hangs

    async def search(self, query: str, *, k: int, where: Where | None = None) -> list[Hit]:
        """Return at most k hits that share a word with the query."""
        check_k(k)
        self.queries.append(query)
        if self._hangs:
            await asyncio.Event().wait()
        if self._fails:
            raise StoreError(f"{self.name} is down", store=self.name, transient=True)
        query_words = words(query)
        scored = [
            replace(hit, score=float(len(query_words & words(hit.text))))
            for hit in self._hits
            if query_words & words(hit.text)
            and all(hit.metadata.get(key) == value for key, value in (where or {}).items())
        ]
        return sorted(scored, key=lambda hit: (-(hit.score or 0.0), hit.id))[:k]


class OverlapScorer:
    """A fast, deterministic scorer that counts the words a text shares with the query."""

    pointwise = True

    def __init__(self, name: str = "overlap", *, fails: bool = False) -> None:
        self.name = name
        self.calls = 0
        self._fails = fails

    async def score(self, query: str, hits: Sequence[Hit], *, deadline: Deadline) -> Scores:
        """Return the number of shared words per hit, or raise ProviderServerError with `fails`."""
        self.calls += 1
        if self._fails:
            raise ProviderServerError(f"{self.name} failed", provider=self.name, status=500)
        query_words = words(query)
        return Scores([float(len(query_words & words(hit.text))) for hit in hits], self.name)
