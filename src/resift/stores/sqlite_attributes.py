"""Metadata as the file indexes it for filters: a typed value per key and row, and filters as SQL on them."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from resift.stores.filtering import (
    Condition,
    Pattern,
    Value,
    Where,
    canonical,
    conditions,
    is_date,
    is_scalar,
)

_LONGEST = 200  # characters of a string kept as it is; longer ones are kept as a digest
_LONGEST_OF_VERSION_1 = 70
_INT64 = 2**63
_NUMBERS = "typeof(value) IN ('integer', 'real')"
_IS_TEXT = "typeof(value) = 'text'"


def attributes_of(metadata: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return (key, stored value) of what can be filtered on."""
    return [(key, _stored(value)) for key, value in metadata.items() if is_scalar(value)]


def allowed_rows(connection: sqlite3.Connection, where: Where | None) -> list[int] | None:
    """Return the row numbers that pass the filter in ascending order, or None where all pass."""
    tests = conditions(where)
    if not tests:
        return None
    parts, values = [], []
    for test in tests:
        statement, bound = _selected(connection, test)
        parts.append(f"SELECT row FROM ({statement})")  # noqa: S608 - our own SQL
        values += bound
    return sorted(row for (row,) in connection.execute(" INTERSECT ".join(parts), values))


def _stored(value: Value) -> Any:
    """Return a value that SQLite compares as `filtering` does: bytes where it has no such type."""
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < _INT64 else value
    if isinstance(value, int):
        return value if -_INT64 <= value < _INT64 else b"#" + canonical(value).encode()[:_LONGEST]
    if len(value) <= _LONGEST:
        return value
    return b"#" + hashlib.sha256(value.encode("utf-8", "surrogatepass")).digest()


def _selected(connection: sqlite3.Connection, test: Condition) -> tuple[str, list[Any]]:
    """Return a statement for the rows that pass one test."""
    if test.operator == "!=":
        inner, bound = _selected(connection, test._replace(operator="="))
        return f"SELECT row FROM documents EXCEPT SELECT row FROM ({inner})", bound  # noqa: S608 - our own SQL
    if test.operator == "=":
        return _equal(connection, test)
    limit = test.values[0]
    if is_date(limit):
        return _given(_tested(connection, test, _IS_TEXT))
    if isinstance(limit, int) and not -_INT64 <= limit < _INT64:
        return _given(_tested(connection, test, f"{_NUMBERS} OR typeof(value) = 'blob'"))
    kind = _IS_TEXT if isinstance(limit, str) else _NUMBERS
    statement = f"SELECT row FROM attributes WHERE key = ? AND {kind} AND value {test.operator} ?"  # noqa: S608
    return _with_digests(connection, test, statement, [test.key, limit])


def _equal(connection: sqlite3.Connection, test: Condition) -> tuple[str, list[Any]]:
    plain = [_stored(value) for value in test.values if not isinstance(value, Pattern)]
    patterns = [_glob(value) for value in test.values if isinstance(value, Pattern)]
    choices = [f"value IN ({','.join('?' * len(plain))})"] * bool(plain)
    choices += [f"({_IS_TEXT} AND value GLOB ?)"] * len(patterns)
    statement = f"SELECT row FROM attributes WHERE key = ? AND ({' OR '.join(choices) or '0'})"  # noqa: S608
    bound = [test.key, *plain, *patterns]
    # A file of version 1 keeps strings from 80 characters on as digests of its own.
    long = any(isinstance(value, str) and len(value) > _LONGEST_OF_VERSION_1 for value in test.values)
    return _with_digests(connection, test, statement, bound) if patterns or long else (statement, bound)


def _with_digests(
    connection: sqlite3.Connection, test: Condition, statement: str, bound: list[Any]
) -> tuple[str, list[Any]]:
    """Add the rows whose value is kept as a digest and passes all the same."""
    digests = _tested(connection, test, "typeof(value) = 'blob' AND substr(value, 1, 1) = X'23'")
    if not digests:
        return statement, bound
    more, rows = _given(digests)
    return f"{statement} UNION {more}", [*bound, *rows]


def _tested(connection: sqlite3.Connection, test: Condition, kind: str) -> list[int]:
    """Return the rows whose metadata passes the test, among those with a value of this kind."""
    rows = f"SELECT row FROM attributes WHERE key = ? AND ({kind})"  # noqa: S608 - our own SQL
    held = connection.execute(f"SELECT row, metadata FROM documents WHERE row IN ({rows})", (test.key,))  # noqa: S608
    return [row for row, metadata in held if test.accepts(json.loads(metadata).get(test.key))]


def _given(rows: Iterable[int]) -> tuple[str, list[Any]]:
    return "SELECT value AS row FROM json_each(?)", [json.dumps(list(rows))]


def _glob(pattern: Pattern) -> str:
    """Return SQLite's spelling: only `*` is special in ours."""
    return "".join(f"[{letter}]" if letter in "?[" else letter for letter in pattern.text)
