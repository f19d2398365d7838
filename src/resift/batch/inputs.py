"""Find the input files of a job (Parquet and JSONL), and plan its shards.

Each file is read once for its digest and row count. A worker then reads only the rows of its shard (`read_shard`).
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

from resift.errors import DataFormatError, InputError, require
from resift.validation import check_list, check_path, type_name

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyarrow.parquet import ParquetFile

PARQUET, JSONL = (".parquet", ".pq"), (".jsonl", ".ndjson")

_MAX_LINE_BYTES = 64 << 20

PathLike = str | os.PathLike[str]
OutputRow = dict[str, object]


@dataclass(frozen=True, slots=True)
class InputFile:
    """An input file: its address, the digest of its bytes, and its number of rows."""

    address: str
    digest: str
    rows: int
    offsets: tuple[int, ...] = ()  # for JSONL: the byte offset of each shard
    name: str = ""  # the name in reports: the last part of the address that distinguishes it from other inputs
    copy: int = 1
    """2 for the second file with the same content. Each copy has its own shards."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A range of rows of one input file."""

    file: InputFile
    number: int
    start: int
    stop: int

    @property
    def name(self) -> str:
        """The name of the output. It depends only on content and range, so the same rows get the same name."""
        copy = f".{self.file.copy}" if self.file.copy > 1 else ""
        return f"part-{self.file.digest[:16]}{copy}-{self.start:010}-{self.stop:010}"

    def describe(self) -> str:
        """Return the file name and the row range, for error messages."""
        return f"{self.file.name}, rows {self.start} to {self.stop - 1}"


def find_inputs(paths: PathLike | Sequence[PathLike], *, out: Path | None = None) -> list[str]:
    """Return the addresses of the files in paths, folders, patterns and URLs, except matching shards in `out`."""
    requested = [paths] if isinstance(paths, (str, os.PathLike)) else check_list(paths, "inputs", "paths")
    addresses: list[str] = []
    # Validate first, because `glob` takes minutes for a very long pattern.
    for address in [check_path(each, "One of the inputs") for each in requested]:
        if "://" in address:
            addresses += _find_remote(address)
        elif os.path.isdir(address):  # unlike Path, raises no error for a name that is too long
            addresses += _find_in_folder(Path(address))
        elif glob.has_magic(address):
            addresses += sorted(glob.glob(address, recursive=True))
        elif os.path.isfile(address):
            addresses.append(address)
        else:
            raise DataFormatError("no such file or folder, and not a pattern", file=address)
    if out is not None:
        output = out.resolve()
        exact = {str(os.fspath(each)) for each in requested}
        addresses = [
            address
            for address in addresses
            if address in exact or output not in Path(address.removeprefix("file://")).resolve().parents
        ]
    if not addresses:
        raise InputError("No Parquet or JSONL files found; pass files, a folder that contains some, or a pattern.")
    return list(dict.fromkeys(addresses))


def _find_in_folder(folder: Path) -> list[str]:
    """Return the input files in a folder, except hidden files and folders."""

    def raise_error(error: OSError) -> None:
        # Otherwise, the rows of a folder that cannot be listed would be missing silently.
        reason = error.strerror or type(error).__name__
        raise DataFormatError(f"cannot be listed: {reason}", file=error.filename) from error

    paths: list[Path] = []
    for parent, folders, names in os.walk(folder, onerror=raise_error):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths += [Path(parent, name) for name in names if not name.startswith(".")]
    return [str(path) for path in sorted(paths) if path.suffix.lower() in PARQUET + JSONL and path.is_file()]


def _find_remote(address: str) -> list[str]:
    fsspec = require("fsspec", extra="batch")
    try:
        filesystem, path = fsspec.core.url_to_fs(address)
        if filesystem.isdir(path):
            names = [
                name
                for name in filesystem.find(path)
                if Path(name).suffix.lower() in PARQUET + JSONL
                and not any(part.startswith(".") for part in name.removeprefix(path).split("/"))
            ]
        else:
            names = filesystem.glob(path) if glob.has_magic(path) else [path]
    except Exception as exc:  # each file system raises its own exceptions
        raise _read_error(address, exc) from exc
    return [filesystem.unstrip_protocol(name) for name in sorted(names)]


def plan_inputs(
    addresses: Sequence[str], *, shard_rows: int, columns: Sequence[str]
) -> tuple[list[InputFile], list[Shard]]:
    """Read each file once for its digest and row count, check its columns, and divide the rows into shards."""
    copies: Counter[str] = Counter()
    files, shards = [], []
    for address, name in zip(addresses, _short_names(addresses), strict=True):
        with open_input(address) as source:
            digest = hashlib.sha256()
            while block := source.read(1 << 20):
                digest.update(block)
            source.seek(0)
            if is_parquet(address):
                file = InputFile(address, digest.hexdigest(), _count_parquet(source, address, columns))
            else:
                file = InputFile(address, digest.hexdigest(), *_count_jsonl(source, address, shard_rows))
        copies[file.digest] += 1
        file = replace(file, name=name, copy=copies[file.digest])
        files.append(file)
        for number, start in enumerate(range(0, file.rows, shard_rows)):
            shards.append(Shard(file, number, start, min(file.rows, start + shard_rows)))
    return files, shards


