"""Filters on metadata as SQL on the file's attributes; what they find is counted against a second table."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from resift.stores.filtering import (
    AnyOf,
    Condition,
    Pattern,
    Test,
    conditions,
    explain_filter,
    is_date,
    single_conditions,
    unknown_key_note,
    unmatched_note,
)
from resift.stores.sqlite_attributes import INT64, stored
from resift.stores.sqlite_blocks import ABSENT, ROWS, read_lengths
from resift.stores.sqlite_checks import Damage
from resift.stores.sqlite_rows import documents_in, rows_by_number
from resift.stores.sqlite_schema import LISTS_INDEXED_SINCE, Connection, read_facts
from resift.types import Where

_LONGEST_OF_VERSION_1 = 70  # characters of a string that such a file keeps as it is
# Each key by one look into the index; DISTINCT would read all of it.
_KEYS = (
    "WITH RECURSIVE keys(key) AS (SELECT min(key) FROM attributes UNION ALL "
    "SELECT (SELECT min(key) FROM attributes WHERE key > keys.key) FROM keys WHERE keys.key IS NOT NULL) "
    "SELECT key FROM keys WHERE key IS NOT NULL"
)
_EXAMPLES = "SELECT DISTINCT value FROM attributes WHERE key = ? AND typeof(value) != 'blob' LIMIT 2"
_NUMBERS = "typeof(value) IN ('integer', 'real')"
_IS_TEXT = "typeof(value) = 'text'"
_IS_DIGEST = "value >= X'23' AND value < X'24'"  # bytes that begin with "#"; the index leads to them


def allowed_rows(connection: Connection, where: Where | None) -> list[int] | None:
    """Return the row numbers that pass the filter in ascending order, or None where all pass."""
    tests = conditions(where)
    return sorted(_passing_all(connection, tests)) if tests else None


def filter_notes(connection: Connection, where: Where) -> dict[str, str]:
    """Return key -> note for each test that no document passes, or whose key no document has."""
    known = [key for (key,) in connection.execute(_KEYS)]
    if connection.version < LISTS_INDEXED_SINCE:
        return explain_filter(where, [row.decoded() for row in documents_in(connection)])
    notes: dict[str, str] = {}
    for test in single_conditions(conditions(where)):
        if test.key not in known:
            notes[test.key] = unknown_key_note(test.key, known)
        elif not rows_passing(connection, test):
            values = connection.execute(_EXAMPLES, (test.key,))
            notes[test.key] = unmatched_note(test.key, [value for (value,) in values])
    return notes


def _passing_all(connection: Connection, tests: Sequence[Test]) -> set[int]:
    if not tests:
        return set(_every_row(connection))
    first, *others = [rows_passing(connection, test) for test in tests]
    # A row may pass one test in two ways, as itself and as a digest.
    return set(first).intersection(*others)


def rows_passing(connection: Connection, test: Test) -> Collection[int]:
    """Return the rows that pass one test; a row may be listed twice."""
    if isinstance(test, AnyOf):
        return set[int]().union(*(_passing_all(connection, tests) for tests in test.filters))
    # By what is not equal: a document without the key passes too, and no index lists it.
    if test.operator == "!=":
        return set(_every_row(connection)) - set(rows_passing(connection, test._replace(operator="=")))
    return [*_indexed_rows(connection, test), *_listed_rows(connection, test)]


def _indexed_rows(connection: Connection, test: Condition) -> list[int]:
    if test.operator == "=":
        return _equal(connection, test)
    limit = test.values[0]
    # Dates have several spellings and zones, which SQL would compare as letters.
    if is_date(limit):
        _, held = _selected(connection, "row, value", test.key, _IS_TEXT)
        return [row for row, value in held if test.accepts(value)]
    # SQLite has no larger whole numbers; such values are kept as bytes and compared here.
    if isinstance(limit, int) and not -INT64 <= limit < INT64:
        return _tested(connection, test, f"{_NUMBERS} OR typeof(value) = 'blob'")
    kind = _IS_TEXT if isinstance(limit, str) else _NUMBERS
    rows, _ = _selected(connection, "row", test.key, f"{kind} AND value {test.operator} ?", limit)
    return rows + _tested(connection, test, _IS_DIGEST)


def _listed_rows(connection: Connection, test: Condition) -> list[int]:
    """Return the rows whose list passes, in files of versions that keep no attributes for lists."""
    if connection.version >= LISTS_INDEXED_SINCE:
        return []
    numbers = [row for (row,) in connection.execute("SELECT row FROM documents WHERE instr(metadata, '[')")]
    rows = rows_by_number(connection, numbers)
    values = {number: rows[number].decoded().get(test.key) for number in numbers}
    return [number for number, value in values.items() if isinstance(value, list) and test.accepts(value)]


def _equal(connection: Connection, test: Condition) -> list[int]:
    plain = [stored(value) for value in test.values if not isinstance(value, Pattern)]
    patterns = [_glob(value) for value in test.values if isinstance(value, Pattern)]
    choices = [f"value IN ({','.join('?' * len(plain))})"] * bool(plain)
    choices += [f"({_IS_TEXT} AND value GLOB ?)"] * len(patterns)
    rows, _ = _selected(connection, "row", test.key, " OR ".join(choices) or "0", *plain, *patterns)
    # A file of version 1 keeps strings from 80 characters on as digests of its own.
    long = any(isinstance(value, str) and len(value) > _LONGEST_OF_VERSION_1 for value in test.values)
    return rows + (_tested(connection, test, _IS_DIGEST) if patterns or long else [])


def _tested(connection: Connection, test: Condition, kind: str) -> list[int]:
    """Return the rows whose metadata passes the test, among those with a value of this kind."""
    numbers, _ = _selected(connection, "row", test.key, kind)
    rows = rows_by_number(connection, numbers)
    return [row for row in numbers if test.accepts(rows[row].decoded().get(test.key))]


def _selected(
    connection: Connection, columns: str, key: str, condition: str, *bound: object
) -> tuple[list[int], list[Any]]:
    """Return the rows of what passes a condition, and the columns, `row` first.

    How many there are and what their numbers add up to must be as it was noted.
    """
    asked = f"WHERE key = ? AND ({condition})"
    found = connection.execute(f"SELECT {columns} FROM attributes {asked}", (key, *bound)).fetchall()  # noqa: S608
    rows = [columns[0] for columns in found]
    if connection.checked:
        noted = "SELECT coalesce(sum(rows), 0), coalesce(sum(total), 0) FROM attribute_sums"
        sums = connection.execute(f"{noted} {asked}", (key, *bound)).fetchone()
        try:
            whole = sums == (len(rows), sum(rows))
        except TypeError:  # a damaged page may hand out a text where a number was
            whole = False
        if not whole:
            raise Damage("attributes", "a filter")
    return rows, found


def _every_row(connection: Connection) -> list[int]:
    if connection.version == 1:
        return [row for (row,) in connection.execute("SELECT row FROM documents")]
    blocks = read_lengths(connection)
    rows = [block * ROWS + at for block, held in blocks for at, length in enumerate(held) if length != ABSENT]
    if len(rows) != read_facts(connection).documents:
        raise Damage("row_blocks", "all")
    return rows


def _glob(pattern: Pattern) -> str:
    """Return SQLite's spelling: only `*` is special in ours."""
    return "".join(f"[{letter}]" if letter in "?[" else letter for letter in pattern.text)
