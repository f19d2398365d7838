"""Run a job: plan the inputs, process the shards with an engine, collect failures, write the manifest."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from resift import __version__
from resift._internal.arrays import Array, np
from resift._internal.files import atomic_write, file_lock
from resift._internal.sync import run_sync
from resift.batch import shards as shard_files
from resift.batch.engines import LocalEngine, RayEngine
from resift.batch.inputs import InputFile, PathLike, Shard, find_inputs, plan_inputs
from resift.batch.shards import FAILED, Attempts, BatchWork, OnRows, ShardReport
from resift.errors import InputError, ResiftError, StoreError, require
from resift.stores.base import embedder_name
from resift.stores.sqlite import SQLiteStore
from resift.types import JsonObject, to_json
from resift.validation import check_arguments

if TYPE_CHECKING:
    from pyarrow import RecordBatch

EngineName = Literal["local", "ray"]
SHARD_ROWS = 1000
PLAN, MANIFEST = "job.json", "manifest.json"
_SAME_OUTPUT = ("0.2.", "0.3.")  # versions that write identical shards, so that one version can resume a job of another


@runtime_checkable
class BatchEngine(Protocol):
    """Runs shards on `workers` processes, and reports each one when it is done."""

    name: str
    workers: int

    def run(self, work: BatchWork, shards: Sequence[Shard], folder: Path, *, on_rows: OnRows) -> Iterator[ShardReport]:
        """Yield a report per shard. A shard whose output exists is skipped."""


@dataclass(frozen=True, slots=True)
class BatchReport:
    """The outcome of a job. `fresh_rows` counts the rows of this run; `empty` lists inputs without rows."""

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
        """Hours per million rows at the rate of this run; None if there was nothing left to do."""
        return self.seconds / self.fresh_rows * 1e6 / 3600 if self.fresh_rows else None


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """The state of a running job."""

    rows: int
    total: int
    failed: int
    seconds: float
    skipped: int = 0  # rows processed by an earlier run, which are included in `rows`


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
    """Process every row of the inputs, and write Parquet shards and a manifest to a folder.

    After any failure, run it again: the job resumes, and the output has the same bytes. Rows that cannot be
    processed are listed in `failed.parquet` with their errors. More than `max_failed` such rows stop the job.
    """
    if most_failed is not None:
        warnings.warn("most_failed= is now max_failed=", DeprecationWarning, stacklevel=2)
        max_failed = most_failed
    for name, value, minimum in (("shard_rows", shard_rows, 1), ("max_failed", max_failed, 0), ("workers", workers, 1)):
        if value is not None and value < minimum:
            raise InputError(f"{name} is {value}; pass {minimum} or more.")
    folder = Path(out)
    started = time.monotonic()
    files, shards = plan_inputs(find_inputs(inputs, out=folder), shard_rows=shard_rows, columns=work.columns)
    plan = make_plan(work, files, shard_rows=shard_rows)
    if isinstance(engine, str):
        engine = RayEngine(workers) if engine == "ray" else LocalEngine(workers)
    busy = f"{folder} is being written by another run. Wait for it to finish, or choose another folder."
    with file_lock(folder / ".lock", busy=busy):
        check_plan(folder, plan)
        check_shards(folder)
        Attempts.job_started(folder)
        tally = _Tally(sum(file.rows for file in files), max_failed, folder, on_progress, started)
        missing = []
        for shard in shards:
            report = shard_files.load_report(shard, folder)
            if report is None:
                missing.append(shard)
            else:
                tally.add_shard(report)
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
    # Running totals: adding up a million reports after each shard would take longer than the work itself.
    rows: int = 0
    skipped: int = 0
    failed: int = 0

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
        rows, seconds = self.rows + sum(self.in_progress.values()), time.monotonic() - self.started_s
        self.on_progress(BatchProgress(rows, self.total, self.failed, seconds, self.skipped))


def _merge_failures(folder: Path) -> None:
    """Write the failed rows of all shards, in order, to one file."""
    pq = require("pyarrow.parquet", extra="batch")
    if parts := sorted(folder.glob(f"{FAILED}-part-*.parquet")):
        with shard_files.atomic_parquet(folder / f"{FAILED}.parquet") as out:
            for batch in (batch for part in parts for batch in pq.read_table(part).to_batches()):
                out.write(batch)


def make_plan(work: BatchWork, files: Sequence[InputFile], *, shard_rows: int) -> dict[str, object]:
    """Return everything that determines the output: kind, options, models and content of the inputs."""
    return {
        "version": 1,
        "kind": work.kind,
        "options": work.describe(),
        "shard_rows": shard_rows,
        "resift": __version__,
        "inputs": [{"name": file.name, "sha256": file.digest, "rows": file.rows} for file in files],
    }


def check_plan(folder: Path, plan: Mapping[str, object]) -> None:
    """Write the plan to a new folder. Rejects a folder that contains the shards of another job."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / PLAN
    if not path.exists():
        # Shards of an unknown job would be mistaken for finished shards of this job.
        if any(folder.glob("part-*.parquet")):
            raise InputError(f"{folder} contains shards but no {PLAN}; choose an empty folder.")
        atomic_write(path, to_json(plan, indent=2) + "\n")
        return
    try:
        before = json.loads(path.read_text())
    except ValueError:
        raise InputError(f"{path} is damaged; choose an empty folder.") from None
    # Compare after conversion to JSON, which turns tuples into lists.
    different = [key for key in plan if before.get(key) != json.loads(to_json(plan[key]))]
    if "resift" in different and str(before["resift"]).startswith(_SAME_OUTPUT):
        different.remove("resift")
    if different:
        raise InputError(
            f"{folder} belongs to another job with different {', '.join(different)}. Choose an empty folder, or "
            "run the same job to resume it."
        )


