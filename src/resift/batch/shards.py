"""One shard from input to output: computed a few rows at a time, written whole or not at all."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

from resift.atomic_files import atomic_file
from resift.batch.inputs import ROW, Shard, Unread, read_shard
from resift.batch.work import ERROR, BatchWork, reason_of
from resift.errors import require

FAILED = "failed"
DIED = "three workers died on this row"
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


def run_shard(work: BatchWork, shard: Shard, folder: Path) -> ShardReport:
    """Do one shard unless it is there; its file appears under its name only when it is whole.

    A shard that lost its worker before is done row by row, and a row that keeps killing workers is set aside.
    """
    target = folder / f"{shard.name}.parquet"
    if target.exists():
        return _as_it_is(shard, folder)
    started = time.monotonic()
    failures: list[Unread] = []
    attempts = Attempts(folder / f".{shard.name}.attempts")
    attempts.begin()
    with atomic_parquet(target) as output:
        for batch in _outputs(work, shard, attempts, failures):
            output.write(batch)
        # What failed is on the disk before what succeeded: a shard that is there is wholly accounted for.
        _write_failures(_failed_file(folder, shard), shard, failures)
    attempts.forget()
    rows = shard.stop - shard.start
    return ShardReport(shard.name, rows, output.count, len(failures), time.monotonic() - started)


def _outputs(work: BatchWork, shard: Shard, attempts: Attempts, failures: list[Unread]) -> Iterator[Any]:
    for batch, unread in read_shard(shard):
        failures += unread
        if batch is None or batch.num_rows == 0:
            continue
        if not attempts.careful:
            for done in _done(work, batch, failures):
                yield _kept(done, failures)
            continue
        for at, row in enumerate(batch.column(ROW).to_pylist()):
            if row in attempts.deadly:
                failures.append(Unread(row, None, DIED))
                continue
            attempts.row(row)
            for done in _done(work, batch.slice(at, 1), failures):
                yield _kept(done, failures)


class Attempts:
    """What is known of earlier tries of a shard whose workers died: a line per try, then a line per row.

    Two lost workers may be chance, so the third goes row by row; a row is deadly when three workers ended
    while they were at it, so that killing workers at random sets no innocent row aside.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text().split() if path.exists() else []
        self.careful = lines.count("begin") >= 2
        deaths: Counter[int] = Counter()
        for line, following in pairwise([*lines, "begin"]):
            if line != "begin" and following == "begin":
                deaths[int(line)] += 1
        self.deadly = frozenset(row for row, count in deaths.items() if count >= 3)

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


def _done(work: BatchWork, batch: Any, failures: list[Unread]) -> Iterator[Any]:
    """Run the work on all rows at once; if that fails, on each alone, so that one row costs only itself."""
    try:
        yield work(batch)
    except Exception as exc:
        if batch.num_rows == 1:
            failures.append(Unread(batch.column(ROW)[0].as_py(), None, reason_of(exc)))
            return
        for at in range(batch.num_rows):
            yield from _done(work, batch.slice(at, 1), failures)


def _kept(output: Any, failures: list[Unread]) -> Any:
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
        self._pending: list[Any] = []
        self.count = 0

    def write(self, batch: Any) -> None:
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
    name = Path(shard.file.address).name
    rows = [{"file": name, **one._asdict()} for one in sorted(failures, key=lambda one: one.row)]
    with atomic_parquet(target) as output:
        output.write(pa.RecordBatch.from_pylist(rows, schema=schema))


def _as_it_is(shard: Shard, folder: Path) -> ShardReport:
    pq = require("pyarrow.parquet", extra="batch")
    written = pq.read_metadata(folder / f"{shard.name}.parquet").num_rows
    aside = _failed_file(folder, shard)
    failed = pq.read_metadata(aside).num_rows if aside.exists() else 0
    return ShardReport(shard.name, shard.stop - shard.start, written, failed, skipped=True)


def _failed_file(folder: Path, shard: Shard) -> Path:
    return folder / f"{FAILED}-{shard.name}.parquet"
