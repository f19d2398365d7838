"""The rows of one shard, a few at a time: what bounds a worker's memory, however large the input is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from resift.batch.arrow import RecordBatch
from resift.batch.inputs import Shard, is_parquet, opened
from resift.batch.work import kind_of
from resift.errors import require
from resift.types import JsonObject

ROWS_AT_ONCE = 64
BYTES_AT_ONCE = 4 << 20
"""Rows and bytes that a worker reads at a time; one row is read whole, whatever its size."""

ROW = "row"
"""The column with the number of the input row that a row comes from, from 0."""

_DAMAGED = "damaged Parquet; the file cannot be read from near this row to the end of its row group"


class Unread(NamedTuple):
    """An input row that could not be read or done, and why."""

    row: int
    id: str | None
    error: str


ReadRows = tuple[RecordBatch | None, list[Unread]]
"""A batch, and the rows near it that could not be read; None where there are only such rows."""


def read_shard(shard: Shard, at_once: int = ROWS_AT_ONCE) -> Iterator[ReadRows]:
    """Yield the shard's rows as record batches of a few rows, with their numbers in the column `row`."""
    if is_parquet(shard.file.address):
        yield from _parquet(shard, at_once)
        return
    with opened(shard.file.address) as source:
        yield from _jsonl(source, shard, at_once)


def numbered(batch: RecordBatch, first: int) -> RecordBatch:
    """Return the batch with the column `row` in front: the number of each row in its file, from `first`."""
    pa = require("pyarrow", extra="batch")
    rows = pa.array(range(first, first + batch.num_rows), pa.int64())
    names = [name for name in batch.schema.names if name != ROW]
    columns = [rows, *(batch.column(name) for name in names)]
    made: RecordBatch = pa.RecordBatch.from_arrays(columns, [ROW, *names])
    return made