def _short_names(addresses: Sequence[str]) -> list[str]:
    """Return the shortest distinct endings of the addresses, all with the same number of path parts."""
    paths = [address.replace(os.sep, "/").split("/") for address in addresses]
    for depth in range(1, max(map(len, paths), default=1)):
        names = ["/".join(parts[-depth:]) for parts in paths]
        if len(set(names)) == len(names):
            return names
    return list(addresses)


def _count_parquet(source: BinaryIO, address: str, columns: Sequence[str]) -> int:
    pq = require("pyarrow.parquet", extra="batch")
    try:
        file = pq.ParquetFile(source)
    except Exception as exc:
        raise DataFormatError(f"not Parquet, or damaged ({type(exc).__name__})", file=address) from exc
    missing = [column for column in columns if column not in file.schema_arrow.names]
    if missing:
        names = ", ".join(file.schema_arrow.names) or "none"
        raise DataFormatError(f"no column {', '.join(map(repr, missing))}; available: {names}", file=address)
    return int(file.metadata.num_rows)


def _count_jsonl(source: BinaryIO, address: str, shard_rows: int) -> tuple[int, tuple[int, ...]]:
    """Return the number of lines and the byte offset of each shard."""
    offsets, rows, offset = [], 0, 0
    for line in iter(lambda: source.readline(_MAX_LINE_BYTES + 1), b""):
        if len(line) > _MAX_LINE_BYTES:
            raise DataFormatError(f"longer than {_MAX_LINE_BYTES >> 20} MiB", file=address, line=rows + 1)
        if rows % shard_rows == 0:
            offsets.append(offset)
        rows += 1
        offset += len(line)
    return rows, tuple(offsets)


def check_readable_by_workers(shards: Iterable[Shard]) -> None:
    """Reject inputs that only this process can read, before workers are started."""
    for shard in shards:
        if shard.file.address.startswith("memory://"):
            message = "is in the memory of this process, where workers cannot read it; write it to a file"
            raise DataFormatError(message, file=shard.file.address)


def open_input(address: str) -> BinaryIO:
    """Open a path or a URL for reading bytes. Raises DataFormatError if this fails."""
    try:
        if "://" in address:
            file: BinaryIO = require("fsspec", extra="batch").open(address, "rb").open()
            return file
        return Path(address).open("rb")
    except Exception as exc:
        raise _read_error(address, exc) from exc


def _read_error(address: str, exc: Exception) -> DataFormatError:
    reason = (exc.strerror or "") if isinstance(exc, OSError) else ""
    if isinstance(exc, FileNotFoundError):  # fsspec's message contains only the path
        reason = "no such file"
    # The first line of fsspec's message names the missing package for s3:// and other protocols.
    reason = reason or str(exc).partition("\n")[0][:200] or type(exc).__name__
    return DataFormatError(f"cannot be read: {reason}", file=address)


def is_parquet(address: str) -> bool:
    """Return whether a file is Parquet (or else JSONL) by its suffix. Raises InputError for other suffixes."""
    suffix = Path(address).suffix.lower()
    if suffix not in PARQUET + JSONL:
        raise InputError(f"{address}: neither Parquet nor JSONL; the name must end in .parquet or .jsonl.")
    return suffix in PARQUET


BATCH_ROWS = 64
BATCH_BYTES = 4 << 20
"""Maximum rows and bytes that a worker reads at a time. A single row is read completely, whatever its size."""

ROW = "row"  # the column with the number of the input row, starting at 0

_DAMAGED = "damaged Parquet; the file is unreadable from about this row to the end of its row group"


class FailedRow(NamedTuple):
    """An input row that could not be read or processed, and the reason."""

    row: int
    id: str | None
    error: str


ReadRows = tuple["RecordBatch | None", list[FailedRow]]
"""A batch and the nearby rows that could not be read. The batch is missing if there are only such rows."""


def read_shard(shard: Shard, batch_rows: int = BATCH_ROWS) -> Iterator[ReadRows]:
    """Yield the shard's rows as small record batches, with their numbers in the column `row`."""
    if is_parquet(shard.file.address):
        yield from _read_parquet(shard, batch_rows)
        return
    with open_input(shard.file.address) as source:
        yield from _read_jsonl(source, shard, batch_rows)


def add_row_numbers(batch: RecordBatch, first: int) -> RecordBatch:
    """Return the batch with a first column `row`: the number of each row, starting at `first`."""
    pa = require("pyarrow", extra="batch")
    rows = pa.array(range(first, first + batch.num_rows), pa.int64())
    names = [name for name in batch.schema.names if name != ROW]
    return pa.RecordBatch.from_arrays([rows, *(batch.column(name) for name in names)], [ROW, *names])


