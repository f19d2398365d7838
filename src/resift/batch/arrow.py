"""What is used of pyarrow, whose package has no types: a protocol per role."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from resift.types import JsonObject, JsonValue


class Scalar(Protocol):
    """One value of a column."""

    def as_py(self) -> JsonValue:
        """Return the value as Python has it."""
        ...


class Column(Protocol):
    """The values of one column."""

    def __getitem__(self, at: int, /) -> Scalar: ...

    def to_pylist(self) -> list[JsonValue]:
        """Return all values as Python has them."""
        ...


class ArrowSchema(Protocol):
    """The columns of a batch."""

    names: list[str]


class RecordBatch(Protocol):
    """`pyarrow.RecordBatch`: rows in columns."""

    num_rows: int
    nbytes: int
    schema: ArrowSchema

    def column(self, name: str, /) -> Column:
        """Return the column of that name."""
        ...

    def slice(self, offset: int = 0, length: int | None = None) -> RecordBatch:
        """Return some of the rows, without copying them."""
        ...

    def take(self, rows: object, /) -> RecordBatch:
        """Return the rows at these places."""
        ...

    def drop_columns(self, columns: Sequence[str], /) -> RecordBatch:
        """Return the batch without these columns."""
        ...

    def to_pylist(self) -> list[JsonObject]:
        """Return a dict per row."""
        ...