def check_shards(folder: Path) -> None:
    """Compare the shards of a finished job with the digests in its manifest. Deleted shards are written again."""
    path = folder / MANIFEST
    if not path.exists():
        return
    try:
        digests = {folder / str(row["name"]): row["sha256"] for row in json.loads(path.read_bytes())["shards"]}
    except (ValueError, TypeError, LookupError):
        raise InputError(f"{path} is damaged; delete it and run again.") from None
    for shard, digest in digests.items():
        if shard.exists() and _file_digest(shard) != digest:
            raise ResiftError(f"{shard} was damaged after it was written; delete it and run again.")


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(folder: Path, plan: Mapping[str, object], reports: Sequence[ShardReport]) -> None:
    """Write the counts and digest of every shard. After this, the job is complete."""
    shards = [
        {
            "name": f"{report.name}.parquet",
            "rows": report.rows,
            "written": report.written,
            "failed": report.failed,
            "sha256": _file_digest(folder / f"{report.name}.parquet"),
        }
        for report in sorted(reports, key=lambda report: report.name)
    ]
    atomic_write(folder / MANIFEST, to_json({**plan, **sum_rows(reports), "shards": shards}, indent=2) + "\n")


def sum_rows(reports: Sequence[ShardReport]) -> dict[str, int]:
    """Return the total number of rows read, rows written and failed rows."""
    return {name: sum(getattr(each, name) for each in reports) for name in ("rows", "written", "failed")}


MAX_ATTEMPTS = 6
"""Attempts to write to a failing store, for example if two workers create it at once or a server restarts."""
_BATCH_ROWS = 4096
_MAX_SHOWN_IDS = 5


class PrecomputedVectors:
    """An embedder that returns precomputed vectors, under the name of the model that produced them."""

    def __init__(self, model_name: str) -> None:
        self.model_name = model_name
        self.vectors: dict[str, Sequence[float]] = {}
        """Text -> vector, set before each write."""

    async def embed(self, texts: Sequence[str], *, kind: Literal["query", "document"]) -> Array:
        """Return the vectors of these texts."""
        vectors: Array = np.asarray([self.vectors[text] for text in texts], dtype=np.float32)
        return vectors


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadWork:
    """Writes the rows of an index job to a store with the vectors of `model`, and returns their ids as receipts."""

    store: str
    model: str

    kind = "load"
    rows_at_once = 512
    columns = ("id", "text", "metadata", "vector")

    def describe(self) -> dict[str, object]:
        """Return the store and the model."""
        return {"store": self.store, "model": self.model}

    def __call__(self, batch: RecordBatch) -> RecordBatch:
        """Write the documents to the store, and return the receipts."""
        rows = batch.to_pylist()
        if self.store not in _stores:
            _stores[self.store] = open_store(self.store, self.model)
        run_sync(_add_documents(_stores[self.store], rows))
        return shard_files.to_batch([{"id": row["id"], "row": row["row"]} for row in rows], {"id": "text"})


_stores: dict[str, Any] = {}


