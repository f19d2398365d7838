"""Candidates that only the graph knows of: the best section of each article around the hits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from resift.agent.evidence import VECTORS
from resift.agent.expansion import Neighbourhood
from resift.agent.pack import Pack, SectionRow
from resift.types import Hit, Ledger, Step

STAGE = "widen"


def hit_from(
    row: SectionRow, *, rank: int, score: float, source: str, stage: str = "retrieve", note: str = ""
) -> Hit:
    """Return a section as a hit whose ledger begins with how it was found."""
    metadata = {
        "article": row.article,
        "title": row.title,
        "heading": row.heading,
        "position": row.position,
    }
    ledger = Ledger((Step(stage, source, rank, score, note),))
    return Hit(row.id, f"{row.heading}\n{row.text}", score, source, metadata, ledger)


def widened(pack: Pack, query: Any, around: Neighbourhood, *, known: Collection[str], most: int) -> list[Hit]:
    """Return the best section of each neighbouring article by cosine with the query vector, best first."""
    near = {article: hops for article, hops in around.distance.items() if hops > 0}
    best = _best_sections(pack, query, near, known)
    order = sorted(best, key=lambda id: (-best[id], id))[:most]
    rows = pack.sections(order)
    return [
        hit_from(row, rank=rank, score=best[row.id], source=VECTORS, note=_told(near[row.article]))
        for rank, row in enumerate(rows, start=1)
    ]


def merged(hits: Sequence[Hit], extra: Sequence[Hit]) -> list[Hit]:
    """Return both in one order by score; each hit's ledger notes its new place."""
    order = sorted([*hits, *extra], key=lambda hit: (-hit.score, hit.id))
    return [hit.step(STAGE, "graph", rank=rank, score=None) for rank, hit in enumerate(order, start=1)]


def _best_sections(
    pack: Pack, query: Any, near: Mapping[str, int], known: Collection[str]
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


def _told(hops: int) -> str:
    return f"by a link, {hops} hop{'s' if hops > 1 else ''} away"
