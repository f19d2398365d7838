"""Where rows come from: Parquet and JSONL, in files, folders, globs or anything that fsspec can open.

A job is planned once: each input file is read for its digest and its number of rows, and cut into shards of
rows. A worker then opens only its own range (`reading`).
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from resift.errors import DataFormatError, InputError, require
from resift.validation import check_list, check_path

PARQUET, JSONL = (".parquet", ".pq"), (".jsonl", ".ndjson")

_LONGEST_LINE = 64 << 20


@dataclass(frozen=True, slots=True)
class InputFile:
    """One input: its address, the digest of its bytes, and how many rows it has."""

    address: str
    digest: str
    rows: int
    offsets: tuple[int, ...] = ()
    """Of JSONL: the byte at which each shard begins."""
    name: str = ""
    """What it is called in reports: the end of its address that tells it from the other inputs."""
    copy: int = 1
    """The second file of the same content is 2: each has shards of its own."""


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
        copy = f".{self.file.copy}" if self.file.copy > 1 else ""
        return f"part-{self.file.digest[:16]}{copy}-{self.start:010}-{self.stop:010}"


def find_inputs(
    given: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], *, out: Path | None = None
) -> list[str]:
    """Return the addresses of all input files, sorted; a folder means its Parquet and JSONL files.

    What folders and patterns find in `out` is left out: a job that is run again must not read its own shards.
    """
    named = [given] if isinstance(given, (str, os.PathLike)) else check_list(given, "inputs", "paths")
    found: list[str] = []
    # Checked before it is used: a very long pattern takes `glob` minutes.
    for address in [check_path(each, "One of the inputs") for each in named]:
        if "://" in address:
            found += _remote(address)
            continue
        if os.path.isdir(address):  # unlike Path, no error where a name is too long
            found += _inside(Path(address))
        elif glob.has_magic(address):
            found += sorted(glob.glob(address, recursive=True))
        elif os.path.isfile(address):
            found.append(address)
        else:
            raise DataFormatError("no such file, folder or pattern", file=address)
    if out is not None:
        own = out.resolve()
        exactly = {str(os.fspath(one)) for one in named}
        found = [one for one in found if one in exactly or own not in _place(one).parents]
    if not found:
        raise InputError("No Parquet or JSONL file there; name files, a folder that has some, or a pattern.")
    return list(dict.fromkeys(found))


def _place(address: str) -> Path:
    return Path(address.removeprefix("file://")).resolve()


def _inside(folder: Path) -> list[str]:
    """Return the files of a folder that are inputs; what hides behind a dot is not meant."""
    found: list[Path] = []
    for place, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(place, name) for name in names if not name.startswith(".")]
    inputs = [path for path in sorted(found) if path.suffix.lower() in PARQUET + JSONL]
    return [str(path) for path in inputs if path.is_file()]


def _refuse(error: OSError) -> None:
    """End the job: rows in a folder that cannot be looked into would be missing without a word."""
    reason = error.strerror or type(error).__name__
    raise DataFormatError(f"cannot be looked into: {reason}", file=str(error.filename)) from error


def plan_inputs(
    addresses: Sequence[str], *, shard_rows: int, columns: Sequence[str]
) -> tuple[list[InputFile], list[Shard]]:
    """Read each file once for its digest and rows, check its columns, and cut all into shards."""
    copies: Counter[str] = Counter()
    files = []
    for address, name in zip(addresses, _names(addresses), strict=True):
        file = _inspected(address, shard_rows, columns)
        copies[file.digest] += 1
        files.append(replace(file, name=name, copy=copies[file.digest]))
    return files, [shard for file in files for shard in _cut(file, shard_rows)]


def _inspected(address: str, shard_rows: int, columns: Sequence[str]) -> InputFile:
    with opened(address) as source:
        digest = _digest(source)
        source.seek(0)
        if is_parquet(address):
            return InputFile(address, digest, _parquet_rows(source, address, columns))
        return InputFile(address, digest, *_jsonl_rows(source, address, shard_rows))


def _cut(file: InputFile, shard_rows: int) -> Iterable[Shard]:
    for number, start in enumerate(range(0, file.rows, shard_rows)):
        yield Shard(file, number, start, min(file.rows, start + shard_rows))


def _names(addresses: Sequence[str]) -> list[str]:
    """Return the shortest ends of the addresses that tell them apart, all of one depth."""
    parts = [address.replace(os.sep, "/").split("/") for address in addresses]
    for depth in range(1, max(map(len, parts), default=1)):
        names = ["/".join(one[-depth:]) for one in parts]
        if len(set(names)) == len(names):
            return names
    return list(addresses)


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


def _remote(address: str) -> list[str]:
    fsspec = require("fsspec", extra="batch")
    try:
        filesystem, path = fsspec.core.url_to_fs(address)
        if filesystem.isdir(path):
            names = [name for name in filesystem.find(path) if _is_input(name, path)]
        else:
            names = filesystem.glob(path) if glob.has_magic(path) else [path]
    except Exception as exc:  # each file system has errors of its own
        raise _cannot_read(address, exc) from exc
    return [filesystem.unstrip_protocol(name) for name in sorted(names)]


def _is_input(name: str, folder: str) -> bool:
    """Say of a file below a folder whether it is meant, by the same rules as in a folder of this machine."""
    inside = name.removeprefix(folder).split("/")
    return Path(name).suffix.lower() in PARQUET + JSONL and not any(one.startswith(".") for one in inside)


def check_shared(shards: Iterable[Shard]) -> None:
    """Refuse inputs that only this process can read, before workers are started for them."""
    for address in {shard.file.address for shard in shards}:
        if address.startswith("memory://"):
            what = "is in this process's own memory, where workers cannot read it; write it to a file"
            raise DataFormatError(what, file=address)


def opened(address: str) -> Any:
    """Open a file or an address to read bytes from, or raise DataFormatError."""
    try:
        if "://" in address:
            return require("fsspec", extra="batch").open(address, "rb").open()
        return Path(address).open("rb")
    except Exception as exc:
        raise _cannot_read(address, exc) from exc


def _cannot_read(address: str, exc: Exception) -> DataFormatError:
    # The first line of fsspec's own words says which package is missing for s3:// and the like.
    cause = exc.strerror if isinstance(exc, OSError) else ""
    if isinstance(exc, FileNotFoundError):  # fsspec's own says only the path
        cause = "no such file"
    said = cause or str(exc).partition("\n")[0][:200] or type(exc).__name__
    return DataFormatError(f"cannot be read: {said}", file=address)


def is_parquet(address: str) -> bool:
    """Say of a file's name whether it is Parquet (or JSONL), or raise InputError."""
    suffix = Path(address).suffix.lower()
    if suffix not in PARQUET + JSONL:
        raise InputError(f"{address}: neither Parquet nor JSONL; name it .parquet or .jsonl.")
    return suffix in PARQUET


def _digest(source: BinaryIO) -> str:
    digest = hashlib.sha256()
    while block := source.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()
