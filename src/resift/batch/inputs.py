"""Find the input files of a job, and plan its shards.

Inputs are Parquet and JSONL files: paths, folders, patterns, or any URL that fsspec opens. Each file is read
once for its digest and its number of rows. A worker then reads only the rows of its shard (`reading`).
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from resift.errors import DataFormatError, InputError, require
from resift.validation import check_list, check_path

PARQUET, JSONL = (".parquet", ".pq"), (".jsonl", ".ndjson")

_MAX_LINE_BYTES = 64 << 20

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class InputFile:
    """One input: its address, the digest of its bytes, and its number of rows."""

    address: str
    digest: str
    rows: int
    offsets: tuple[int, ...] = ()
    """For JSONL: the byte offset of each shard."""
    name: str = ""
    """The name in reports: the end of the address that distinguishes it from other inputs."""
    copy: int = 1
    """2 for the second file with the same content: each has its own shards."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A range of rows of one input file."""

    file: InputFile
    number: int
    start: int
    stop: int

    @property
    def name(self) -> str:
        """The name of the output. It follows from content and range: the same rows get the same name."""
        copy = f".{self.file.copy}" if self.file.copy > 1 else ""
        return f"part-{self.file.digest[:16]}{copy}-{self.start:010}-{self.stop:010}"

    def describe(self) -> str:
        """Return the file and the rows, for error messages."""
        return f"{self.file.name}, rows {self.start} to {self.stop - 1}"


def find_inputs(paths: PathLike | Sequence[PathLike], *, out: Path | None = None) -> list[str]:
    """Return the addresses of all input files, sorted. A folder stands for its Parquet and JSONL files.

    Files of folders and patterns inside `out` are left out: a job must not read its own shards.
    """
    listed = [paths] if isinstance(paths, (str, os.PathLike)) else check_list(paths, "inputs", "paths")
    addresses: list[str] = []
    # Checked before use: a very long pattern takes `glob` minutes.
    for address in [check_path(each, "One of the inputs") for each in listed]:
        if "://" in address:
            addresses += _find_remote(address)
        elif os.path.isdir(address):  # unlike Path, no error for a name that is too long
            addresses += _find_in_folder(Path(address))
        elif glob.has_magic(address):
            addresses += sorted(glob.glob(address, recursive=True))
        elif os.path.isfile(address):
            addresses.append(address)
        else:
            raise DataFormatError("no such file, folder or pattern", file=address)
    if out is not None:
        output = out.resolve()
        exact = {str(os.fspath(each)) for each in listed}
        addresses = [
            address
            for address in addresses
            if address in exact or output not in Path(address.removeprefix("file://")).resolve().parents
        ]
    if not addresses:
        raise InputError("No Parquet or JSONL file there; name files, a folder that has some, or a pattern.")
    return list(dict.fromkeys(addresses))


def _find_in_folder(folder: Path) -> list[str]:
    """Return the input files of a folder, without hidden files and folders."""

    def refuse(error: OSError) -> None:
        # Rows of a folder that cannot be listed would be missing without a message.
        reason = error.strerror or type(error).__name__
        raise DataFormatError(f"cannot be listed: {reason}", file=str(error.filename)) from error

    paths: list[Path] = []
    for place, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths += [Path(place, name) for name in names if not name.startswith(".")]
    inputs = [path for path in sorted(paths) if path.suffix.lower() in PARQUET + JSONL]
    return [str(path) for path in inputs if path.is_file()]


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
    except Exception as exc:  # each file system has its own errors
        raise _read_error(address, exc) from exc
    return [filesystem.unstrip_protocol(name) for name in sorted(names)]


def plan_inputs(
    addresses: Sequence[str], *, shard_rows: int, columns: Sequence[str]
) -> tuple[list[InputFile], list[Shard]]:
    """Read each file once for its digest and rows, check its columns, and divide all into shards."""
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
    """Return the shortest ends of the addresses that are all different, with the same number of parts."""
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
        raise DataFormatError(f"no column {', '.join(map(repr, missing))}; it has {names}", file=address)
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
    """Refuse inputs that only this process can read, before workers are started."""
    for address in {shard.file.address for shard in shards}:
        if address.startswith("memory://"):
            message = "is in the memory of this process, where workers cannot read it; write it to a file"
            raise DataFormatError(message, file=address)


def open_input(address: str) -> BinaryIO:
    """Open a path or a URL for reading bytes, or raise DataFormatError."""
    try:
        if "://" in address:
            file: BinaryIO = require("fsspec", extra="batch").open(address, "rb").open()
            return file
        return Path(address).open("rb")
    except Exception as exc:
        raise _read_error(address, exc) from exc


def _read_error(address: str, exc: Exception) -> DataFormatError:
    reason = (exc.strerror or "") if isinstance(exc, OSError) else ""
    if isinstance(exc, FileNotFoundError):  # fsspec's message is only the path
        reason = "no such file"
    # The first line of fsspec's message names the package that is missing for s3:// and others.
    reason = reason or str(exc).partition("\n")[0][:200] or type(exc).__name__
    return DataFormatError(f"cannot be read: {reason}", file=address)


def is_parquet(address: str) -> bool:
    """Return whether a file is Parquet (else JSONL) by its suffix; raise InputError for other suffixes."""
    suffix = Path(address).suffix.lower()
    if suffix not in PARQUET + JSONL:
        raise InputError(f"{address}: neither Parquet nor JSONL; name it .parquet or .jsonl.")
    return suffix in PARQUET
