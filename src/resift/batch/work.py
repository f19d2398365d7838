"""What a kind of bulk work is: one function from record batch to record batch, pure of any engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, fields
from typing import Any, ClassVar, Protocol, runtime_checkable

from resift.batch.arrow import RecordBatch
from resift.errors import InputError, ResiftError, require
from resift.external.records import RecordText, no_text, read_text
from resift.models.registry import Kind
from resift.types import JsonMapping, JsonObject

ERROR = "error"
"""The column that says why a row could not be done; null where it was."""

Row = JsonMapping


class NotTheRow(ResiftError):
    """A fault that is none of the row's: the job stops, and goes on from here when it is started again."""


@runtime_checkable
class BatchWork(Protocol):
    """A kind of work. Picklable; its models are loaded at the first batch, once per worker.

    Called with a `pyarrow.RecordBatch` it returns one with a row for each that came in (or several, where a
    row makes several), in the same order, with its number in the column `row`. A row that cannot be done is
    there with its `error`.
    """

    kind: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the input must have."""
        ...

    def describe(self) -> JsonObject:
        """Return the options and the digests of models that decide what comes out."""
        ...

    def __call__(self, batch: RecordBatch) -> RecordBatch:
        """Return the record batch that these rows become."""
        ...


class NamesColumns:
    """A kind of work whose input has the columns that its fields named `…_column` say."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the input must have."""
        return tuple(getattr(self, one.name) for one in fields(self) if one.name.endswith("_column"))


def each_row(rows: Sequence[Row], do: Callable[[Row], list[JsonObject]]) -> list[JsonObject]:
    """Do every row; one that fails becomes a row with its id and its error, and the others go on."""
    done: list[JsonObject] = []
    for row in rows:
        try:
            made = do(row)
        except NotTheRow:
            raise
        except Exception as exc:
            made = [{"id": text_or_none(row.get("id")), ERROR: reason_of(exc)}]
        done += [{**one, "row": row.get("row")} for one in made]
    return done


def reason_of(exc: BaseException) -> str:
    """Return an error in words; of errors that are not ours only the type, for their text may quote a row."""
    if isinstance(exc, OSError) and exc.strerror:
        return exc.strerror
    return str(exc) if isinstance(exc, ResiftError) else type(exc).__name__


def text_or_none(value: object) -> str | None:
    """Return a value as text, None as it is."""
    return None if value is None else str(value)


def text_in(row: Row, keys: Sequence[str] | None) -> RecordText:
    """Return the text of a row, or raise InputError with the fields that it has."""
    text = read_text(row, keys)
    if not text.text.strip():
        held = {key: value for key, value in row.items() if key != "row" and value is not None}
        raise InputError(f"no text: {no_text([held], keys, '--text-key')}")
    return text


def kind_of(value: Any) -> str:
    """Say what a value is that should be something else: null, a float, an int."""
    if value is None:
        return "null"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def question_in(row: Row, column: str) -> str:
    """Return the question of a row, or raise InputError."""
    query = row.get(column)
    if not isinstance(query, str) or not query.strip():
        what = "empty" if isinstance(query, str) else kind_of(query)
        raise InputError(f"{column} is {what}; a question is needed.")
    return query


def to_batch(rows: Sequence[JsonMapping], columns: Mapping[str, str]) -> RecordBatch:
    """Return the rows as one record batch with `row`, these columns (name -> Arrow type) and `error`."""
    pa = require("pyarrow", extra="batch")
    types = {
        "text": pa.string(),
        "texts": pa.list_(pa.string()),
        "flag": pa.bool_(),
        "places": pa.list_(pa.int32()),
        "scores": pa.list_(pa.float64()),
        "vector": pa.list_(pa.float32()),
    }
    named = [(name, types[kind]) for name, kind in columns.items()]
    schema = pa.schema([("row", pa.int64()), *named, (ERROR, pa.string())])
    made: RecordBatch = pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=schema)
    return made


def load_model(model: str, kind: Kind) -> None:
    """Load a model before its first row: without it no row can be done, and the job stops."""
    from resift.models.loading import load

    try:
        load(model, kind=kind)
    except ResiftError as exc:
        raise NotTheRow(str(exc)) from exc


def model_digest(model: str) -> JsonObject:
    """Return the pinned digests of a model's files, so that a run is never continued with other weights."""
    from resift.models.registry import find_spec

    spec = find_spec(model)
    return {"model": model, "files": {pinned.name: pinned.sha256 for pinned in spec.files}}
