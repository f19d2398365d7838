"""Metadata filters in SQL: the attributes of each row, and what they must add up to."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence

from resift.stores.filters import (
    AnyOf,
    Condition,
    Pattern,
    Test,
    Value,
    canonical_text,
    explain_filter,
    filter_values,
    is_date,
    is_scalar,
    list_conditions,
    parse_filter,
    unknown_key_note,
    unmatched_note,
)
from resift.stores.sqlite.rows import ABSENT, BLOCK_ROWS, iterate_documents, read_lengths, read_rows
from resift.stores.sqlite.tables import LISTS_INDEXED_SINCE, Connection, IndexCorruptedError, read_metadata
from resift.types import Metadata, Where

_MAX_LENGTH = 200  # longer strings are stored as a digest
_INT64 = 2**63
# One index lookup per key; DISTINCT would read the whole index.
_KEYS = (
    "WITH RECURSIVE keys(key) AS (SELECT min(key) FROM attributes UNION ALL "
    "SELECT (SELECT min(key) FROM attributes WHERE key > keys.key) FROM keys WHERE keys.key IS NOT NULL) "
    "SELECT key FROM keys WHERE key IS NOT NULL"
)
_EXAMPLES = "SELECT DISTINCT value FROM attributes WHERE key = ? AND typeof(value) != 'blob' LIMIT 2"
_IS_NUMBER = "typeof(value) IN ('integer', 'real')"
_IS_TEXT = "typeof(value) = 'text'"
_IS_DIGEST = "value >= X'23' AND value < X'24'"  # bytes that begin with "#", in a form that uses the index


def list_attributes(metadata: Metadata, *, lists: bool = True) -> list[tuple[str, object]]:
    """Return the distinct (key, stored value) pairs that filters compare.

    Each item of a list is a value. `lists=False` skips lists, as files of version 2 do.
    """
    pairs = [
        (key, _to_sql(item))
        for key, value in metadata.items()
        if lists or is_scalar(value)
        for item in filter_values(value)
    ]
    return list(dict.fromkeys(pairs))


def find_rows(connection: Connection, tests: Sequence[Test]) -> list[int] | None:
    """Return the rows that pass a filter in ascending order, or None if it has no tests."""
    return sorted(_find_rows_passing_all(connection, tests)) if tests else None


def explain_stored_filter(connection: Connection, where: Where) -> dict[str, str]:
    """Return key -> note for each condition that no document passes, or whose key no document has."""
    if connection.version < LISTS_INDEXED_SINCE:
        return explain_filter(where, [row.decode_metadata() for row in iterate_documents(connection)])
    known = [key for (key,) in connection.execute(_KEYS)]
    notes: dict[str, str] = {}
    for condition in list_conditions(parse_filter(where)):
        if condition.key not in known:
            notes[condition.key] = unknown_key_note(condition.key, known)
        elif not _find_rows_passing(connection, condition):
            values = connection.execute(_EXAMPLES, (condition.key,))
            notes[condition.key] = unmatched_note(condition.key, [value for (value,) in values])
    return notes


def _to_sql(value: Value) -> object:
    """Return a value that SQLite compares as `filters` does: bytes for types that SQLite lacks."""
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < _INT64 else value
    if isinstance(value, int):
        return value if -_INT64 <= value < _INT64 else b"#" + canonical_text(value).encode()[:_MAX_LENGTH]
    if len(value) <= _MAX_LENGTH:
        return value
    return b"#" + hashlib.sha256(value.encode("utf-8", "surrogatepass")).digest()


def _find_rows_passing_all(connection: Connection, tests: Sequence[Test]) -> set[int]:
    if not tests:
        return set(_list_all_rows(connection))
    first, *others = [_find_rows_passing(connection, test) for test in tests]
    return set(first).intersection(*others)


def _find_rows_passing(connection: Connection, test: Test) -> Collection[int]:
    """Return the rows that pass one test; a row may be listed twice."""
    if isinstance(test, AnyOf):
        return set[int]().union(*(_find_rows_passing_all(connection, tests) for tests in test.filters))
    # By what is equal: a document without the key passes too, and no index lists it.
    if test.operator == "!=":
        return set(_list_all_rows(connection)) - set(
            _find_rows_passing(connection, test._replace(operator="="))
        )
    rows = _find_equal(connection, test) if test.operator == "=" else _find_in_range(connection, test)
    if connection.version < LISTS_INDEXED_SINCE:
        rows += _find_in_lists(connection, test)
    return rows


def _find_equal(connection: Connection, test: Condition) -> list[int]:
    plain = [_to_sql(value) for value in test.values if not isinstance(value, Pattern)]
    # Only `*` is special in our patterns.
    patterns = [
        "".join(f"[{char}]" if char in "?[" else char for char in value.text)
        for value in test.values
        if isinstance(value, Pattern)
    ]
    choices = [f"value IN ({','.join('?' * len(plain))})"] * bool(plain)
    choices += [f"({_IS_TEXT} AND value GLOB ?)"] * len(patterns)
    rows = _select(connection, test.key, " OR ".join(choices) or "0", *plain, *patterns)
    return rows + (_test_documents(connection, test, _IS_DIGEST) if patterns else [])


def _find_in_range(connection: Connection, test: Condition) -> list[int]:
    limit = test.values[0]
    if is_date(limit):
        return _find_dates(connection, test)
    # SQLite has no larger integers; such values are stored as bytes and compared here.
    if isinstance(limit, int) and not -_INT64 <= limit < _INT64:
        return _test_documents(connection, test, f"{_IS_NUMBER} OR typeof(value) = 'blob'")
    kind = _IS_TEXT if isinstance(limit, str) else _IS_NUMBER
    rows = _select(connection, test.key, f"{kind} AND value {test.operator} ?", limit)
    return rows + _test_documents(connection, test, _IS_DIGEST)


def _find_dates(connection: Connection, test: Condition) -> list[int]:
    """Compare dates here: they have several spellings and time zones, which SQL would compare as text."""
    statement = f"SELECT value, row FROM attributes WHERE key = ? AND {_IS_TEXT}"  # noqa: S608
    rows_by_value: dict[str, list[int]] = {}
    for value, row in connection.execute(statement, (test.key,)):
        if type(row) is not int:  # a damaged page may return text
            raise IndexCorruptedError("attributes", "a filter")
        rows_by_value.setdefault(value, []).append(row)
    statement = f"SELECT value, rows, total FROM attribute_sums WHERE key = ? AND {_IS_TEXT}"  # noqa: S608
    sums = {value: (rows, total) for value, rows, total in connection.execute(statement, (test.key,))}
    if sums != {value: (len(rows), sum(rows)) for value, rows in rows_by_value.items()}:
        raise IndexCorruptedError("attributes", "a filter")
    return [row for value, rows in rows_by_value.items() if test.accepts(value) for row in rows]


def _find_in_lists(connection: Connection, test: Condition) -> list[int]:
    """Return the rows whose list passes, in files that have no attributes for lists."""
    numbers = [row for (row,) in connection.execute("SELECT row FROM documents WHERE instr(metadata, '[')")]
    rows = read_rows(connection, numbers)
    values = {number: rows[number].decode_metadata().get(test.key) for number in numbers}
    return [number for number, value in values.items() if isinstance(value, list) and test.accepts(value)]


def _test_documents(connection: Connection, test: Condition, kind: str) -> list[int]:
    """Return the rows whose metadata passes, among those with a value of this kind."""
    numbers = list(dict.fromkeys(_select(connection, test.key, kind)))  # a list has several values in one row
    rows = read_rows(connection, numbers)
    return [row for row in numbers if test.accepts(rows[row].decode_metadata().get(test.key))]


def _select(connection: Connection, key: str, condition: str, *parameters: object) -> list[int]:
    """Return the rows with a value that meets the condition; their number and sum must be as recorded."""
    where = f"WHERE key = ? AND ({condition})"
    found = connection.execute(f"SELECT row FROM attributes {where}", (key, *parameters))  # noqa: S608
    rows = [row for (row,) in found]
    recorded = "SELECT coalesce(sum(rows), 0), coalesce(sum(total), 0) FROM attribute_sums"
    sums = connection.execute(f"{recorded} {where}", (key, *parameters)).fetchone()
    # A damaged page may return a text instead of a number.
    if not all(type(row) is int for row in rows) or sums != (len(rows), sum(rows)):
        raise IndexCorruptedError("attributes", "a filter")
    return rows


def _list_all_rows(connection: Connection) -> list[int]:
    blocks = read_lengths(connection)
    rows = [
        block * BLOCK_ROWS + offset
        for block, lengths in blocks
        for offset, length in enumerate(lengths)
        if length != ABSENT
    ]
    if len(rows) != read_metadata(connection).documents:
        raise IndexCorruptedError("row_blocks", "all")
    return rows
