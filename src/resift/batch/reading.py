"""Read the rows of one shard in small batches, which bound a worker's memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

from resift.batch.inputs import Shard, is_parquet, open_input
from resift.batch.work import OutputRow, describe_type
from resift.errors import require

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyarrow.parquet import ParquetFile

BATCH_ROWS = 64
BATCH_BYTES = 4 << 20
"""Rows and bytes that a worker reads at a time. A single row is read whole, whatever its size."""

ROW = "row"
"""The column with the number of the input row, from 0."""

_DAMAGED = "damaged Parquet; the file cannot be read from near this row to the end of its row group"


class FailedRow(NamedTuple):
    """An input row that could not be read or processed, and the reason."""

    row: int
    id: str | None
    error: str


ReadRows = tuple["RecordBatch | None", list[FailedRow]]
"""A batch, and the rows near it that could not be read. None if there are only such rows."""


def read_shard(shard: Shard, batch_rows: int = BATCH_ROWS) -> Iterator[ReadRows]:
    """Yield the shard's rows as small record batches, with their numbers in the column `row`."""
    if is_parquet(shard.file.address):
        yield from _read_parquet(shard, batch_rows)
        return
    with open_input(shard.file.address) as source:
        yield from _read_jsonl(source, shard, batch_rows)


def add_row_numbers(batch: RecordBatch, first: int) -> RecordBatch:
    """Return the batch with the column `row` in front: the number of each row, starting at `first`."""
    pa = require("pyarrow", extra="batch")
    rows = pa.array(range(first, first + batch.num_rows), pa.int64())
    names = [name for name in batch.schema.names if name != ROW]
    columns = [rows, *(batch.column(name) for name in names)]
    return pa.RecordBatch.from_arrays(columns, [ROW, *names])


numbered = add_row_numbers  # the name in 0.2


