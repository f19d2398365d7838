"""Hybrid search inside one store: RRF(60) of what its words and its vectors found."""

from __future__ import annotations

from collections.abc import Sequence

from resift.stores.documents import Found, SearchHits, is_approximate, ranked
from resift.types import Hit

DEPTH = 100
"""How deep each side is read at least, so that a hit both sides know can rise above their tops."""


def fuse_views(views: Sequence[Sequence[Hit]], *, k: int, source: str) -> list[Hit]:
    """Return the fused best k; the store's one ledger step notes the place each side gave the hit."""
    from resift.fusion import rrf

    places = [{hit.id: rank for rank, hit in enumerate(view, start=1)} for view in views]
    names = [view[0].source.rpartition(".")[2] if view else "" for view in views]
    fused = rrf([list(view) for view in views], k_param=60, k=k)
    found = [Found(hit.id, hit.text, hit.score, hit.metadata, _note(hit.id, names, places)) for hit in fused]
    return SearchHits(ranked(found, k=k, source=source), approximate=any(map(is_approximate, views)))


def _note(id: str, names: Sequence[str], places: Sequence[dict[str, int]]) -> str:
    seen = zip(names, places, strict=True)
    return ", ".join(f"{name} rank {place[id]}" for name, place in seen if id in place)
