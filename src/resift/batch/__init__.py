"""Batch jobs on Parquet and JSONL files: embed, index, rerank, evaluate. Each row is processed exactly once."""

from __future__ import annotations

from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.batch.job import BatchReport as BatchReport
    from resift.batch.job import load_shards as load_shards
    from resift.batch.job import run_batch as run_batch
    from resift.batch.shards import BatchWork as BatchWork
    from resift.batch.work_kinds import EmbedWork as EmbedWork
    from resift.batch.work_kinds import EvaluateWork as EvaluateWork
    from resift.batch.work_kinds import IndexWork as IndexWork
    from resift.batch.work_kinds import RerankWork as RerankWork
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        job: BatchReport run_batch load_shards
        work_kinds: EmbedWork IndexWork RerankWork EvaluateWork
        shards: BatchWork
        """,
    )
