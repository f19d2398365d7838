"""Bulk work on record batches: embed, index, rerank, evaluate, record; each row exactly once."""

from __future__ import annotations

from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.batch.embed import EmbedWork as EmbedWork
    from resift.batch.evaluate import EvaluateWork as EvaluateWork
    from resift.batch.index_work import IndexWork as IndexWork
    from resift.batch.job import BatchReport as BatchReport
    from resift.batch.job import run_batch as run_batch
    from resift.batch.loading import load_shards as load_shards
    from resift.batch.record import RecordWork as RecordWork
    from resift.batch.record import write_recording as write_recording
    from resift.batch.rerank import RerankWork as RerankWork
    from resift.batch.work import BatchWork as BatchWork
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        embed: EmbedWork
        evaluate: EvaluateWork
        index_work: IndexWork
        job: BatchReport run_batch
        loading: load_shards
        record: RecordWork write_recording
        rerank: RerankWork
        work: BatchWork
        """,
    )
