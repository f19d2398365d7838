"""A job: inputs are planned, shards done by an engine, failures gathered, the manifest written last."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from resift._internal.file_lock import locked
from resift.batch.inputs import Shard, find_inputs, plan_inputs
from resift.batch.local_engine import LocalEngine
from resift.batch.manifest import check_plan, plan_of, write_manifest
from resift.batch.shards import (
    FAILED,
    Attempts,
    OnRows,
    ShardReport,
    atomic_parquet,
    report_of,
)
from resift.batch.work import BatchWork
from resift.errors import InputError, ResiftError, require
from resift.validation import check_arguments

EngineName = Literal["local", "ray"]
SHARD_ROWS = 1000


@runtime_checkable
class BatchEngine(Protocol):
    """Runs shards somewhere, on `workers` processes, and reports each as it is done."""

    name: str
    workers: int

    def run(
        self, work: BatchWork, shards: Sequence[Shard], folder: Path, *, on_rows: OnRows
    ) -> Iterator[ShardReport]:
        """Yield a report per shard; one that is there already is skipped."""
        ...


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What a job did: rows read, rows written, rows set aside, and how long it took on how many workers.

    `fresh_rows` were done in this run, not in an earlier one; `empty` names the inputs without a row.
    """

    folder: Path
    rows: int
    written: int
    failed: int
    shards: int
    skipped: int
    seconds: float
    fresh_rows: int = 0
    workers: int = 1
    empty: tuple[str, ...] = ()

    @property
    def hours_per_million(self) -> float | None:
        """Hours for a million rows at the rate of this run; None where nothing was left to do."""
        return self.seconds / self.fresh_rows * 1e6 / 3600 if self.fresh_rows else None


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """How far a job is."""

    rows: int
    total: int
    failed: int
    seconds: float
    skipped: int = 0
    """Rows among them that an earlier run did."""


@check_arguments
def run_batch(
    work: BatchWork,
    inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    engine: EngineName | BatchEngine = "local",
    workers: int | None = None,
    shard_rows: int = SHARD_ROWS,
    most_failed: int = 1000,
    on_progress: Callable[[BatchProgress], None] = lambda _: None,
) -> BatchReport:
    """Do the work on every row of the inputs and write Parquet shards and a manifest into a folder.

    Run it again after any fault and it goes on where it stopped, to the same bytes. Rows that cannot be done
    are in `failed.parquet` with their error; more than `most_failed` of them stop the job.
    """
    _check_count(shard_rows, "shard_rows", "rows", least=1)
    _check_count(most_failed, "most_failed", "rows", least=0)
    if workers is not None:
        _check_count(workers, "workers", "processes", least=1)
    folder = Path(out)
    started = time.monotonic()
    files, shards = plan_inputs(find_inputs(inputs, out=folder), shard_rows=shard_rows, columns=work.columns)
    job = plan_of(work, files, shard_rows=shard_rows)
    runner = _engine(engine, workers) if isinstance(engine, str) else engine
    busy = f"{folder} is being written by another run. Wait for it, or name another folder."
    with locked(folder / ".lock", busy=busy):
        check_plan(folder, job)
        Attempts.job_started(folder)
        count = _Count(sum(one.rows for one in files), most_failed, folder, on_progress, started)
        missing = count.skip_done(shards)
        count.report_progress()  # a bar is there while workers start
        for report in runner.run(work, missing, folder, on_rows=count.rows_done):
            count.shard_done(report)
        _gather_failures(folder)
        _sweep(folder)
        write_manifest(folder, job, count.reports)
    empty = tuple(one.name for one in files if not one.rows)
    return _summary(folder, count.reports, time.monotonic() - started, workers=runner.workers, empty=empty)


def _check_count(value: int, name: str, unit: str, *, least: int) -> None:
    if value < least:
        raise InputError(f"{name} is {value}; give a whole number of {unit}, {least} or more.")


@dataclass(eq=False)
class _Count:
    """Adds up what the shards report, tells of it, and stops the job when too many rows failed."""

    total: int
    most_failed: int
    folder: Path
    tell: Callable[[BatchProgress], None]
    started_s: float
    reports: list[ShardReport] = field(default_factory=list)
    begun: dict[str, int] = field(default_factory=dict)
    # Kept beside the reports: adding up a million of them after each would take longer than the work.
    rows: int = 0
    skipped: int = 0
    failed: int = 0

    def skip_done(self, shards: Sequence[Shard]) -> list[Shard]:
        """Count the shards of an earlier run; return those that are left, for which workers are needed."""
        missing = []
        for shard in shards:
            report = report_of(shard, self.folder)
            if report is None:
                missing.append(shard)
            else:
                self.shard_done(report)
        return missing

    def rows_done(self, shard: str, rows: int) -> None:
        self.begun[shard] = rows
        self.report_progress()

    def shard_done(self, report: ShardReport) -> None:
        self.reports.append(report)
        self.begun.pop(report.name, None)
        self.rows += report.rows
        self.skipped += report.rows if report.skipped else 0
        self.failed += report.failed
        self.report_progress()
        if self.failed > self.most_failed:
            where = f"{self.folder}/{FAILED}-*.parquet"
            rows = "1 row" if self.failed == 1 else f"{self.failed} rows"
            raise ResiftError(f"{rows} failed, more than {self.most_failed}; stopped. See {where}.")

    def report_progress(self) -> None:
        self.tell(
            BatchProgress(
                rows=self.rows + sum(self.begun.values()),
                total=self.total,
                failed=self.failed,
                seconds=time.monotonic() - self.started_s,
                skipped=self.skipped,
            )
        )


def _engine(name: str, workers: int | None) -> BatchEngine:
    if name == "ray":
        from resift.batch.ray_engine import RayEngine

        return RayEngine(workers)
    if name != "local":
        raise ResiftError(f"Unknown engine {name!r}; use local or ray.")
    return LocalEngine(workers)


def _gather_failures(folder: Path) -> None:
    """Put the rows that failed, of all shards in order, into one file."""
    pq = require("pyarrow.parquet", extra="batch")
    parts = sorted(folder.glob(f"{FAILED}-part-*.parquet"))
    if not parts:
        return
    with atomic_parquet(folder / f"{FAILED}.parquet") as output:
        for part in parts:
            for batch in pq.read_table(part).to_batches():
                output.write(batch)


def _sweep(folder: Path) -> None:
    """Remove the half files of workers that died."""
    for pattern in (".part-*", f".{FAILED}-part-*.part"):
        for half in folder.glob(pattern):
            half.unlink(missing_ok=True)


def _summary(
    folder: Path, reports: Sequence[ShardReport], seconds: float, *, workers: int, empty: tuple[str, ...]
) -> BatchReport:
    return BatchReport(
        folder=folder,
        rows=sum(one.rows for one in reports),
        written=sum(one.written for one in reports),
        failed=sum(one.failed for one in reports),
        shards=len(reports),
        skipped=sum(one.skipped for one in reports),
        seconds=seconds,
        fresh_rows=sum(one.rows for one in reports if not one.skipped),
        workers=workers,
        empty=empty,
    )
