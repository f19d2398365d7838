"""Scorers and rerankers: local models, hosted APIs, chat models, BM25 with cosine, and score caches."""

from __future__ import annotations

from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.rerankers.cascade import CascadeReranker as CascadeReranker
    from resift.rerankers.cross_encoder import CrossEncoderReranker as CrossEncoderReranker
    from resift.rerankers.hosted.scorer import HostedReranker as HostedReranker
    from resift.rerankers.hosted.scorer import (
        get_production_cross_encoder_reranker as get_production_cross_encoder_reranker,
    )
    from resift.rerankers.hosted.scorer import hosted_reranker as hosted_reranker
    from resift.rerankers.late_interaction import LateInteractionReranker as LateInteractionReranker
    from resift.rerankers.llm import LLMReranker as LLMReranker
    from resift.rerankers.score_cache import CachedScorer as CachedScorer
    from resift.rerankers.score_cache import MemoryScores as MemoryScores
    from resift.rerankers.score_cache import SQLiteScores as SQLiteScores
    from resift.rerankers.semantic_bm25 import SemanticBM25Reranker as SemanticBM25Reranker
    from resift.rerankers.torch_model import TorchReranker as TorchReranker
    from resift.rerankers.zero_shot import ZeroShotReranker as ZeroShotReranker
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        cascade: CascadeReranker
        cross_encoder: CrossEncoderReranker
        hosted.scorer: HostedReranker get_production_cross_encoder_reranker hosted_reranker
        late_interaction: LateInteractionReranker
        llm: LLMReranker
        score_cache: CachedScorer MemoryScores SQLiteScores
        semantic_bm25: SemanticBM25Reranker
        torch_model: TorchReranker
        zero_shot: ZeroShotReranker
        """,
    )
