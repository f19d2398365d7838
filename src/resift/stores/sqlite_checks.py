"""Checksums of what SQLite does not check: documents, vectors and blocks. Says where, never what.

A checksum covers the row's number and the length of each part, so that rows exchanged by a damaged page and
letters moved from one column to the next are seen as well.
"""

from __future__ import annotations

from zlib import crc32


class Damage(Exception):
    """A part of the file is not what was written; carries the place, never the content."""

    def __init__(self, table: str, row: object) -> None:
        super().__init__(f"table {table}, row {row}")


def checksum(row: int, *parts: bytes) -> int:
    """Return the CRC-32 of a row's number and parts."""
    value = crc32(b"%d" % row)
    for part in parts:
        value = crc32(part, crc32(b"|%d|" % len(part), value))
    return value
