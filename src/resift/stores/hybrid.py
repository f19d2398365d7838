"""Hybrid search inside one store: RRF(60) of what its words and its vectors found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from resift.stores.documents import SearchHits, is_approximate
from resift.types import Hit

DEPTH = 100
"""How deep each side is read at least, so that a hit both sides know can rise above their tops."""


def fuse_views(views: Sequence[Sequence[Hit]], *, k: int, source: str) -> list[Hit]:
    """Return the fused best k, as hits of the store itself."""
    from resift.fusion import rrf

    fused = rrf([list(view) for view in views], k_param=60, k=k)
    hits = [replace(hit, source=source) for hit in fused]
    return SearchHits(hits, approximate=any(map(is_approximate, views)))
