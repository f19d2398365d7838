"""Candidates that only the graph knows of: the best section of each article around the hits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from resift._internal.arrays import Array
from resift.agent.evidence import VECTORS, WORDS
from resift.agent.expansion import Neighbourhood
from resift.agent.pack import Pack, SectionRow
from resift.types import Fused, Hit, StageKind, StageRecord, by_score, record_of

STAGE = "graph expansion"


def hit_from(row: SectionRow, *, score: float, source: str) -> Hit:
    """Return a section as a hit."""
    metadata = {
        "article": row.article,
        "title": row.title,
        "heading": row.heading,
        "position": row.position,
    }
    return Hit(row.id, f"{row.heading}\n{row.text}", score, source, metadata)


def retrieved(hits: Sequence[Hit], source: str, notes: Mapping[str, str] | None = None) -> StageRecord:
    """Return the record of a first-stage list."""
    record = record_of(StageKind.RETRIEVE, "retrieve", hits, scored=True, source=source, notes=notes)
    return replace(record, searched={VECTORS: "vector", WORDS: "doc"}.get(source, ""))


def widened(pack: Pack, query: Array, around: Neighbourhood, *, known: Collection[str], most: int) -> Fused:
    """Return the best section of each neighbouring article by cosine with the query vector, best first."""
    near = {article: hops for article, hops in around.distance.items() if hops > 0}
    best = _best_sections(pack, query, near, known)
    order = sorted(best, key=lambda id: (-best[id], id))[:most]
    rows = pack.sections(order)
    hits = [hit_from(row, score=best[row.id], source=VECTORS) for row in rows]
    return Fused(hits, retrieved(hits, VECTORS, {row.id: _by_link(near[row.article]) for row in rows}))


def merged(hits: Sequence[Hit], extra: Sequence[Hit], left_out: Sequence[Hit] = ()) -> Fused:
    """Return both in one order by score, and the record of it."""
    order = sorted([*hits, *extra], key=by_score)
    notes = {hit.id: "not scored in time" for hit in left_out}
    return Fused(order, record_of(StageKind.FUSE, STAGE, order, left_out, notes=notes))


def _best_sections(
    pack: Pack, query: Array, near: Mapping[str, int], known: Collection[str]
) -> dict[str, float]:
    vectors = pack.vectors()
    rows = [
        at for at, article in enumerate(vectors.articles) if article in near and vectors.ids[at] not in known
    ]
    if not rows:
        return {}
    found: dict[str, tuple[float, str]] = {}
    for at, score in zip(rows, (vectors.matrix[rows] @ query).tolist(), strict=True):
        article = vectors.articles[at]
        held = found.get(article)
        if held is None or score > held[0]:
            found[article] = (score, vectors.ids[at])
    return {id: float(score) for score, id in found.values()}


def _by_link(hops: int) -> str:
    return f"by a link, {hops} hop{'s' if hops > 1 else ''} away"
