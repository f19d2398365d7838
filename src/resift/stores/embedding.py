"""What stores ask of an embedder: unit vectors of one dimension, and a name to remember it by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from resift._internal.arrays import Array, np
from resift.errors import StoreError
from resift.protocols import Embedder


def identity_of(embedder: Embedder) -> str:
    """Return the name under which a store remembers whose vectors it holds."""
    for attribute in ("model_name", "model_id", "name"):
        given = getattr(embedder, attribute, None)
        if isinstance(given, str) and given:
            return given
    return type(embedder).__name__


async def unit_vectors(
    embedder: Embedder, texts: Sequence[str], *, kind: Literal["query", "document"], store: str
) -> Array:
    """Embed and return float32 rows of length one (all-zero rows stay), or raise StoreError."""
    rows = np.asarray(await embedder.embed(list(texts), kind=kind), dtype=np.float32)
    if rows.ndim != 2 or rows.shape[0] != len(texts) or rows.shape[1] == 0:
        raise StoreError(
            f"The embedder of {store!r} returned shape {rows.shape} for {len(texts)} texts; "
            "it must return one vector per text.",
            store=store,
        )
    if not np.isfinite(rows).all():
        raise StoreError(f"The embedder of {store!r} returned NaN or infinity.", store=store)
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    return np.ascontiguousarray(rows / np.where(lengths == 0, 1, lengths), dtype=np.float32)
