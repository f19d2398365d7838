"""Where rows come from: Parquet and JSONL, in files, folders, globs or anything that fsspec can open.

A job is planned once: each input file is read for its digest and its number of rows, and cut into shards of
rows. A worker then opens only its own range.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from resift.errors import DataFormatError, InputError, require

PARQUET, JSONL = (".parquet", ".pq"), (".jsonl", ".ndjson")
ROWS_AT_ONCE = 64
"""Rows that a worker holds at a time: what bounds its memory, however large the input is."""

ROW = "row"
"""The column with the number of the input row that a row comes from, from 0."""

_LONGEST_LINE = 64 << 20


class Unread(NamedTuple):
    """An input row that could not be read or done, and why."""

    row: int
    id: str | None
    error: str


@dataclass(frozen=True, slots=True)
class InputFile:
    """One input: its address, the digest of its bytes, and how many rows it has."""

    address: str
    digest: str
    rows: int
    offsets: tuple[int, ...] = ()
    """Of JSONL: the byte at which each shard begins."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A range of rows of one input file, and the name of what they become."""

    file: InputFile
    number: int
    start: int
    stop: int

    @property
    def name(self) -> str:
        """A name that follows from content and range: the same rows always get the same name."""
        return f"part-{self.file.digest[:16]}-{self.start:010}-{self.stop:010}"


