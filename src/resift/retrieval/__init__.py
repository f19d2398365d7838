"""From a question to one ranked list: fan-out over stores, two-stage search, pipelines."""

from __future__ import annotations

from resift.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.retrieval.fan_out import Transition as Transition
    from resift.retrieval.node import RetrievalNode as RetrievalNode
    from resift.retrieval.over_fetch import OverFetch as OverFetch
    from resift.retrieval.pipeline import Pipeline as Pipeline
    from resift.retrieval.pool import Pool as Pool
    from resift.retrieval.pool import Stage as Stage
    from resift.retrieval.stages import Fuse as Fuse
    from resift.retrieval.stages import OnHits as OnHits
    from resift.retrieval.stages import Rerank as Rerank
    from resift.retrieval.store_ref import StoreRef as StoreRef
    from resift.retrieval.two_stage import TwoStage as TwoStage
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        fan_out: Transition
        node: RetrievalNode
        over_fetch: OverFetch
        pipeline: Pipeline
        pool: Pool Stage
        stages: Fuse OnHits Rerank
        store_ref: StoreRef
        two_stage: TwoStage
        """,
    )