def load_shards(
    folder: str | Path,
    store: str | Path,
    *,
    engine: EngineName | BatchEngine = "local",
    workers: int | None = None,
    on_progress: Callable[[BatchProgress], None] = lambda _: None,
) -> BatchReport:
    """Load the shards of a finished index job into a store, in parallel if the store supports it.

    `store` is an index file, which is created if necessary, or a pipeline file with one store. An interrupted run
    resumes. Documents with the same id are replaced. Shards in which different documents share an id are rejected.
    """
    source, target = Path(folder), Path(store).absolute()
    path = source / MANIFEST
    if not path.exists():
        raise InputError(f"{source} has no {MANIFEST}: finish the job first, then load it.")
    check_shards(source)
    manifest = json.loads(path.read_text())
    if manifest.get("kind") != "index":
        raise InputError(f"{source} is a {manifest.get('kind')} job; only index jobs can be loaded.")
    work = LoadWork(store=str(target), model=manifest["options"]["model"])
    receipts = source / ".loaded" / hashlib.sha256(work.store.encode()).hexdigest()[:16]
    if run_sync(_prepare_store(work, receipts)) and (isinstance(engine, str) or engine.workers != 1):
        engine, workers = "local", 1
    shards = [source / shard["name"] for shard in manifest["shards"]]
    if not (receipts / MANIFEST).exists():  # otherwise, all of them are already in the store
        check_duplicate_ids(shards)
    return run_batch(work, shards, receipts, engine=engine, workers=workers, on_progress=on_progress)


def open_store(file: str, model: str) -> Any:
    """Open the store to load the shards into: an index file, or the store of a pipeline file."""
    vectors = PrecomputedVectors(model)
    if Path(file).suffix.lower() not in (".yaml", ".yml"):
        return SQLiteStore(file, embedder=vectors, create=True)
    from resift.config import load_yaml
    from resift.config.build import build_store

    sections = load_yaml(file)["stores"]
    if len(sections) != 1:
        raise InputError(f"{file} has {len(sections)} stores; pass a file with one store.")
    store = build_store(sections[0])[0].owner
    embedder = getattr(store, "embedder", None)
    if embedder is None or not callable(getattr(store, "add", None)):
        raise InputError(f"The store in {file} does not accept vectors; set `embedder: {model}`.")
    if embedder_name(embedder) != model:
        message = f"The store in {file} uses {embedder_name(embedder)}, but the vectors in the shards are from {model}."
        raise InputError(message)
    store.embedder = vectors
    return store


async def _prepare_store(work: LoadWork, receipts: Path) -> bool:
    """Delete outdated receipts if the store is empty. Returns whether the store supports only one writer."""
    store = open_store(work.store, work.model)
    try:
        if (receipts / MANIFEST).exists() and await store.count() == 0:
            shutil.rmtree(receipts)
        # A local Qdrant folder can be opened by only one process.
        return isinstance(store, SQLiteStore) or bool(getattr(store, "single_writer", False))
    finally:
        await store.close()


async def _add_documents(store: Any, rows: Sequence[JsonObject]) -> None:
    documents = [{"id": row["id"], "text": row["text"], "metadata": json.loads(row["metadata"])} for row in rows]
    store.embedder.vectors = {row["text"]: row["vector"] for row in rows}
    for attempt in range(1, MAX_ATTEMPTS + 1):
        try:
            await store.add(documents)
        except StoreError as exc:
            if attempt == MAX_ATTEMPTS:
                raise shard_files.StopJobError(f"{exc} Run the job again to resume here.") from exc
            await asyncio.sleep(0.1 * 2**attempt * random.uniform(0.5, 1))  # noqa: S311 - not cryptography
        else:
            return


def check_duplicate_ids(shards: Sequence[Path]) -> None:
    """Reject shards in which different documents have the same id; takes 16 bytes of memory per document."""
    pairs = ((_hash(id), _hash(content)) for id, content in _read_documents(shards))
    hashes = np.fromiter(pairs, dtype=[("id", "<u8"), ("content", "<u8")])
    hashes.sort(order=("id", "content"))
    same_id = hashes["id"][1:] == hashes["id"][:-1]
    conflicts = same_id & (hashes["content"][1:] != hashes["content"][:-1])
    duplicates = set(hashes["id"][1:][conflicts].tolist())
    if not duplicates:
        return
    names = sorted({id for id, _ in _read_documents(shards) if _hash(id) in duplicates})
    shown = ", ".join(map(repr, names[:_MAX_SHOWN_IDS])) + (", …" if len(names) > _MAX_SHOWN_IDS else "")
    raise InputError(
        f"{len(names)} id{'s are' if len(names) > 1 else ' is'} shared by different documents, "
        f"of which a store would keep only one: {shown}. Nothing was loaded. "
        "Give each row a unique id or no id, and run the index job again in a new folder."
    )


def _read_documents(shards: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """Yield the id and content of each row."""
    for shard in shards:
        with require("pyarrow.parquet", extra="batch").ParquetFile(shard) as file:
            for batch in file.iter_batches(_BATCH_ROWS, columns=["id", "text", "metadata"]):
                yield from ((row["id"], f"{row['text']}\0{row['metadata']}") for row in batch.to_pylist())


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
