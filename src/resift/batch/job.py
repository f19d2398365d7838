"""A job: inputs are planned, shards done by an engine, failures gathered, the manifest written last."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from resift.arguments import check_k
from resift.batch.inputs import Shard, find_inputs, plan
from resift.batch.local_engine import LocalEngine
from resift.batch.manifest import check_plan, plan_of, write_manifest
from resift.batch.shards import FAILED, ShardReport, atomic_parquet
from resift.batch.work import BatchWork
from resift.errors import ResiftError, require

EngineName = Literal["local", "ray"]
SHARD_ROWS = 1000


class BatchEngine(Protocol):
    """Runs shards somewhere and reports each as it is done."""

    name: str

    def run(self, work: BatchWork, shards: Sequence[Shard], folder: Path) -> Iterator[ShardReport]:
        """Yield a report per shard; one that is there already is skipped."""
        ...


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What a job did: rows read, rows written, rows set aside, and how long it took."""

    folder: Path
    rows: int
    written: int
    failed: int
    shards: int
    skipped: int
    seconds: float

    @property
    def hours_per_million(self) -> float | None:
        """Hours for a million rows at the rate of this run; None where nothing was left to do."""
        return None if not self.rows or self.skipped == self.shards else self.seconds / self.rows * 1e6 / 3600


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """How far a job is."""

    rows: int
    total: int
    failed: int
    seconds: float


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
    check_k(shard_rows, name="shard_rows", least=1)
    folder = Path(out)
    started = time.monotonic()
    files, shards = _planned(work, inputs, shard_rows)
    job = plan_of(work, files, shard_rows=shard_rows)
    check_plan(folder, job)
    total = sum(one.rows for one in files)
    runner = _engine(engine, workers) if isinstance(engine, str) else engine
    reports: list[ShardReport] = []
    for report in runner.run(work, shards, folder):
        reports.append(report)
        failed = sum(one.failed for one in reports)
        on_progress(
            BatchProgress(sum(one.rows for one in reports), total, failed, time.monotonic() - started)
        )
        if failed > most_failed:
            raise ResiftError(
                f"{failed} rows failed, more than {most_failed}; stopped. See {folder}/{FAILED}-*.parquet."
            )
    _gather_failures(folder)
    _sweep(folder)
    write_manifest(folder, job, reports)
    return _summary(folder, reports, time.monotonic() - started)


def _planned(work: BatchWork, inputs: Any, shard_rows: int) -> tuple[list[Any], list[Shard]]:
    files, shards, seen = [], [], set()
    for address in find_inputs(inputs):
        file, parts = plan(address, shard_rows=shard_rows, columns=work.columns)
        if file.digest in seen:
            raise ResiftError(f"{address} has the same content as another input; give each once.")
        seen.add(file.digest)
        files.append(file)
        shards += parts
    return files, shards


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
    for pattern in (".part-*.part", f".{FAILED}-part-*.part"):
        for half in folder.glob(pattern):
            half.unlink(missing_ok=True)


def _summary(folder: Path, reports: Sequence[ShardReport], seconds: float) -> BatchReport:
    return BatchReport(
        folder=folder,
        rows=sum(one.rows for one in reports),
        written=sum(one.written for one in reports),
        failed=sum(one.failed for one in reports),
        shards=len(reports),
        skipped=sum(one.skipped for one in reports),
        seconds=seconds,
    )
