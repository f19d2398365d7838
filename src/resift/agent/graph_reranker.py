"""Centrality: personalised PageRank (Page et al., 1999; Haveliwala, 2002) around what was found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from resift.agent.expansion import Neighbourhood
from resift.errors import InputError, require
from resift.types import Fused, Hit, StageKind, StageRecord, Trace, trace_of, with_scores
from resift.validation import check_fields

STAGE = "centrality"
PARTS = ("relevance", "similarity", "pagerank")


@dataclass(frozen=True)
class GraphReranker:
    """Mixes relevance, similarity of vectors, and how central a hit's article is around all hits.

    The walk starts at the hits, in proportion to their relevance, and follows links both ways. All three
    parts are spread over 0 to 1 within the pool before they are weighted. A neighbourhood with fewer
    than `min_mean_degree` links per article says nothing about centrality: it then counts for nothing,
    and the record says so.
    """

    name: ClassVar[str] = "graph"

    relevance_weight: float = 0.5
    vector_weight: float = 0.4
    centrality_weight: float = 0.1
    _: KW_ONLY
    damping: float = 0.85
    min_mean_degree: float = 2.0

    def __post_init__(self) -> None:
        check_fields(self)
        if min(self.weights) < 0 or not math.isclose(math.fsum(self.weights), 1.0, abs_tol=1e-9):
            raise InputError(f"The weights are {self.weights}; they must not be negative and must sum to 1.")
        if not 0 < self.damping < 1:
            raise InputError(f"damping is {self.damping}; pass a number between 0 and 1, such as 0.85.")

    @property
    def weights(self) -> tuple[float, float, float]:
        """The weights of relevance, similarity of vectors and centrality."""
        return self.relevance_weight, self.vector_weight, self.centrality_weight

    def off_because(self, around: Neighbourhood) -> str:
        """Return why centrality says nothing here, or an empty string when it does."""
        degree = around.mean_degree
        if degree >= self.min_mean_degree:
            return ""
        least = self.min_mean_degree
        return f"graph too sparse for centrality: {degree:.1f} links per article, {least:g} needed"

    def rerank(self, hits: Sequence[Hit], around: Neighbourhood, *, trace: Trace | None = None) -> Fused:
        """Return the hits in their new order; scores are between 0 and 1 afterwards.

        The similarity of vectors is what the first stage of the trace said; a ranking brings its own.
        """
        off = self.off_because(around)
        weights = self._weights_without_graph() if off else self.weights
        relevance = _spread({hit.id: hit.score or 0.0 for hit in hits})
        cosines = _first_scores(trace_of(hits) if trace is None else trace)
        similarity = _spread({hit.id: cosines.get(hit.id, hit.score or 0.0) for hit in hits})
        ranks = {} if off else self.pagerank(around, _starts(hits, relevance))
        central = _spread({hit.id: ranks.get(article_of(hit), 0.0) for hit in hits})
        parts = {
            name: {id: weight * value for id, value in part.items()}
            for name, weight, part in zip(PARTS, weights, (relevance, similarity, central), strict=True)
        }
        totals = {hit.id: math.fsum(part[hit.id] for part in parts.values()) for hit in hits}
        order = sorted(hits, key=lambda hit: (-totals[hit.id], hit.id))
        ids = tuple(hit.id for hit in order)
        scores = tuple(totals[id] for id in ids)
        record = StageRecord(kind=StageKind.RERANK, name=STAGE, ids=ids, scores=scores, parts=parts, note=off)
        return Fused(with_scores(order, scores), record)

    def _weights_without_graph(self) -> tuple[float, float, float]:
        relevance, similarity, _ = self.weights
        both = math.fsum((relevance, similarity))
        return (relevance / both, similarity / both, 0.0) if both else (1.0, 0.0, 0.0)

    def pagerank(self, around: Neighbourhood, starts: Mapping[str, float]) -> dict[str, float]:
        """Return each article's share of a walk that restarts at `starts`; the shares sum to 1."""
        rustworkx = require("rustworkx", extra="graph")
        graph: Any = rustworkx.PyDiGraph(multigraph=False)
        names = sorted(around.distance)
        at = dict(zip(names, graph.add_nodes_from(names), strict=True))
        pairs = {(one, other) for one, other, _ in around.links} | {(b, a) for a, b, _ in around.links}
        graph.add_edges_from([(at[one], at[other], 1.0) for one, other in sorted(pairs)])
        begin = {at[name]: weight for name, weight in starts.items() if name in at and weight > 0}
        found = rustworkx.pagerank(
            graph,
            alpha=self.damping,
            weight_fn=float,
            personalization=begin or None,
            tol=1e-10,
            max_iter=1000,
        )
        return {name: float(found[index]) for name, index in at.items()}


def article_of(hit: Hit) -> str:
    """Return the id of the article that a hit is a section of."""
    return str(hit.metadata.get("article", hit.id))


def _starts(hits: Sequence[Hit], relevance: Mapping[str, float]) -> dict[str, float]:
    starts: dict[str, float] = {}
    for hit in hits:
        # Also the least relevant hit is a place to start from: it was found, others were not.
        starts[article_of(hit)] = max(starts.get(article_of(hit), 0.0), 0.05 + relevance[hit.id])
    return starts


def _spread(values: Mapping[str, float]) -> dict[str, float]:
    low, high = min(values.values(), default=0.0), max(values.values(), default=0.0)
    if high <= low:
        return dict.fromkeys(values, 1.0)
    return {id: (value - low) / (high - low) for id, value in values.items()}


def _first_scores(trace: Trace) -> dict[str, float]:
    """Return id -> the first score that a list of the first stage gave it."""
    return {
        id: score
        for record in reversed(trace.of(StageKind.RETRIEVE))
        for id, score in zip(record.ids, record.scores, strict=True)
        if score is not None
    }