Piece = tuple[int, int, "RecordBatch | None"]
"""First row, end, and a batch of these rows, or None if they cannot be read."""

_open_files: dict[tuple[str, str, int], tuple[BinaryIO, Iterator[Piece], Piece, int]] = {}
"""At most one Parquet file: its remaining pieces, and the last piece and the end of the last shard.

A row can be reached only through the rows before it in its row group, so the next shard continues there.
The file is removed while in use.
"""


def _scan_parquet(source: BinaryIO, start: int, batch_rows: int) -> Iterator[Piece]:
    """Yield a Parquet file in small batches, from the row group that contains row `start` to the end."""
    pa, pq = (require(name, extra="batch") for name in ("pyarrow", "pyarrow.parquet"))
    # Without a fixed-size buffer, an entire column of a row group is read at once.
    file: ParquetFile = pq.ParquetFile(source, buffer_size=1 << 20, pre_buffer=False, page_checksum_verification=True)
    end = 0
    for group in range(file.num_row_groups):
        metadata = file.metadata.row_group(group)
        row, end = end, end + metadata.num_rows
        if end <= start:
            continue
        with suppress(OSError, pa.ArrowException):
            # Estimate the row size from the first row and from the metadata. Repeated texts take less space in the
            # file than in memory.
            sample = next(file.iter_batches(1, row_groups=[group], use_threads=False), None)
            in_file = int(metadata.total_byte_size) // max(1, int(metadata.num_rows))
            row_bytes = max(1, in_file, int(sample.nbytes) if sample else 1)
            rows = max(1, min(batch_rows, BATCH_BYTES // row_bytes))
            for batch in file.iter_batches(rows, row_groups=[group], use_threads=False):
                yield row, row + batch.num_rows, batch
                row += batch.num_rows
        if row < end:
            yield row, end, None


def _read_parquet(shard: Shard, batch_rows: int) -> Iterator[ReadRows]:
    # The digest is part of the key, because a file with the same name may have other rows.
    key = (shard.file.address, shard.file.digest, batch_rows)
    last: list[Piece] = []
    if key in _open_files and _open_files[key][-1] <= shard.start:
        source, pieces, piece, _ = _open_files.pop(key)
        last.append(piece)
    else:
        source = open_input(shard.file.address)
        pieces = _scan_parquet(source, shard.start, batch_rows)
    while _open_files:
        _open_files.popitem()[1][0].close()
    keep_open = False
    try:
        for first, end, batch in chain(last, pieces):
            start, stop = max(shard.start, first), min(shard.stop, end)
            if start < stop and batch is None:
                yield None, [FailedRow(row, None, _DAMAGED) for row in range(start, stop)]
            elif start < stop and batch is not None:
                for part in _split_large(add_row_numbers(batch.slice(start - first, stop - start), start)):
                    yield part, []
            if end >= shard.stop:
                keep_open = batch is not None and shard.stop < shard.file.rows
                if keep_open:
                    _open_files[key] = source, pieces, (first, end, batch), shard.stop
                return
    finally:
        if not keep_open:
            source.close()


def _split_large(batch: RecordBatch) -> Iterator[RecordBatch]:
    """Yield the batch in parts of limited size, at least one row each. Python objects take more memory than Arrow."""
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
            reason = "not JSON; write one JSON object per line" if line.strip() else "an empty line"
            failed.append(FailedRow(number, None, reason))
        else:
            if isinstance(row, dict):
                rows.append({**row, ROW: number})
            else:
                failed.append(FailedRow(number, None, f"{describe_type(row)}; write one JSON object per line"))
        size += len(line)
        if len(rows) + len(failed) == batch_rows or size > BATCH_BYTES:
            yield from _to_batches(rows, failed)
            rows, failed, size = [], [], 0
    yield from _to_batches(rows, failed)


def _to_batches(rows: list[OutputRow], failed: list[FailedRow]) -> Iterator[ReadRows]:
    """Yield the rows as one batch, or as one batch each if their types are incompatible."""
    pa = require("pyarrow", extra="batch")
    # Use the column names of all rows, because Arrow drops a column that only later rows have.
    names = list(dict.fromkeys(name for row in rows for name in row))
    try:
        batch = pa.RecordBatch.from_pylist([{name: row.get(name) for name in names} for row in rows])
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        if len(rows) == 1:
            reason = "mixed types in one column, a number that is too large, or invalid Unicode characters"
            yield None, [*failed, FailedRow(cast("int", rows[0][ROW]), None, reason)]
            return
        for number, row in enumerate(rows):
            yield from _to_batches([row], failed if number == 0 else [])
        return
    yield batch, failed


def describe_type(value: object) -> str:
    """Return the type of a value with an article: null, a float, an int."""
    return "null" if value is None else type_name(value)
