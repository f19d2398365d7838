"""The interface of a kind of work: a function from record batch to record batch, independent of engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from resift.errors import InputError, ResiftError, require
from resift.external.records import RecordText, no_text, read_text
from resift.types import Ranking
from resift.validation import type_name

if TYPE_CHECKING:
    from pyarrow import RecordBatch

ERROR = "error"
"""The column with the reason why a row failed; null if it did not."""

Row = Mapping[str, object]
OutputRow = dict[str, object]


class StopJobError(ResiftError):
    """A failure that is not the row's fault. The job stops; started again, it resumes here."""


@runtime_checkable
class BatchWork(Protocol):
    """A kind of work. It is picklable, and loads its models at the first batch, once per worker.

    Called with a `pyarrow.RecordBatch`, it returns one with one or more rows for each input row, in the same
    order, with the input row's number in the column `row`. A row that fails is returned with its `error`.
    """

    kind: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the input must have."""
        ...

    def describe(self) -> dict[str, object]:
        """Return the options and model digests that determine the output."""
        ...

    def __call__(self, batch: RecordBatch) -> RecordBatch:
        """Return the output of these rows."""
        ...


def map_rows(rows: Sequence[Row], function: Callable[[Row], list[OutputRow]]) -> list[OutputRow]:
    """Apply a function to every row. A row that fails becomes a row with its id and its error."""
    results: list[OutputRow] = []
    for row in rows:
        try:
            outputs = function(row)
        except StopJobError:
            raise
        except Exception as exc:
            outputs = [{"id": text_or_none(row.get("id")), ERROR: describe_error(exc)}]
        results += [{**output, "row": row.get("row")} for output in outputs]
    return results


def to_batch(rows: Sequence[Row], columns: Mapping[str, str]) -> RecordBatch:
    """Return the rows as a record batch with `row`, these columns (name -> kind) and `error`."""
    pa = require("pyarrow", extra="batch")
    types = {
        "text": pa.string(),
        "texts": pa.list_(pa.string()),
        "boolean": pa.bool_(),
        "positions": pa.list_(pa.int32()),
        "scores": pa.list_(pa.float64()),
        "vector": pa.list_(pa.float32()),
    }
    fields = [(name, types[kind]) for name, kind in columns.items()]
    schema = pa.schema([("row", pa.int64()), *fields, (ERROR, pa.string())])
    return pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=schema)


STATUS_COLUMNS = {"tier": "text", "degraded": "boolean", "reason": "text"}


def ranking_status(ranking: Ranking) -> OutputRow:
    """Return the values of the status columns."""
    return {"tier": ranking.tier, "degraded": ranking.degraded, "reason": ranking.reason}


def describe_error(exc: BaseException) -> str:
    """Return the reason of a failure. Other libraries' messages may quote a row, so only their type."""
    if isinstance(exc, OSError) and exc.strerror:
        return exc.strerror
    return str(exc) if isinstance(exc, ResiftError) else type(exc).__name__


def describe_type(value: object) -> str:
    """Return the type of a value with an article: null, a float, an int."""
    return "null" if value is None else type_name(value)


def text_or_none(value: object) -> str | None:
    """Return a value as text, or None."""
    return None if value is None else str(value)


def require_text(row: Row, keys: Sequence[str] | None) -> RecordText:
    """Return the text of a row; raise InputError with the fields of a row without text."""
    text = read_text(row, keys)
    if not text.text.strip():
        fields = {key: value for key, value in row.items() if key != "row" and value is not None}
        raise InputError(f"no text: {no_text([fields], keys, '--text-key')}")
    return text


def require_query(row: Row, column: str) -> str:
    """Return the query of a row, or raise InputError."""
    query = row.get(column)
    if not isinstance(query, str) or not query.strip():
        what = "empty" if isinstance(query, str) else describe_type(query)
        raise InputError(f"{column} is {what}; a query is needed.")
    return query
