"""Pipelines from a query to a ranking: stores, stages, RetrievalNode and TwoStage."""

from resift._internal.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
