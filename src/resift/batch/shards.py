"""One shard from input to output: computed a few rows at a time, written whole or not at all."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

from resift._internal.atomic_files import atomic_file
from resift.batch.arrow import RecordBatch
from resift.batch.inputs import Shard
from resift.batch.reading import ROW, ROWS_AT_ONCE, Unread, read_shard
from resift.batch.work import ERROR, BatchWork, NotTheRow, reason_of, text_or_none
from resift.errors import ResiftError, require

OnRows = Callable[[str, int], None]
"""Hears the name of a shard and how many of its rows are done."""

FAILED = "failed"
DIED = "three workers died on this row"
MOST_DEATHS = 200
"""How many workers may die on one shard: each deadly row costs a few."""
_ROW_GROUP = 256


@dataclass(frozen=True, slots=True)
class ShardReport:
    """What became of a shard: rows in, rows out, rows set aside; `skipped` where it was there already."""

    name: str
    rows: int
    written: int
    failed: int
    seconds: float = 0.0
    skipped: bool = False


def run_shard(
    work: BatchWork, shard: Shard, folder: Path, *, on_rows: Callable[[int], None] = lambda _: None
) -> ShardReport:
    """Do one shard unless it is there; its file appears under its name only when it is whole.

    A shard that lost its worker before is done row by row, and a row that keeps killing workers is set aside.
    `on_rows` hears how many rows of the shard are done.
    """
    target = folder / f"{shard.name}.parquet"
    if (there := report_of(shard, folder)) is not None:
        return there
    started = time.monotonic()
    failures: list[Unread] = []
    with Attempts.noted(folder, shard) as attempts, atomic_parquet(target) as output:
        for done, batch in _outputs(work, shard, attempts, failures):
            output.write(batch)
            on_rows(done)
        # What failed is on the disk before what succeeded: a shard that is there is wholly accounted for.
        _write_failures(_failed_file(folder, shard), shard, failures)
    rows = shard.stop - shard.start
    return ShardReport(shard.name, rows, output.count, len(failures), time.monotonic() - started)


def failure_of(shard: Shard, exc: Exception) -> str:
    """Say why a shard could not be done, by its file and rows."""
    return f"{shard.file.name}, rows {shard.start} to {shard.stop - 1}: {reason_of(exc)}"


def _outputs(
    work: BatchWork, shard: Shard, attempts: Attempts, failures: list[Unread]
) -> Iterator[tuple[int, RecordBatch]]:
    """Yield what the rows become, and how many rows of the shard are done by then."""
    rows = 0
    for batch, unread in read_shard(shard, getattr(work, "rows_at_once", ROWS_AT_ONCE)):
        failures += unread
        rows += len(unread)
        if batch is None or batch.num_rows == 0:
            continue
        at = rows
        for part in _parts(batch, attempts, failures):
            at += part.num_rows
            for done in _done(work, part, failures):
                yield at, _kept(done, failures)
        rows += batch.num_rows


def _parts(batch: RecordBatch, attempts: Attempts, failures: list[Unread]) -> Iterator[RecordBatch]:
    """Yield the batch whole or, where workers died before, row by row without those that killed them."""
    if not attempts.careful:
        yield batch
        return
    for at, row in enumerate(batch.column(ROW).to_pylist()):
        if row in attempts.deadly:
            failures.append(Unread(row, None, DIED))
            continue
        attempts.row(row)
        yield batch.slice(at, 1)


class Attempts:
    """What is known of earlier tries of a shard whose workers died: a line per try, then a line per row.

    Two lost workers may be chance, so the third goes row by row; a row is deadly when three workers ended
    while they were at it, so that killing workers at random sets no innocent row aside. Where the job itself
    was ended and started again, no row is blamed.
    """

    @classmethod
    @contextmanager
    def noted(cls, folder: Path, shard: Shard) -> Iterator[Attempts]:
        """Note a try from its begin to its end, good or bad; only a worker that dies leaves its notes."""
        attempts = cls(folder / f".{shard.name}.attempts")
        attempts.begin()
        try:
            yield attempts
        finally:
            attempts.forget()

    @staticmethod
    def job_started(folder: Path) -> None:
        """Note in what an earlier run left that the job began anew."""
        for path in folder.glob(".part-*.attempts"):
            with path.open("a") as file:
                file.write("job\n")

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text().split() if path.exists() else []
        ended = [line for line, following in pairwise([*lines, "begin"]) if following == "begin"]
        died = Counter(line for line in ended if line != "job")
        if died.total() > MOST_DEATHS:
            raise ResiftError(f"{MOST_DEATHS} workers died on it; look at the machine's memory.")
        self.careful = died.total() >= 2
        self.deadly = frozenset(int(row) for row, count in died.items() if row != "begin" and count >= 3)

    def begin(self) -> None:
        """Note that a worker begins."""
        self._note("begin")

    def row(self, number: int) -> None:
        """Note that a worker is at this row."""
        self._note(str(number))

    def forget(self) -> None:
        """Remove the notes of a shard that is done."""
        self._path.unlink(missing_ok=True)

    def _note(self, line: str) -> None:
        with self._path.open("a") as file:
            file.write(f"{line}\n")


def _done(work: BatchWork, batch: RecordBatch, failures: list[Unread]) -> Iterator[RecordBatch]:
    """Run the work on all rows at once; if that fails, on each alone, so that one row costs only itself."""
    try:
        done = work(batch)
    except NotTheRow:
        raise
    except Exception as exc:
        if batch.num_rows == 1:
            failures.append(Unread(batch.column(ROW)[0].as_py(), _id_in(batch), reason_of(exc)))
            return
        for at in range(batch.num_rows):
            yield from _done(work, batch.slice(at, 1), failures)
        return
    given, answered = (set(one.column(ROW).to_pylist()) for one in (batch, done))
    failures += [Unread(row, None, "the work returned nothing for this row") for row in given - answered]
    yield done


def _id_in(batch: RecordBatch) -> str | None:
    return text_or_none(batch.column("id")[0].as_py()) if "id" in batch.schema.names else None


def _kept(output: RecordBatch, failures: list[Unread]) -> RecordBatch:
    """Return the rows without an error, and set the others aside."""
    pa = require("pyarrow", extra="batch")
    errors = output.column(ERROR).to_pylist()
    for at, error in enumerate(errors):
        if error is not None:
            failures.append(Unread(output.column(ROW)[at].as_py(), output.column("id")[at].as_py(), error))
    good = pa.array([at for at, error in enumerate(errors) if error is None], pa.int64())
    return output.take(good).drop_columns([ERROR])


class ParquetRows:
    """Rows on their way into a Parquet file, in row groups of one size: the same rows are the same bytes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._writer: Any = None
        self._pending: list[RecordBatch] = []
        self.count = 0

    def write(self, batch: RecordBatch) -> None:
        """Add the rows of a batch."""
        self._pending.append(batch)
        self.count += batch.num_rows
        if sum(one.num_rows for one in self._pending) >= _ROW_GROUP:
            self._flush(whole=False)

    def finish(self) -> None:
        """Write what is left and the footer."""
        if self._pending or self._writer is None:
            self._flush(whole=True)
        self._writer.close()

    def _flush(self, *, whole: bool) -> None:
        pa = require("pyarrow", extra="batch")
        pq = require("pyarrow.parquet", extra="batch")
        if not self._pending:
            self._pending = [pa.RecordBatch.from_pylist([], schema=pa.schema([(ROW, pa.int64())]))]
        table = pa.Table.from_batches(self._pending).combine_chunks()
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._file, table.schema, compression="zstd")
        end = table.num_rows if whole else table.num_rows // _ROW_GROUP * _ROW_GROUP
        if end:
            self._writer.write_table(table.slice(0, end), row_group_size=_ROW_GROUP)
        self._pending = table.slice(end).to_batches()


