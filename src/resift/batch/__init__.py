"""Batch jobs on Parquet and JSONL files: embed, index, rerank, evaluate, record. Each row exactly once."""

from __future__ import annotations

from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.batch.job import BatchReport as BatchReport
    from resift.batch.job import run_batch as run_batch
    from resift.batch.loading import load_shards as load_shards
    from resift.batch.model_work import EmbedWork as EmbedWork
    from resift.batch.model_work import IndexWork as IndexWork
    from resift.batch.model_work import RerankWork as RerankWork
    from resift.batch.pipeline_work import EvaluateWork as EvaluateWork
    from resift.batch.pipeline_work import RecordWork as RecordWork
    from resift.batch.pipeline_work import write_recording as write_recording
    from resift.batch.work import BatchWork as BatchWork
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        job: BatchReport run_batch
        loading: load_shards
        model_work: EmbedWork IndexWork RerankWork
        pipeline_work: EvaluateWork RecordWork write_recording
        work: BatchWork
        """,
    )
