"""Graph expansion and centrality: personalized PageRank (Page et al., 1999; Haveliwala, 2002) around hits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar

from resift.agent.pack import Pack
from resift.errors import InputError, require
from resift.types import FusedHits, Hit, StageKind, StageRecord, Trace, get_trace, with_scores
from resift.validation import check_fields

STAGE = "centrality"
PARTS = ("relevance", "similarity", "pagerank")
MAX_HOPS = 3
MAX_NODES = 100


@dataclass(frozen=True, slots=True)
class Neighborhood:
    """Articles with their distance in hops from the articles of the hits, and the links among them."""

    distance: dict[str, int] = field(default_factory=dict)
    links: tuple[tuple[str, str, int], ...] = ()

    @property
    def mean_degree(self) -> float:
        """Linked articles per article; links in both directions count once."""
        pairs = {frozenset((source, target)) for source, target, _ in self.links if source != target}
        return 2 * len(pairs) / len(self.distance) if self.distance else 0.0


def expand(pack: Pack, articles: Sequence[str], *, hops: int = 1, max_nodes: int = MAX_NODES) -> Neighborhood:
    """Follow links in both directions. If there are too many articles, the most linked ones are kept."""
    check_bounds(hops, max_nodes)
    distance = dict.fromkeys(list(dict.fromkeys(articles))[:max_nodes], 0)
    frontier = list(distance)
    for hop in range(1, hops + 1):
        counts = Counter(other for _, other in pack.neighbors(frontier) if other not in distance)
        order = sorted(counts, key=lambda id: (-counts[id], id))
        frontier = order[: max_nodes - len(distance)]
        distance.update(dict.fromkeys(frontier, hop))
        if not frontier:
            break
    return Neighborhood(distance, tuple(pack.links_among(distance)))


def check_bounds(hops: int, max_nodes: int) -> None:
    """Raise InputError unless the bounds of an expansion are within their limits."""
    if type(hops) is not int or not 0 <= hops <= MAX_HOPS:
        raise InputError(f"hops is {hops!r}; pass 0 to {MAX_HOPS}.")
    if type(max_nodes) is not int or not 1 <= max_nodes <= MAX_NODES:
        raise InputError(f"max_nodes is {max_nodes!r}; pass 1 to {MAX_NODES}.")


@dataclass(frozen=True)
class GraphReranker:
    """Combines relevance, vector similarity and the centrality of a hit's article among all hits.

    The random walk starts at the hits, in proportion to their relevance, and follows links both ways.
    All three parts are scaled to 0–1 within the pool before they are weighted. If the neighborhood has
    fewer than `min_mean_degree` links per article, centrality is left out, and the record says so.
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
        """The weights of relevance, vector similarity and centrality."""
        return self.relevance_weight, self.vector_weight, self.centrality_weight

    def rerank(
        self, hits: Sequence[Hit], neighborhood: Neighborhood, *, trace: Trace | None = None
    ) -> FusedHits:
        """Return the hits in their new order, with scores between 0 and 1.

        Vector similarities are the scores of the first stage in the trace. Without a trace, that of the
        ranking is used.
        """
        note, weights = "", self.weights
        degree = neighborhood.mean_degree
        if degree < self.min_mean_degree:
            note = f"graph too sparse for centrality: {degree:.1f} links per article, "
            note += f"{self.min_mean_degree:g} needed"
            both = math.fsum(weights[:2])
            weights = (weights[0] / both, weights[1] / both, 0.0) if both else (1.0, 0.0, 0.0)
        relevance = _scale({hit.id: hit.score or 0.0 for hit in hits})
        cosines = scores_by_kind(get_trace(hits) if trace is None else trace, StageKind.RETRIEVE)
        similarity = _scale({hit.id: cosines.get(hit.id, hit.score or 0.0) for hit in hits})
        ranks: dict[str, float] = {}
        if not note:
            starts: dict[str, float] = {}
            for hit in hits:
                # Even the least relevant hit is a starting point, because it was retrieved.
                weight = max(starts.get(article_id(hit), 0.0), 0.05 + relevance[hit.id])
                starts[article_id(hit)] = weight
            ranks = self.pagerank(neighborhood, starts)
        centrality = _scale({hit.id: ranks.get(article_id(hit), 0.0) for hit in hits})
        parts = {
            name: {id: weight * value for id, value in part.items()}
            for name, weight, part in zip(PARTS, weights, (relevance, similarity, centrality), strict=True)
        }
        totals = {hit.id: math.fsum(part[hit.id] for part in parts.values()) for hit in hits}
        order = sorted(hits, key=lambda hit: (-totals[hit.id], hit.id))
        ids = tuple(hit.id for hit in order)
        scores = tuple(totals[id] for id in ids)
        record = StageRecord(
            kind=StageKind.RERANK, name=STAGE, ids=ids, scores=scores, parts=parts, note=note
        )
        return FusedHits(with_scores(order, scores), record)

    def pagerank(self, neighborhood: Neighborhood, starts: Mapping[str, float]) -> dict[str, float]:
        """Return the stationary share of each article in a walk that restarts at `starts`."""
        rustworkx = require("rustworkx", extra="graph")
        graph = rustworkx.PyDiGraph(multigraph=False)
        names = sorted(neighborhood.distance)
        nodes = dict(zip(names, graph.add_nodes_from(names), strict=True))
        edges = {(source, target) for source, target, _ in neighborhood.links}
        edges |= {(target, source) for source, target in edges}
        graph.add_edges_from([(nodes[source], nodes[target], 1.0) for source, target in sorted(edges)])
        restarts = {nodes[name]: weight for name, weight in starts.items() if name in nodes and weight > 0}
        shares = rustworkx.pagerank(
            graph,
            alpha=self.damping,
            weight_fn=float,
            personalization=restarts or None,
            tol=1e-10,
            max_iter=1000,
        )
        return {name: float(shares[node]) for name, node in nodes.items()}


def article_id(hit: Hit) -> str:
    """Return the id of the article that a hit is a section of."""
    return str(hit.metadata.get("article", hit.id))


def _scale(values: Mapping[str, float]) -> dict[str, float]:
    """Scale values to 0–1; equal values become 1."""
    low, high = min(values.values(), default=0.0), max(values.values(), default=0.0)
    if high <= low:
        return dict.fromkeys(values, 1.0)
    return {id: (value - low) / (high - low) for id, value in values.items()}


def scores_by_kind(trace: Trace, kind: StageKind, source: str = "") -> dict[str, float]:
    """Return id -> the score in the first record of that kind (and source) that scored the hit."""
    return {
        id: score
        for record in reversed(trace.by_kind(kind))
        # The source of a view of a store: notes.vectors.
        if not source or record.source == source or record.source.endswith(f".{source}")
        for id, score in zip(record.ids, record.scores, strict=True)
        if score is not None
    }