def find_inputs(given: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return the addresses of all input files, sorted; a folder means its Parquet and JSONL files."""
    named = [given] if isinstance(given, (str, os.PathLike)) else list(given)
    found: list[str] = []
    for address in [str(os.fspath(one)) for one in named]:
        if "://" in address:
            found += _remote(address)
        elif Path(address).is_dir():
            found += [
                str(path)
                for path in sorted(Path(address).rglob("*"))
                if path.suffix.lower() in PARQUET + JSONL
            ]
        elif glob.has_magic(address):
            found += sorted(glob.glob(address, recursive=True))
        elif Path(address).is_file():
            found.append(address)
        else:
            raise DataFormatError("no such file, folder or pattern", file=address)
    if not found:
        raise InputError("No Parquet or JSONL file there; name files, a folder that has some, or a pattern.")
    return list(dict.fromkeys(found))


def plan(address: str, *, shard_rows: int, columns: Sequence[str]) -> tuple[InputFile, list[Shard]]:
    """Read a file once for its digest and rows, check its columns, and cut it into shards."""
    with _opened(address) as source:
        digest = _digest(source)
        source.seek(0)
        offsets: tuple[int, ...] = ()
        if _is_parquet(address):
            rows = _parquet_rows(source, address, columns)
        else:
            rows, offsets = _jsonl_rows(source, address, shard_rows)
    file = InputFile(address, digest, rows, offsets)
    starts = range(0, rows, shard_rows)
    return file, [
        Shard(file, number, start, min(rows, start + shard_rows)) for number, start in enumerate(starts)
    ]


def read_shard(shard: Shard) -> Iterator[tuple[Any, list[Unread]]]:
    """Yield the shard's rows as record batches of a few rows, with their numbers in the column `row`.

    Beside each batch stand the rows near it that could not be read.
    """
    with _opened(shard.file.address) as source:
        if _is_parquet(shard.file.address):
            for first, batch in _parquet_batches(source, shard):
                yield numbered(batch, first), []
        else:
            yield from _jsonl_batches(source, shard)


def numbered(batch: Any, first: int) -> Any:
    """Return the batch with the column `row` in front: the number of each row in its file, from `first`."""
    pa = require("pyarrow", extra="batch")
    rows = pa.array(range(first, first + batch.num_rows), pa.int64())
    names = [name for name in batch.schema.names if name != ROW]
    return pa.RecordBatch.from_arrays([rows, *(batch.column(name) for name in names)], [ROW, *names])


def _parquet_rows(source: BinaryIO, address: str, columns: Sequence[str]) -> int:
    pq = require("pyarrow.parquet", extra="batch")
    try:
        file = pq.ParquetFile(source)
    except Exception as exc:
        raise DataFormatError(f"not Parquet, or damaged ({type(exc).__name__})", file=address) from exc
    missing = [column for column in columns if column not in file.schema_arrow.names]
    if missing:
        have = ", ".join(file.schema_arrow.names) or "none"
        raise DataFormatError(f"no column {', '.join(map(repr, missing))}; it has {have}", file=address)
    return int(file.metadata.num_rows)


def _parquet_batches(source: BinaryIO, shard: Shard) -> Iterator[tuple[int, Any]]:
    pq = require("pyarrow.parquet", extra="batch")
    file = pq.ParquetFile(source)
    at = 0
    for group in range(file.num_row_groups):
        size = file.metadata.row_group(group).num_rows
        if at + size <= shard.start or at >= shard.stop:
            at += size
            continue
        try:
            for batch in file.iter_batches(ROWS_AT_ONCE, row_groups=[group]):
                first, last = max(shard.start, at), min(shard.stop, at + batch.num_rows)
                if first < last:
                    yield first, batch.slice(first - at, last - first)
                at += batch.num_rows
                if at >= shard.stop:
                    return
        except OSError as exc:
            raise DataFormatError(
                f"damaged near row {at} ({type(exc).__name__})", file=shard.file.address
            ) from exc


def _jsonl_rows(source: BinaryIO, address: str, shard_rows: int) -> tuple[int, tuple[int, ...]]:
    offsets, rows, place = [], 0, 0
    for line in iter(lambda: source.readline(_LONGEST_LINE + 1), b""):
        if len(line) > _LONGEST_LINE:
            raise DataFormatError(f"longer than {_LONGEST_LINE >> 20} MiB", file=address, line=rows + 1)
        if rows % shard_rows == 0:
            offsets.append(place)
        rows += 1
        place += len(line)
    return rows, tuple(offsets)


def _jsonl_batches(source: BinaryIO, shard: Shard) -> Iterator[tuple[Any, list[Unread]]]:
    source.seek(shard.file.offsets[shard.number])
    for start in range(shard.start, shard.stop, ROWS_AT_ONCE):
        rows: list[dict[str, Any]] = []
        unread: list[Unread] = []
        for number in range(start, min(shard.stop, start + ROWS_AT_ONCE)):
            row = _json_row(source.readline())
            if isinstance(row, str):
                unread.append(Unread(number, None, row))
            else:
                rows.append({**row, ROW: number})
        yield from _typed(rows, unread)


def _typed(rows: list[dict[str, Any]], unread: list[Unread]) -> Iterator[tuple[Any, list[Unread]]]:
    """Yield the rows as one batch; where their types do not fit together, each as a batch of its own."""
    pa = require("pyarrow", extra="batch")
    try:
        # Without this a column that only later rows have would be dropped.
        names = list(dict.fromkeys(name for row in rows for name in row))
        yield pa.RecordBatch.from_pylist([{name: row.get(name) for name in names} for row in rows]), unread
    except (pa.ArrowException, OverflowError):
        if len(rows) > 1:
            for number, row in enumerate(rows):
                yield from _typed([row], unread if number == 0 else [])
        else:
            mixed = Unread(rows[0][ROW], None, "mixed types in one column of the row")
            yield None, [*unread, mixed]


def _json_row(line: bytes) -> dict[str, Any] | str:
    """Return the object of a line, or why it is none."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return "not JSON; write one JSON object a line"
    return row if isinstance(row, dict) else f"a {type(row).__name__}; write one JSON object a line"


def _remote(address: str) -> list[str]:
    fsspec = require("fsspec", extra="batch")
    filesystem, path = fsspec.core.url_to_fs(address)
    if filesystem.isdir(path):
        names = [name for name in filesystem.find(path) if Path(name).suffix.lower() in PARQUET + JSONL]
    else:
        names = filesystem.glob(path) if glob.has_magic(path) else [path]
    return [filesystem.unstrip_protocol(name) for name in sorted(names)]


def _opened(address: str) -> Any:
    if "://" in address:
        return require("fsspec", extra="batch").open(address, "rb").open()
    return Path(address).open("rb")


def _is_parquet(address: str) -> bool:
    suffix = Path(address).suffix.lower()
    if suffix not in PARQUET + JSONL:
        raise InputError(f"{address}: neither Parquet nor JSONL; name it .parquet or .jsonl.")
    return suffix in PARQUET


def _digest(source: BinaryIO) -> str:
    digest = hashlib.sha256()
    while block := source.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()
