"""The rows of one shard, a few at a time: what bounds a worker's memory, however large the input is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from resift.batch.inputs import Shard, is_parquet, opened
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


def read_shard(shard: Shard, at_once: int = ROWS_AT_ONCE) -> Iterator[tuple[Any, list[Unread]]]:
    """Yield the shard's rows as record batches of a few rows, with their numbers in the column `row`.

    Beside each batch stand the rows near it that could not be read; the batch is None where there are only
    such rows.
    """
    with opened(shard.file.address) as source:
        yield from (_parquet if is_parquet(shard.file.address) else _jsonl)(source, shard, at_once)


def numbered(batch: Any, first: int) -> Any:
    """Return the batch with the column `row` in front: the number of each row in its file, from `first`."""
    pa = require("pyarrow", extra="batch")
    rows = pa.array(range(first, first + batch.num_rows), pa.int64())
    names = [name for name in batch.schema.names if name != ROW]
    return pa.RecordBatch.from_arrays([rows, *(batch.column(name) for name in names)], [ROW, *names])


def _parquet(source: BinaryIO, shard: Shard, at_once: int) -> Iterator[tuple[Any, list[Unread]]]:
    pq = require("pyarrow.parquet", extra="batch")
    # Without a buffer of a fixed size a whole column of a row group is read at once.
    file = pq.ParquetFile(source, buffer_size=1 << 20, pre_buffer=False, page_checksum_verification=True)
    at = 0
    for group in range(file.num_row_groups):
        size = file.metadata.row_group(group).num_rows
        if at < shard.stop and at + size > shard.start:
            yield from _row_group(file, group, at, shard, at_once)
        at += size


def _row_group(
    file: Any, group: int, first: int, shard: Shard, at_once: int
) -> Iterator[tuple[Any, list[Unread]]]:
    """Yield the shard's rows of one row group that begins at row `first`."""
    pa = require("pyarrow", extra="batch")
    at, last = first, min(shard.stop, first + file.metadata.row_group(group).num_rows)
    try:
        rows = _rows_to_read(file, group, at_once)
        for batch in file.iter_batches(rows, row_groups=[group], use_threads=False):
            begin, end = max(shard.start, at), min(last, at + batch.num_rows)
            if begin < end:
                for part in _small(numbered(batch.slice(begin - at, end - begin), begin)):
                    yield part, []
            at += batch.num_rows
            if at >= last:
                return
    except (OSError, pa.ArrowException):
        pass
    yield None, [Unread(row, None, _DAMAGED) for row in range(max(shard.start, at), last)]


def _rows_to_read(file: Any, group: int, at_once: int) -> int:
    """Return how many rows to read at a time, by the size of the first and of all in the metadata.

    Both, because texts that occur more than once take up less in the file than in memory.
    """
    about = file.metadata.row_group(group)
    first = next(file.iter_batches(1, row_groups=[group], use_threads=False), None)
    in_file = int(about.total_byte_size) // max(1, int(about.num_rows))
    row_bytes = max(1, in_file, int(first.nbytes) if first else 1)
    return max(1, min(at_once, BYTES_AT_ONCE // row_bytes))


def _small(batch: Any) -> Iterator[Any]:
    """Yield the batch in parts of a bounded size, at least a row each: as Python objects they take more."""
    if batch.nbytes <= BYTES_AT_ONCE or batch.num_rows == 1:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _small(batch.slice(0, half))
    yield from _small(batch.slice(half))


def _jsonl(source: BinaryIO, shard: Shard, at_once: int) -> Iterator[tuple[Any, list[Unread]]]:
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


def _typed(rows: list[JsonObject], unread: list[Unread]) -> Iterator[tuple[Any, list[Unread]]]:
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
    return row if isinstance(row, dict) else f"a {type(row).__name__}; write one JSON object a line"
