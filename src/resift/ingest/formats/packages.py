"""Documents that are zip files of XML: a zip with bounds, and XML that is read as it streams."""

from __future__ import annotations

import posixpath
import xml.etree.ElementTree as ET
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from resift.errors import DataFormatError
from resift.ingest.sources import Source

_TIGHTEST = 500  # times smaller; text compresses up to about 100 times, bombs thousands


class Package:
    """A zip file whose parts are checked before they are unpacked."""

    def __init__(self, source: Source, archive: zipfile.ZipFile) -> None:
        self._source = source
        self._archive = archive
        self.names = frozenset(archive.namelist())

    def read(self, name: str) -> bytes:
        """Return a part's content."""
        with self._archive.open(name) as part:
            return part.read(self._source.limits.part_bytes + 1)

    def elements(self, name: str) -> Iterator[tuple[str, ET.Element]]:
        """Yield (event, element) while a part is read; clear elements at their end to hold little."""
        with self._archive.open(name) as part:
            yield from ET.iterparse(part, events=("start", "end"))  # noqa: S314 - expat bounds entities

    def relations(self, name: str) -> dict[str, str]:
        """Return relation id -> part that it leads to, for a part of an Office document."""
        folder, base = posixpath.split(name)
        listed = f"{folder}/_rels/{base}.rels"
        if listed not in self.names:
            return {}
        root = ET.fromstring(self.read(listed))  # noqa: S314 - expat bounds entities
        return {
            one.attrib.get("Id", ""): posixpath.normpath(posixpath.join(folder, one.attrib.get("Target", "")))
            for one in root
            if one.attrib.get("TargetMode") != "External"
        }


@contextmanager
def opened_package(source: Source) -> Iterator[Package]:
    """Open a document that is a zip file; every way in which it can be broken is one DataFormatError."""
    source.file.seek(0)
    try:
        with zipfile.ZipFile(source.file) as archive:
            _check(source, archive)
            yield Package(source, archive)
    except DataFormatError:
        raise
    except (zipfile.BadZipFile, zlib.error, ET.ParseError, EOFError, NotImplementedError) as exc:
        raise _broken(source, exc) from exc
    except (KeyError, ValueError, IndexError, RuntimeError, OSError) as exc:
        # An encrypted part is a RuntimeError, a missing one a KeyError.
        raise _broken(source, exc) from exc


def _check(source: Source, archive: zipfile.ZipFile) -> None:
    parts = archive.infolist()
    limits = source.limits
    if len(parts) > limits.entries:
        raise DataFormatError(f"{len(parts)} parts inside; {limits.entries} are read.", file=source.name)
    total = sum(part.file_size for part in parts)
    largest = max((part.file_size for part in parts), default=0)
    tight = any(part.file_size > _TIGHTEST * max(part.compress_size, 1024) for part in parts)
    if total > limits.expanded_bytes or largest > limits.part_bytes or tight:
        raise DataFormatError(
            f"Unpacks to {total >> 20} MB, more than a document of this size holds.", file=source.name
        )


def _broken(source: Source, exc: Exception) -> DataFormatError:
    kind = source.suffix.lstrip(".") or "zip"
    return DataFormatError(f"Not a readable .{kind} file ({type(exc).__name__}).", file=source.name)
