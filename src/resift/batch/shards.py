"""The interface of batch work, and the processing of one shard, which is written completely or not at all."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol, runtime_checkable

from resift._internal.files import atomic_file
from resift.batch.inputs import BATCH_ROWS, ROW, FailedRow, OutputRow, Shard, read_shard
from resift.errors import ResiftError, require

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyarrow.parquet import ParquetWriter

ERROR = "error"  # the column with the reason why a row failed; null for other rows

Row = Mapping[str, object]


class StopJobError(ResiftError):
    """A failure that is not caused by a row. The job stops, and it resumes here when run again."""


@runtime_checkable
class BatchWork(Protocol):
    """A picklable kind of work, which loads its models at the first batch, once per worker.

    It turns a `pyarrow.RecordBatch` into another one, with one or more rows per input row, in order. The column `row`
    contains the number of the input row. A row that fails is returned with its `error`.
    """

    kind: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the input must have."""

    def describe(self) -> dict[str, object]:
        """Return the options and model digests that determine the output."""

    def __call__(self, batch: RecordBatch) -> RecordBatch:
        """Return the output for these rows."""


def map_rows(rows: Sequence[Row], function: Callable[[Row], list[OutputRow]]) -> list[OutputRow]:
    """Apply a function to every row. A row that fails becomes an output row with its id and its error."""
    results: list[OutputRow] = []
    for row in rows:
        try:
            outputs = function(row)
        except StopJobError:
            raise
        except Exception as exc:
            outputs = [{"id": text_or_none(row.get("id")), ERROR: describe_error(exc)}]
        results += [{**output, "row": row.get("row")} for output in outputs]
    return results


def to_batch(rows: Sequence[Row], columns: Mapping[str, str]) -> RecordBatch:
    """Return the rows as a record batch with `row`, these columns (name -> kind) and `error`."""
    pa = require("pyarrow", extra="batch")
    types = {
        "text": pa.string(),
        "texts": pa.list_(pa.string()),
        "boolean": pa.bool_(),
        "positions": pa.list_(pa.int32()),
        "scores": pa.list_(pa.float64()),
        "vector": pa.list_(pa.float32()),
    }
    fields = [(name, types[kind]) for name, kind in columns.items()]
    schema = pa.schema([("row", pa.int64()), *fields, (ERROR, pa.string())])
    return pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=schema)


def describe_error(exc: BaseException) -> str:
    """Return the reason for a failure. Messages of other libraries may quote a row, so only the type is used."""
    if isinstance(exc, OSError) and exc.strerror:
        return exc.strerror
    return str(exc) if isinstance(exc, ResiftError) else type(exc).__name__


def text_or_none(value: object) -> str | None:
    """Return a value as text, or None."""
    return None if value is None else str(value)


OnRows = Callable[[str, int], None]  # called with the name of a shard and the number of its finished rows

FAILED = "failed"
MAX_DEATHS = 200  # maximum number of workers that may die on one shard. Each deadly row costs a few workers.
_ROW_GROUP = 256


@dataclass(frozen=True, slots=True)
class ShardReport:
    """The outcome of a shard: rows read, rows written, failed rows. `skipped` if an earlier run finished it."""

    name: str
    rows: int
    written: int
    failed: int
    seconds: float = 0.0
    skipped: bool = False


def run_shard(
    work: BatchWork, shard: Shard, folder: Path, *, on_rows: Callable[[int], None] = lambda _: None
) -> ShardReport:
    """Process one shard, unless its output exists. The output gets its final name when it is complete.

    A shard that lost workers before is processed row by row, and a row that keeps killing workers fails.
    """
    report = load_report(shard, folder)
    if report is not None:
        return report
    started = time.monotonic()
    failures: list[FailedRow] = []
    with Attempts.record(folder, shard) as attempts, atomic_parquet(folder / f"{shard.name}.parquet") as out:
        for done, batch in _process(work, shard, attempts, failures):
            out.write(batch)
            on_rows(done)
        # Write failures before the output, so that all rows of an existing shard are accounted for.
        if failures:
            pa = require("pyarrow", extra="batch")
            columns = {"file": pa.string(), ROW: pa.int64(), "id": pa.string(), ERROR: pa.string()}
            failures.sort(key=lambda failure: failure.row)
            lines = [{"file": shard.file.name, **failure._asdict()} for failure in failures]
            with atomic_parquet(folder / f"{FAILED}-{shard.name}.parquet") as failed:
                failed.write(pa.RecordBatch.from_pylist(lines, schema=pa.schema(list(columns.items()))))
    return ShardReport(shard.name, shard.stop - shard.start, out.count, len(failures), time.monotonic() - started)


def load_report(shard: Shard, folder: Path) -> ShardReport | None:
    """Return the report of a shard that an earlier run finished, or None."""
    pq = require("pyarrow.parquet", extra="batch")
    counts: list[int | None] = []
    for path in (folder / f"{shard.name}.parquet", folder / f"{FAILED}-{shard.name}.parquet"):
        if not path.exists():
            counts.append(None)
            continue
        try:
            counts.append(int(pq.read_metadata(path).num_rows))
        except Exception as exc:  # the file was complete once, so it was changed later
            raise ResiftError(f"{path} was damaged after it was written; delete it and run again.") from exc
    written, failed = counts
    if written is None:
        return None
    return ShardReport(shard.name, shard.stop - shard.start, written, failed or 0, skipped=True)


