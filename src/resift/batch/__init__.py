"""Batch jobs on Parquet and JSONL files: embed, index, rerank, evaluate. Each row is processed exactly once."""

from resift._internal.lazy_exports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