class _ParquetRows:
    """The rows of a Parquet file, read forwards a few at a time.

    Parquet has no way into the middle of a row group but through all that stands before. So a reader stays
    open where a shard ended: a worker's next shard goes on from there, and a file is read once and not once
    for every shard, which over a network would be what a job takes most of its time for.
    """

    def __init__(self, address: str, at_once: int) -> None:
        pq = require("pyarrow.parquet", extra="batch")
        self._source = opened(address)
        # Without a buffer of a fixed size a whole column of a row group is read at once.
        self._file = pq.ParquetFile(
            self._source, buffer_size=1 << 20, pre_buffer=False, page_checksum_verification=True
        )
        self._at_once = at_once
        self._group = -1
        self._batches: Iterator[RecordBatch] = iter(())
        self._rest: RecordBatch | None = None
        self.at = 0

    def groups(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Yield the number, the first row and the end of each row group that has rows of this range."""
        first = 0
        for group in range(self._file.num_row_groups):
            end = first + self._file.metadata.row_group(group).num_rows
            if first < stop and end > start:
                yield group, first, end
            first = end

    def open_group(self, group: int, first: int, start: int) -> None:
        """Go to a row group that begins at row `first`, unless it is open and not yet past `start`."""
        if group == self._group and self.at <= start:
            return
        self._group, self._rest, self.at = group, None, first
        rows = _rows_to_read(self._file, group, self._at_once)
        self._batches = self._file.iter_batches(rows, row_groups=[group], use_threads=False)

    def rows(self, start: int, stop: int) -> Iterator[RecordBatch]:
        """Yield the rows from `start` to `stop` of the open group as batches, numbered."""
        while self.at < stop:
            batch = next(self._batches, None) if self._rest is None else self._rest
            if batch is None:
                return
            first, end = self.at, min(stop, self.at + batch.num_rows)
            self._rest = batch.slice(end - first) if end < first + batch.num_rows else None
            self.at, begin = end, max(start, first)
            if begin < end:
                yield numbered(batch.slice(begin - first, end - begin), begin)

    def lose_group(self) -> None:
        """Forget the open group, of which no more can be read."""
        self._group, self._batches, self._rest = -1, iter(()), None

    def close(self) -> None:
        """Close the file."""
        self._source.close()


_left_open: dict[tuple[str, str, int], _ParquetRows] = {}
"""At most one reader, where the last shard ended; taken out while it is used."""


def _parquet(shard: Shard, at_once: int) -> Iterator[ReadRows]:
    # The digest is that of the plan: a file of the same name with other rows is another one.
    key = (shard.file.address, shard.file.digest, at_once)
    reader = _left_open.pop(key, None)
    while _left_open:
        _left_open.popitem()[1].close()
    if reader is None:
        reader = _ParquetRows(shard.file.address, at_once)
    try:
        for group, first, end in reader.groups(shard.start, shard.stop):
            yield from _row_group(reader, shard, group, first, end)
    except BaseException:  # also a generator that nobody asks any more
        reader.close()
        raise
    if shard.stop < shard.file.rows:
        _left_open[key] = reader
    else:
        reader.close()


def _row_group(reader: _ParquetRows, shard: Shard, group: int, first: int, end: int) -> Iterator[ReadRows]:
    """Yield the shard's rows of one row group, which has the rows from `first` to `end`."""
    pa = require("pyarrow", extra="batch")
    start, stop = max(shard.start, first), min(shard.stop, end)
    try:
        reader.open_group(group, first, start)
        for batch in reader.rows(start, stop):
            for part in _small(batch):
                yield part, []
    except (OSError, pa.ArrowException):
        reader.lose_group()
    if reader.at < stop:
        yield None, [Unread(row, None, _DAMAGED) for row in range(max(start, reader.at), stop)]


def _rows_to_read(file: Any, group: int, at_once: int) -> int:
    """Return how many rows to read at a time, by the size of the first and of all in the metadata.

    Both, because texts that occur more than once take up less in the file than in memory.
    """
    about = file.metadata.row_group(group)
    first = next(file.iter_batches(1, row_groups=[group], use_threads=False), None)
    in_file = int(about.total_byte_size) // max(1, int(about.num_rows))
    row_bytes = max(1, in_file, int(first.nbytes) if first else 1)
    return max(1, min(at_once, BYTES_AT_ONCE // row_bytes))


def _small(batch: RecordBatch) -> Iterator[RecordBatch]:
    """Yield the batch in parts of a bounded size, at least a row each: as Python objects they take more."""
    if batch.nbytes <= BYTES_AT_ONCE or batch.num_rows == 1:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _small(batch.slice(0, half))
    yield from _small(batch.slice(half))


def _jsonl(source: BinaryIO, shard: Shard, at_once: int) -> Iterator[ReadRows]:
    source.seek(shard.file.offsets[shard.number])
    rows: list[JsonObject] = []
    unread: list[Unread] = []
    held = 0
    for number in range(shard.start, shard.stop):
        line = source.readline()
        row = _json_row(line)
        if isinstance(row, str):
            unread.append(Unread(number, None, row))
        else:
            rows.append({**row, ROW: number})
        held += len(line)
        if len(rows) + len(unread) == at_once or held > BYTES_AT_ONCE:
            yield from _typed(rows, unread)
            rows, unread, held = [], [], 0
    yield from _typed(rows, unread)


def _typed(rows: list[JsonObject], unread: list[Unread]) -> Iterator[ReadRows]:
    """Yield the rows as one batch; where their types do not fit together, each as a batch of its own."""
    pa = require("pyarrow", extra="batch")
    # Without this a column that only later rows have would be dropped.
    names = list(dict.fromkeys(name for row in rows for name in row))
    try:
        batch = pa.RecordBatch.from_pylist([{name: row.get(name) for name in names} for row in rows])
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        if len(rows) == 1:
            fault = "mixed types in one column, a number too large, or characters that are no Unicode"
            yield None, [*unread, Unread(rows[0][ROW], None, fault)]
            return
        for number, row in enumerate(rows):
            yield from _typed([row], unread if number == 0 else [])
        return
    yield batch, unread


def _json_row(line: bytes) -> JsonObject | str:
    """Return the object of a line, or why it is none."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return "not JSON; write one JSON object a line" if line.strip() else "an empty line"
    return row if isinstance(row, dict) else f"{kind_of(row)}; write one JSON object a line"