def _process(
    work: BatchWork, shard: Shard, attempts: Attempts, failures: list[FailedRow]
) -> Iterator[tuple[int, RecordBatch]]:
    """Yield the outputs, each with the number of rows of the shard finished so far."""
    rows = 0
    for batch, unreadable in read_shard(shard, getattr(work, "rows_at_once", BATCH_ROWS)):
        failures += unreadable
        rows += len(unreadable)
        if batch is None or batch.num_rows == 0:
            continue
        done = rows
        for part in _split_if_deadly(batch, attempts, failures):
            done += part.num_rows
            for output in _apply(work, part, failures):
                yield done, output
        rows += batch.num_rows


def _split_if_deadly(batch: RecordBatch, attempts: Attempts, failures: list[FailedRow]) -> Iterator[RecordBatch]:
    """Yield the batch. If workers died before, yield its rows one by one, without those that killed workers."""
    if not attempts.careful:
        yield batch
        return
    for index, row in enumerate(batch.column(ROW).to_pylist()):
        if row in attempts.deadly:
            failures.append(FailedRow(row, None, "three workers died on this row"))
            continue
        attempts.add(str(row))
        yield batch.slice(index, 1)


def _apply(work: BatchWork, batch: RecordBatch, failures: list[FailedRow]) -> Iterator[RecordBatch]:
    """Run the work on all rows, or on each row if it raises, and yield the outputs without an error."""
    try:
        output = work(batch)
    except StopJobError:
        raise
    except Exception as exc:
        if batch.num_rows > 1:
            for index in range(batch.num_rows):
                yield from _apply(work, batch.slice(index, 1), failures)
            return
        id = text_or_none(batch.column("id")[0].as_py()) if "id" in batch.schema.names else None
        failures.append(FailedRow(batch.column(ROW)[0].as_py(), id, describe_error(exc)))
        return
    rows_in, rows_out = (set(each.column(ROW).to_pylist()) for each in (batch, output))
    failures += [FailedRow(row, None, "the work returned nothing for this row") for row in rows_in - rows_out]
    errors = output.column(ERROR)
    failed = output.filter(errors.is_valid()).to_pylist()
    failures += [FailedRow(row[ROW], row.get("id"), row[ERROR]) for row in failed]
    yield output.filter(errors.is_null()).drop_columns([ERROR])


class Attempts:
    """Log of earlier attempts at a shard whose workers died: a line per attempt, then a line per row.

    The third attempt goes row by row. A row is deadly if three workers died while processing it, so that random kills
    are not blamed on an innocent row. No row is blamed if the job itself was killed and started again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text().split() if path.exists() else []
        # The last line before each "begin" shows where a worker stopped.
        ends = [line for line, following in pairwise([*lines, "begin"]) if following == "begin"]
        deaths = Counter(line for line in ends if line != "job")
        if deaths.total() > MAX_DEATHS:
            raise ResiftError(f"{MAX_DEATHS} workers died on it; check the machine's memory.")
        self.careful = deaths.total() >= 2
        self.deadly = frozenset(int(row) for row, count in deaths.items() if row != "begin" and count >= 3)

    @classmethod
    @contextmanager
    def record(cls, folder: Path, shard: Shard) -> Iterator[Attempts]:
        """Record an attempt from start to end. The log remains only if the worker dies."""
        path = folder / f".{shard.name}.attempts"
        attempts = cls(path)
        attempts.add("begin")
        try:
            yield attempts
        finally:
            path.unlink(missing_ok=True)

    @staticmethod
    def job_started(folder: Path) -> None:
        """Record in the logs of an earlier run that the job was restarted."""
        for path in folder.glob(".part-*.attempts"):
            with path.open("a") as file:
                file.write("job\n")

    def add(self, line: str) -> None:
        """Append a line: the start of an attempt, or the row that a worker is processing."""
        with self._path.open("a") as file:
            file.write(f"{line}\n")


class ShardWriter:
    """Writes rows to a Parquet file in row groups of fixed size, so that equal rows give equal bytes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._writer: ParquetWriter | None = None
        self._pending: list[RecordBatch] = []
        self.count = 0

    def write(self, batch: RecordBatch) -> None:
        """Add the rows of a batch."""
        self._pending.append(batch)
        self.count += batch.num_rows
        if sum(each.num_rows for each in self._pending) >= _ROW_GROUP:
            self._flush(everything=False)

    def finish(self) -> None:
        """Write the remaining rows and the footer."""
        if self._pending or self._writer is None:
            self._flush(everything=True)
        if self._writer is not None:
            self._writer.close()

    def _flush(self, *, everything: bool) -> None:
        pa = require("pyarrow", extra="batch")
        pq = require("pyarrow.parquet", extra="batch")
        if not self._pending:
            self._pending = [pa.RecordBatch.from_pylist([], schema=pa.schema([(ROW, pa.int64())]))]
        table = pa.Table.from_batches(self._pending).combine_chunks()
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._file, table.schema, compression="zstd")
        end = table.num_rows if everything else table.num_rows // _ROW_GROUP * _ROW_GROUP
        if end:
            self._writer.write_table(table.slice(0, end), row_group_size=_ROW_GROUP)
        self._pending = table.slice(end).to_batches()


@contextmanager
def atomic_parquet(target: Path) -> Iterator[ShardWriter]:
    """Open a Parquet file that gets its final name when it is complete and on disk."""
    with atomic_file(target) as file:
        writer = ShardWriter(file)
        yield writer
        writer.finish()