class _ParquetReader:
    """Reads a Parquet file forward in small batches.

    A row in the middle of a row group is reached only through all rows before it. So a reader stays open
    where a shard ended, and the worker's next shard continues there. The file is read once, not once per
    shard, which matters most over a network.
    """

    def __init__(self, address: str, batch_rows: int) -> None:
        pq = require("pyarrow.parquet", extra="batch")
        self._source = open_input(address)
        # Without a buffer of fixed size, a whole column of a row group is read at once.
        self._file: ParquetFile = pq.ParquetFile(
            self._source, buffer_size=1 << 20, pre_buffer=False, page_checksum_verification=True
        )
        self._batch_rows = batch_rows
        self._group = -1
        self._batches: Iterator[RecordBatch] = iter(())
        self._rest: RecordBatch | None = None
        self.next_row = 0

    def groups(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Yield the number, first row and end of each row group that has rows of this range."""
        first = 0
        for group in range(self._file.num_row_groups):
            end = first + self._file.metadata.row_group(group).num_rows
            if first < stop and end > start:
                yield group, first, end
            first = end

    def open_group(self, group: int, first: int, start: int) -> None:
        """Go to the row group that begins at row `first`, unless it is open and not past `start`."""
        if group == self._group and self.next_row <= start:
            return
        self._group, self._rest, self.next_row = group, None, first
        # Row size by the first row and by the metadata: repeated texts take less in the file than in memory.
        metadata = self._file.metadata.row_group(group)
        sample = next(self._file.iter_batches(1, row_groups=[group], use_threads=False), None)
        in_file = int(metadata.total_byte_size) // max(1, int(metadata.num_rows))
        row_bytes = max(1, in_file, int(sample.nbytes) if sample else 1)
        rows = max(1, min(self._batch_rows, BATCH_BYTES // row_bytes))
        self._batches = self._file.iter_batches(rows, row_groups=[group], use_threads=False)

    def rows(self, start: int, stop: int) -> Iterator[RecordBatch]:
        """Yield the rows from `start` to `stop` of the open group as batches with row numbers."""
        while self.next_row < stop:
            batch = next(self._batches, None) if self._rest is None else self._rest
            if batch is None:
                return
            first, end = self.next_row, min(stop, self.next_row + batch.num_rows)
            self._rest = batch.slice(end - first) if end < first + batch.num_rows else None
            self.next_row, begin = end, max(start, first)
            if begin < end:
                yield add_row_numbers(batch.slice(begin - first, end - begin), begin)

    def abandon_group(self) -> None:
        """Leave the open group, the rest of which cannot be read."""
        self._group, self._batches, self._rest = -1, iter(()), None

    def close(self) -> None:
        """Close the file."""
        self._source.close()


_open_readers: dict[tuple[str, str, int], _ParquetReader] = {}
"""At most one reader, at the end of the last shard. It is taken out while it is used."""


def _read_parquet(shard: Shard, batch_rows: int) -> Iterator[ReadRows]:
    # The digest is part of the key: a file of the same name with other rows is another file.
    key = (shard.file.address, shard.file.digest, batch_rows)
    reader = _open_readers.pop(key, None)
    while _open_readers:
        _open_readers.popitem()[1].close()
    if reader is None:
        reader = _ParquetReader(shard.file.address, batch_rows)
    try:
        for group, first, end in reader.groups(shard.start, shard.stop):
            yield from _read_group(reader, shard, group, first, end)
    except BaseException:  # also GeneratorExit
        reader.close()
        raise
    if shard.stop < shard.file.rows:
        _open_readers[key] = reader
    else:
        reader.close()


def _read_group(reader: _ParquetReader, shard: Shard, group: int, first: int, end: int) -> Iterator[ReadRows]:
    """Yield the shard's rows of one row group, which has the rows from `first` to `end`."""
    pa = require("pyarrow", extra="batch")
    start, stop = max(shard.start, first), min(shard.stop, end)
    try:
        reader.open_group(group, first, start)
        for batch in reader.rows(start, stop):
            for part in _split_large(batch):
                yield part, []
    except (OSError, pa.ArrowException):
        reader.abandon_group()
    if reader.next_row < stop:
        yield None, [FailedRow(row, None, _DAMAGED) for row in range(max(start, reader.next_row), stop)]


def _split_large(batch: RecordBatch) -> Iterator[RecordBatch]:
    """Yield the batch in parts of bounded size, at least a row each: Python objects take more memory."""
    if batch.nbytes <= BATCH_BYTES or batch.num_rows == 1:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _split_large(batch.slice(0, half))
    yield from _split_large(batch.slice(half))


def _read_jsonl(source: BinaryIO, shard: Shard, batch_rows: int) -> Iterator[ReadRows]:
    source.seek(shard.file.offsets[shard.number])
    rows: list[OutputRow] = []
    failed: list[FailedRow] = []
    size = 0
    for number in range(shard.start, shard.stop):
        line = source.readline()
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            reason = "not JSON; write one JSON object a line" if line.strip() else "an empty line"
            failed.append(FailedRow(number, None, reason))
        else:
            if isinstance(row, dict):
                rows.append({**row, ROW: number})
            else:
                reason = f"{describe_type(row)}; write one JSON object a line"
                failed.append(FailedRow(number, None, reason))
        size += len(line)
        if len(rows) + len(failed) == batch_rows or size > BATCH_BYTES:
            yield from _to_batches(rows, failed)
            rows, failed, size = [], [], 0
    yield from _to_batches(rows, failed)


def _to_batches(rows: list[OutputRow], failed: list[FailedRow]) -> Iterator[ReadRows]:
    """Yield the rows as one batch, or as one batch each if their types do not fit together."""
    pa = require("pyarrow", extra="batch")
    # With the names of all rows: Arrow drops a column that only later rows have.
    names = list(dict.fromkeys(name for row in rows for name in row))
    try:
        batch = pa.RecordBatch.from_pylist([{name: row.get(name) for name in names} for row in rows])
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        if len(rows) == 1:
            reason = "mixed types in one column, a number too large, or characters that are not Unicode"
            yield None, [*failed, FailedRow(cast("int", rows[0][ROW]), None, reason)]
            return
        for number, row in enumerate(rows):
            yield from _to_batches([row], failed if number == 0 else [])
        return
    yield batch, failed
