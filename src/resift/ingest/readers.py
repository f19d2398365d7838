"""One file in, its sections out, whatever kind of file it is."""

from __future__ import annotations

import gzip
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from resift.errors import DataFormatError
from resift.ingest.formats.plain import plain_sections
from resift.ingest.kinds import GZIP, TEXT, reader_of, suffix_by_content
from resift.ingest.limits import DEFAULT_LIMITS, Limits
from resift.ingest.sections import Section
from resift.ingest.sources import Source, open_source

_BLOCK = 1 << 20


def read_sections(
    path: Path,
    *,
    name: str,
    limits: Limits = DEFAULT_LIMITS,
    follow: bool = True,
    text_keys: tuple[str, ...] | None = None,
) -> Iterator[Section]:
    """Yield the sections of a file; `name` is what errors call it, `text_keys` the fields of records to read.

    Raises DataFormatError for a file that is not what its name says, or that is no regular file.
    """
    source = open_source(path, name=name, limits=limits, follow=follow, text_keys=text_keys)
    with source.file:
        yield from sections_of(source)


def sections_of(source: Source) -> Iterator[Section]:
    """Yield the sections of an open file."""
    suffix = source.suffix if _has_own(source.suffix) else suffix_by_content(source.sample())
    if suffix in GZIP:
        yield from _unpacked(source)
        return
    reader = reader_of(suffix)
    if reader is not None:
        yield from reader(source)
    else:
        # The name of a program or a configuration file says much about what is in it.
        context = "" if source.suffix in TEXT or not source.suffix else PurePosixPath(source.name).name
        yield from plain_sections(source, context=context)


def _has_own(suffix: str) -> bool:
    return suffix in GZIP or suffix in TEXT or reader_of(suffix) is not None


def _unpacked(source: Source) -> Iterator[Section]:
    """Read what a .gz file holds, by the name inside its name."""
    inner = PurePosixPath(source.name).stem
    suffix = PurePosixPath(inner).suffix.lower()
    if suffix == ".tar":
        raise DataFormatError("An archive. Unpack it and index the folder.", file=source.name)
    limit = source.limits.expanded_bytes
    with tempfile.TemporaryFile() as unpacked:
        size = 0
        source.file.seek(0)
        try:
            with gzip.GzipFile(fileobj=source.file) as packed:
                while block := packed.read(_BLOCK):
                    size += len(block)
                    if size > limit:
                        raise DataFormatError(f"Unpacks to more than {limit >> 20} MB.", file=source.name)
                    unpacked.write(block)
        except (OSError, EOFError, zlib.error) as exc:
            raise DataFormatError("Not a readable .gz file.", file=source.name) from exc
        if suffix in GZIP:
            raise DataFormatError("Packed twice. Unpack it once.", file=source.name)
        yield from sections_of(Source(unpacked, source.name, suffix, size, source.limits, source.text_keys))
