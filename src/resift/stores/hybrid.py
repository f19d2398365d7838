"""Two ways of finding in one store: each as a store of its own, and RRF(60) of both."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

from resift.stores.documents import SearchHits, is_approximate
from resift.types import Hit, Where

Side = Literal["text", "vectors"]

DEPTH = 100
"""How deep each side is read at least, so that a hit both sides know can rise above their tops."""


class StoreView:
    """A store that finds by words only, or by vectors only: `docs.text`, `docs.vectors`.

    `find` is how the store itself looks on that side.
    """

    def __init__(self, store: Any, side: Side, find: Callable[..., Awaitable[list[Hit]]]) -> None:
        self.store = store
        self.kind = "doc" if side == "text" else "vector"
        self.name = f"{store.name}.{side}"
        self._find = find

    async def search(self, query: str, *, k: int, where: Where | None = None) -> list[Hit]:
        """Return at most k hits, best first, whose metadata passes `where`."""
        return await self._find(query, k=k, where=where, source=self.name)


class LazyView(StoreView):
    """A view of a store whose hits can load text and metadata later."""

    async def search_lazy(self, query: str, *, k: int, where: Where | None = None) -> list[Hit]:
        """Search, but load text and metadata of a hit when they are first used."""
        return await self._find(query, k=k, where=where, source=self.name, lazy=True)


def fuse_views(views: Sequence[Sequence[Hit]], *, k: int, source: str) -> list[Hit]:
    """Return the fused best k, as hits of the store itself."""
    from resift.ranking.fusion import rrf

    # Ranks only: BM25 and cosine have no common scale.
    fused = rrf([list(view) for view in views], k_param=60, k=k)
    hits = [replace(hit, source=source) for hit in fused]
    return SearchHits(hits, approximate=any(map(is_approximate, views)))
