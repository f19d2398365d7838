"""Reading protobuf fields from bytes: bounded, iterative, and refusing whatever does not add up."""

from __future__ import annotations

from collections.abc import Iterator

from resift.errors import ModelFileError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_MAX_FIELDS = 2_000_000
_MORE = 0x80  # bit of a varint's byte that says that another follows

Field = tuple[int, int, int, int]
"""Number, wire type, start, end. For a varint, start is its value and end is unused."""


class Reader:
    """The fields of one file, with a budget that no file of a sane size exceeds."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name = name
        self.data = data
        self._left = _MAX_FIELDS

    def fields(self, start: int, end: int) -> Iterator[Field]:
        """Yield the fields of the message that lies between start and end."""
        at, data = start, self.data
        while at < end:
            self.spend(1)
            # Most tags and sizes are one byte.
            tag, at = (data[at], at + 1) if data[at] < _MORE else self.varint(at, end)
            number, wire = tag >> 3, tag & 7
            if not 0 < number < 1 << 29:
                raise self.broken("a field number that cannot be")
            if wire == VARINT:
                value, at = self.varint(at, end)
                yield number, wire, value, at
                continue
            if wire == BYTES and at < end and data[at] < _MORE:
                size, at = data[at], at + 1
            else:
                size, at = self._size(wire, at, end)
            if size > end - at:
                raise self.broken(f"a field that claims {size:,} bytes where {end - at:,} are left")
            yield number, wire, at, at + size
            at += size

    def varint(self, at: int, end: int) -> tuple[int, int]:
        """Return the number at a place and the place after it."""
        value = 0
        for shift in range(0, 70, 7):
            if at >= end:
                raise self.broken("a number cut off in the middle")
            byte = self.data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < _MORE:
                return value & 0xFFFF_FFFF_FFFF_FFFF, at
        raise self.broken("a number longer than ten bytes")

    def varints(self, start: int, end: int) -> list[int]:
        """Return a packed list of numbers."""
        values: list[int] = []
        at = start
        while at < end:
            self.spend(1)
            value, at = self.varint(at, end)
            values.append(value)
        return values

    def text(self, start: int, end: int) -> str:
        """Return a string, at most 300 characters of it, whatever its bytes."""
        return self.data[start : min(end, start + 300)].decode("utf-8", errors="replace")

    def spend(self, fields: int) -> None:
        """Count work done; refuse a file that would keep the reader busy for ever."""
        self._left -= fields
        if self._left < 0:
            raise self.broken(f"more than {_MAX_FIELDS:,} fields")

    def broken(self, what: str) -> ModelFileError:
        """Return the error for a file that is not what it should be."""
        return ModelFileError(f"{self.name!r} is not a usable ONNX file: it has {what}.")

    def _size(self, wire: int, at: int, end: int) -> tuple[int, int]:
        if wire == BYTES:
            return self.varint(at, end)
        if wire == FIXED64:
            return 8, at
        if wire == FIXED32:
            return 4, at
        # Groups have not been written for twenty years; a file with one is no export.
        raise self.broken(f"wire type {wire}")
