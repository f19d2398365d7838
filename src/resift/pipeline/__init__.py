"""Pipelines from a query to a ranking: stores, stages, RetrievalNode and TwoStage."""

from __future__ import annotations

from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.pipeline.fan_out import OverFetch as OverFetch
    from resift.pipeline.fan_out import StoreRef as StoreRef
    from resift.pipeline.fan_out import Transition as Transition
    from resift.pipeline.node import RetrievalNode as RetrievalNode
    from resift.pipeline.pipeline import Pipeline as Pipeline
    from resift.pipeline.pool import Pool as Pool
    from resift.pipeline.pool import Stage as Stage
    from resift.pipeline.stages import AdaptiveDepth as AdaptiveDepth
    from resift.pipeline.stages import Fuse as Fuse
    from resift.pipeline.stages import Gate as Gate
    from resift.pipeline.stages import OnHits as OnHits
    from resift.pipeline.stages import Rerank as Rerank
    from resift.pipeline.stages import Shape as Shape
    from resift.pipeline.two_stage import TwoStage as TwoStage
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        fan_out: OverFetch StoreRef Transition
        node: RetrievalNode
        pipeline: Pipeline
        pool: Pool Stage
        stages: AdaptiveDepth Fuse Gate OnHits Rerank Shape
        two_stage: TwoStage
        """,
    )
