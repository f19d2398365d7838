"""What a search request may change about the pipeline, and the pipeline that it gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from resift.events import Sink
from resift.pipeline.defaults import FETCH
from resift.pipeline.pipeline import Pipeline
from resift.pipeline.shaping import Shape
from resift.pipeline.stages import AdaptiveDepth, Rerank
from resift.pipeline.store_ref import Store, StoreRef
from resift.protocols import Embedder, Reranker, Scorer
from resift.ranking.fusion.methods import METHODS
from resift.ranking.fusion.rerankers import FusionReranker, RRFReranker
from resift.ranking.fusion.weighted import WeightedReranker
from resift.ranking.shape import Blend, ShapePolicy
from resift.rerankers.semantic_bm25 import SemanticBM25Reranker
from resift.server.schema import Schema, number, one_of, record, whole
from resift.types import JsonMapping, JsonObject

RERANKERS = ("cross-encoder", "semantic-bm25", "none")
MOST_DEPTH = 200

SETTINGS: Schema = record(
    {
        "fusion": one_of(*sorted(METHODS)),
        "reranker": one_of(*RERANKERS),
        "depth": whole(least=1, most=MOST_DEPTH),
        "blend": number(least=0, most=1),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """How lists are fused, who reranks how many, how much the reranker counts; None: by evidence."""

    fusion: str = "weighted"
    reranker: str = "cross-encoder"
    depth: int | None = None
    blend: float | None = None

    @classmethod
    def of(cls, given: JsonMapping | None) -> SearchSettings:
        """Return the settings of a request."""
        return cls(**(given or {}))

    def pipeline(
        self, stores: Sequence[Store | StoreRef], scorer: Scorer, embedder: Embedder | None, sink: Sink
    ) -> Pipeline:
        """Return a pipeline over these stores."""
        options: JsonObject = {"fuse": _fuser(self.fusion), "fetch": FETCH}
        if self.reranker != "none":
            judge = scorer if self.reranker == "cross-encoder" else SemanticBM25Reranker(embedder=embedder)
            options["rerank"] = Rerank(judge, depth=self.depth or AdaptiveDepth())
            policy = None if self.blend is None else ShapePolicy(blend=Blend(weight=self.blend))
            options["guard"] = Shape(policy, name="guard")
        return Pipeline(stores, sink=sink, **options)


def _fuser(method: str) -> Reranker:
    if method == "weighted":
        return WeightedReranker()
    return RRFReranker() if method == "rrf" else FusionReranker(method)
