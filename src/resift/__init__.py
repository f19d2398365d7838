"""Merge, rerank and explain search results: the same order every time, with a reason for each position."""

from __future__ import annotations

from resift._internal import renamed_modules
from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

__version__ = "0.3.0"

renamed_modules.install()

if TYPE_CHECKING:
    from resift.agent.knowledge_graph_agent import KnowledgeGraphAgent as KnowledgeGraphAgent
    from resift.errors import ResiftError as ResiftError
    from resift.index import Index as Index
    from resift.models.embedder import Embedder as Embedder
    from resift.pipeline.node import RetrievalNode as RetrievalNode
    from resift.pipeline.pipeline import Pipeline as Pipeline
    from resift.pipeline.two_stage import TwoStage as TwoStage
    from resift.plugins import available_rerankers as available_rerankers
    from resift.plugins import load_reranker as load_reranker
    from resift.protocols import Reranker as Reranker
    from resift.ranking.fusion.methods import fuse as fuse
    from resift.ranking.fusion.rerankers import RRFReranker as RRFReranker
    from resift.rerankers.cross_encoder import CrossEncoderReranker as CrossEncoderReranker
    from resift.reranking import arerank as arerank
    from resift.reranking import rerank as rerank
    from resift.resilience.tiered import Tiered as Tiered
    from resift.server.app import serve_app as serve_app
    from resift.stores.memory import MemoryStore as MemoryStore
    from resift.stores.sqlite import SQLiteStore as SQLiteStore
    from resift.types import Hit as Hit
    from resift.types import Ranking as Ranking
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        agent.knowledge_graph_agent: KnowledgeGraphAgent
        errors: ResiftError
        ranking.fusion.methods: fuse
        ranking.fusion.rerankers: RRFReranker
        index: Index
        models.embedder: Embedder
        plugins: available_rerankers load_reranker
        protocols: Reranker
        rerankers.cross_encoder: CrossEncoderReranker
        reranking: arerank rerank
        resilience.tiered: Tiered
        pipeline.node: RetrievalNode
        pipeline.pipeline: Pipeline
        pipeline.two_stage: TwoStage
        server.app: serve_app
        stores.memory: MemoryStore
        stores.sqlite: SQLiteStore
        types: Hit Ranking
        """,
        more=["__version__"],
    )
