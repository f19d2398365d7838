"""The first stage: sections by vectors, exactly, or by words where there is no embedder."""

from __future__ import annotations

from resift._internal.arrays import Array, np
from resift._internal.sync import run_sync
from resift.agent.evidence import VECTORS, WORDS
from resift.agent.pack import Pack
from resift.agent.pack_schema import WIKIGR
from resift.agent.widening import hit_from
from resift.errors import ResiftError, StoreError
from resift.protocols import Embedder
from resift.rerankers.bm25 import PoolBM25
from resift.stores.embedding import identity_of, unit_vectors
from resift.types import Hit


def by_vectors(pack: Pack, query: Array, k: int) -> list[Hit]:
    """Return the k sections whose vectors are nearest to the query's."""
    vectors = pack.vectors()
    scores = vectors.matrix @ query
    # Rows are in the order of ids, so that a stable sort breaks ties by id.
    order = np.argsort(-scores, kind="stable")[:k].tolist()
    rows = pack.sections([vectors.ids[at] for at in order])
    return [
        hit_from(row, score=float(scores[at]), source=VECTORS) for at, row in zip(order, rows, strict=True)
    ]


def by_words(pack: Pack, question: str, k: int) -> list[Hit]:
    """Return the k sections that cover most of the question's words; none that has no word of it."""
    texts = pack.texts()
    scores = PoolBM25().scores(question, [text for _, text in texts])
    found = sorted((-score, id) for (id, _), score in zip(texts, scores, strict=True) if score > 0)[:k]
    values = {id: -score for score, id in found}
    return [hit_from(row, score=values[row.id], source=WORDS) for row in pack.sections(list(values))]


def query_vector(embedder: Embedder, question: str) -> Array:
    """Return the unit vector of a question; blocks, so call it in a worker thread."""
    if hasattr(embedder, "embed_sync"):
        rows: Array = embedder.embed_sync([question], kind="query")
    else:
        rows = run_sync(unit_vectors(embedder, [question], kind="query", store="pack"))
    vector: Array = rows[0]
    return vector


def embedder_for(pack: Pack, given: Embedder | None) -> tuple[Embedder | None, str]:
    """Return the embedder of the pack's vectors, or why there is none."""
    if given is not None:
        # A WikiGR database does not record its embedder, so the caller knows better.
        if identity_of(given) != pack.embedder and pack.meta["format"] != WIKIGR:
            raise StoreError(
                f"{pack.name} was built with {pack.embedder}, not with {identity_of(given)}. "
                "Pass the embedder that it was built with, or build the pack anew."
            )
        return given, ""
    from resift.models.embedder import Embedder as LocalEmbedder

    try:
        return LocalEmbedder(pack.embedder), ""
    except (ValueError, ResiftError) as exc:
        return None, f"searched by words, because the embedder is not at hand: {exc}"
