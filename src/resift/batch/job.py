"""Run a job: plan the inputs, process the shards with an engine, collect failures, write the manifest."""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from resift import __version__
from resift._internal.files import atomic_write, file_lock
from resift.batch.engines import LocalEngine, RayEngine
from resift.batch.inputs import InputFile, PathLike, Shard, find_inputs, plan_inputs
from resift.batch.shards import FAILED, Attempts, OnRows, ShardReport, atomic_parquet, load_report
from resift.batch.work import BatchWork
from resift.errors import InputError, ResiftError, require
from resift.types import to_json
from resift.validation import check_arguments

EngineName = Literal["local", "ray"]
SHARD_ROWS = 1000
PLAN, MANIFEST = "job.json", "manifest.json"
_SAME_OUTPUT = ("0.2.", "0.3.")
"""Versions that write the same shards, so that one continues a job of the other."""


@runtime_checkable
class BatchEngine(Protocol):
    """Runs shards on `workers` processes, and reports each when it is done."""

    name: str
    workers: int

    def run(
        self, work: BatchWork, shards: Sequence[Shard], folder: Path, *, on_rows: OnRows
    ) -> Iterator[ShardReport]:
        """Yield a report per shard. A shard that exists is skipped."""
        ...


@dataclass(frozen=True, slots=True)
class BatchReport:
    """The outcome of a job: rows read, rows written, failed rows, time and number of workers.

    `fresh_rows` were processed in this run, not in an earlier one. `empty` names the inputs without rows.
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
        """Hours for a million rows at the rate of this run; None if there was nothing left to do."""
        return self.seconds / self.fresh_rows * 1e6 / 3600 if self.fresh_rows else None


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """The state of a running job."""

    rows: int
    total: int
    failed: int
    seconds: float
    skipped: int = 0
    """Rows that an earlier run processed, included in `rows`."""


@check_arguments
def run_batch(
    work: BatchWork,
    inputs: PathLike | Sequence[PathLike],
    out: str | os.PathLike[str],
    *,
    engine: EngineName | BatchEngine = "local",
    workers: int | None = None,
    shard_rows: int = SHARD_ROWS,
    max_failed: int = 1000,
    on_progress: Callable[[BatchProgress], None] = lambda _: None,
    most_failed: int | None = None,
) -> BatchReport:
    """Do the work on every row of the inputs, and write Parquet shards and a manifest to a folder.

    After any failure, run it again: it resumes, and the output has the same bytes. Rows that cannot be
    processed are in `failed.parquet` with their error. More than `max_failed` of them stop the job.
    """
    if most_failed is not None:
        warnings.warn("most_failed= is now max_failed=", DeprecationWarning, stacklevel=2)
        max_failed = most_failed
    for name, value, unit, minimum in (
        ("shard_rows", shard_rows, "rows", 1),
        ("max_failed", max_failed, "rows", 0),
        ("workers", workers, "processes", 1),
    ):
        if value is not None and value < minimum:
            raise InputError(f"{name} is {value}; give {minimum} or more {unit}.")
    folder = Path(out)
    started = time.monotonic()
    files, shards = plan_inputs(find_inputs(inputs, out=folder), shard_rows=shard_rows, columns=work.columns)
    plan = make_plan(work, files, shard_rows=shard_rows)
    if isinstance(engine, str):
        engine = RayEngine(workers) if engine == "ray" else LocalEngine(workers)
    busy = f"{folder} is being written by another run. Wait for it, or name another folder."
    with file_lock(folder / ".lock", busy=busy):
        check_plan(folder, plan)
        Attempts.job_started(folder)
        tally = _Tally(sum(file.rows for file in files), max_failed, folder, on_progress, started)
        missing = tally.skip_finished(shards)
        tally.report_progress()  # shows a progress bar while workers start
        for report in engine.run(work, missing, folder, on_rows=tally.add_rows):
            tally.add_shard(report)
        _merge_failures(folder)
        for pattern in (".part-*", f".{FAILED}-part-*.part"):  # partial files of workers that died
            for partial in folder.glob(pattern):
                partial.unlink(missing_ok=True)
        write_manifest(folder, plan, tally.reports)
    reports = tally.reports
    return BatchReport(
        folder=folder,
        **sum_rows(reports),
        shards=len(reports),
        skipped=sum(report.skipped for report in reports),
        seconds=time.monotonic() - started,
        fresh_rows=sum(report.rows for report in reports if not report.skipped),
        workers=engine.workers,
        empty=tuple(file.name for file in files if not file.rows),
    )


@dataclass(eq=False)
class _Tally:
    """Adds up the reports of the shards, reports progress, and stops the job if too many rows failed."""

    total: int
    max_failed: int
    folder: Path
    on_progress: Callable[[BatchProgress], None]
    started_s: float
    reports: list[ShardReport] = field(default_factory=list)
    in_progress: dict[str, int] = field(default_factory=dict)
    # Running sums: adding up a million reports after each shard would take longer than the work.
    rows: int = 0
    skipped: int = 0
    failed: int = 0

    def skip_finished(self, shards: Sequence[Shard]) -> list[Shard]:
        """Count the shards of an earlier run, and return the remaining ones."""
        missing = []
        for shard in shards:
            report = load_report(shard, self.folder)
            if report is None:
                missing.append(shard)
            else:
                self.add_shard(report)
        return missing

    def add_rows(self, shard: str, rows: int) -> None:
        self.in_progress[shard] = rows
        self.report_progress()

    def add_shard(self, report: ShardReport) -> None:
        self.reports.append(report)
        self.in_progress.pop(report.name, None)
        self.rows += report.rows
        self.skipped += report.rows if report.skipped else 0
        self.failed += report.failed
        self.report_progress()
        if self.failed > self.max_failed:
            where = f"{self.folder}/{FAILED}-*.parquet"
            rows = "1 row" if self.failed == 1 else f"{self.failed} rows"
            raise ResiftError(f"{rows} failed, more than {self.max_failed}; stopped. See {where}.")

    def report_progress(self) -> None:
        self.on_progress(
            BatchProgress(
                rows=self.rows + sum(self.in_progress.values()),
                total=self.total,
                failed=self.failed,
                seconds=time.monotonic() - self.started_s,
                skipped=self.skipped,
            )
        )


def _merge_failures(folder: Path) -> None:
    """Write the failed rows of all shards, in order, to one file."""
    pq = require("pyarrow.parquet", extra="batch")
    parts = sorted(folder.glob(f"{FAILED}-part-*.parquet"))
    if not parts:
        return
    with atomic_parquet(folder / f"{FAILED}.parquet") as out:
        for part in parts:
            for batch in pq.read_table(part).to_batches():
                out.write(batch)


def make_plan(work: BatchWork, files: Sequence[InputFile], *, shard_rows: int) -> dict[str, object]:
    """Return everything that determines the output: kind, options, models, content of the inputs."""
    return {
        "version": 1,
        "kind": work.kind,
        "options": work.describe(),
        "shard_rows": shard_rows,
        "resift": __version__,
        "inputs": [{"name": file.name, "sha256": file.digest, "rows": file.rows} for file in files],
    }


def check_plan(folder: Path, plan: Mapping[str, object]) -> None:
    """Write the plan to a new folder; refuse a folder with the shards of another job."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / PLAN
    if not path.exists():
        # Shards of an unknown job would be taken for finished ones of this job.
        if any(folder.glob("part-*.parquet")):
            raise InputError(f"{folder} has shards but no {PLAN}; name an empty folder.")
        atomic_write(path, to_json(plan, indent=2) + "\n")
        return
    try:
        before = json.loads(path.read_text())
    except ValueError:
        raise InputError(f"{path} is damaged; name an empty folder.") from None
    # Through JSON, in which tuples are lists.
    different = [key for key in plan if before.get(key) != json.loads(to_json(plan[key]))]
    if "resift" in different and str(before["resift"]).startswith(_SAME_OUTPUT):
        different.remove("resift")
    if different:
        raise InputError(
            f"{folder} belongs to another job: other {', '.join(different)}. Name an empty folder, or run "
            "the same job to resume it."
        )


def write_manifest(folder: Path, plan: Mapping[str, object], reports: Sequence[ShardReport]) -> None:
    """Write counts and digests of every shard. After this, the job is complete."""
    shards = [
        {
            "name": f"{report.name}.parquet",
            "rows": report.rows,
            "written": report.written,
            "failed": report.failed,
            "sha256": hashlib.sha256((folder / f"{report.name}.parquet").read_bytes()).hexdigest(),
        }
        for report in sorted(reports, key=lambda report: report.name)
    ]
    manifest = {**plan, **sum_rows(reports), "shards": shards}
    atomic_write(folder / MANIFEST, to_json(manifest, indent=2) + "\n")


def sum_rows(reports: Sequence[ShardReport]) -> dict[str, int]:
    """Return the numbers of rows that were read, were written and failed."""
    return {name: sum(getattr(each, name) for each in reports) for name in ("rows", "written", "failed")}