@contextmanager
def atomic_parquet(target: Path) -> Iterator[ParquetRows]:
    """Open a Parquet file that appears under its name only when it is whole and on the disk."""
    with atomic_file(target) as file:
        rows = ParquetRows(file)
        yield rows
        rows.finish()


def _write_failures(target: Path, shard: Shard, failures: list[Unread]) -> None:
    if not failures:
        return
    pa = require("pyarrow", extra="batch")
    schema = pa.schema([("file", pa.string()), (ROW, pa.int64()), ("id", pa.string()), (ERROR, pa.string())])
    rows = [{"file": shard.file.name, **one._asdict()} for one in sorted(failures, key=lambda one: one.row)]
    with atomic_parquet(target) as output:
        output.write(pa.RecordBatch.from_pylist(rows, schema=schema))


def report_of(shard: Shard, folder: Path) -> ShardReport | None:
    """Return the report of a shard that an earlier run did, or None if it is not there."""
    target, aside = folder / f"{shard.name}.parquet", _failed_file(folder, shard)
    if not target.exists():
        return None
    failed = _rows_in(aside) if aside.exists() else 0
    return ShardReport(shard.name, shard.stop - shard.start, _rows_in(target), failed, skipped=True)


def _rows_in(path: Path) -> int:
    pq = require("pyarrow.parquet", extra="batch")
    try:
        return int(pq.read_metadata(path).num_rows)
    except Exception as exc:  # written whole once, so it was changed since
        raise ResiftError(f"{path} was damaged after it was written; delete it and run again.") from exc


def _failed_file(folder: Path, shard: Shard) -> Path:
    return folder / f"{FAILED}-{shard.name}.parquet"
