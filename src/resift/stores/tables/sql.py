"""SQL tables: kinds of columns, filters as SQL with bound values, and the scan of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from resift.errors import InputError
from resift.stores.backend import Row
from resift.stores.filters import AnyOf, Condition, Pattern, Test, is_date, list_conditions
from resift.stores.tables.table_store import ColumnArguments, TableColumns, TableStore
from resift.types import JsonValue

ColumnKind = Literal["text", "number", "bool", "time", "any", "vector", "tsvector", "binary", "other"]

_MAX_PATTERN = 10_000
_MAX_INT = 2**63 - 1


class Column(NamedTuple):
    """A column: its kind, the quoted expression for filters, and the length of its vectors.

    SQLite stores any value in any column; `may_be_text` is False for one declared as something else.
    """

    kind: ColumnKind
    expression: str
    dimension: int = 0
    may_be_text: bool = True

    @property
    def is_text(self) -> bool:
        """Whether it is declared as text, or may have any values."""
        return self.kind == "text" or (self.kind == "any" and self.may_be_text)


class Clause(NamedTuple):
    """A piece of SQL with the values of its placeholders."""

    sql: str
    values: tuple[JsonValue, ...] = ()


class Dialect(NamedTuple):
    """How an engine writes placeholders, quoted names and the order by code points."""

    placeholder: str
    binary: str
    quote: Callable[[str], str]
    timestamp: str = ""
    """A cast of a bound ISO date to a timestamp."""
    patterns: bool = True
    """Whether LIKE has an ESCAPE clause."""


def quote_name(name: str) -> str:
    """Return a name in double quotes, as standard SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def join_clauses(clauses: Sequence[Clause], separator: str, *, empty: str) -> Clause:
    """Return several clauses as one."""
    if not clauses:
        return Clause(empty)
    sql = separator.join(f"({clause.sql})" for clause in clauses)
    return Clause(sql, tuple(value for clause in clauses for value in clause.values))


def filter_clause(tests: Sequence[Test], columns: Mapping[str, Column], dialect: Dialect) -> Clause:
    """Return the part of a filter that the engine can test; rows that pass the filter pass this too."""
    clauses = [clause for test in tests if (clause := _test_clause(test, columns, dialect)) is not None]
    return join_clauses(clauses, " AND ", empty="1 = 1")


def _test_clause(test: Test, columns: Mapping[str, Column], dialect: Dialect) -> Clause | None:
    if isinstance(test, AnyOf):
        return join_clauses(
            [filter_clause(part, columns, dialect) for part in test.filters], " OR ", empty="1 = 0"
        )
    column = columns.get(test.key)
    if column is None:
        return None
    if test.operator == "=":
        return _equal_clause(test, column, dialect)
    return None if test.operator == "!=" else _range_clause(test, column, dialect)


def _equal_clause(test: Condition, column: Column, dialect: Dialect) -> Clause | None:
    if column.kind not in ("text", "number", "bool", "any"):
        return None
    clauses = []
    for value in test.values:
        bound: JsonValue = _like_pattern(value.text) if isinstance(value, Pattern) else value
        test_sql = f"{column.expression} = {dialect.placeholder}"
        if isinstance(value, Pattern):
            test_sql = f"{column.expression} LIKE {dialect.placeholder} ESCAPE '!'"
            if not dialect.patterns or len(bound) > _MAX_PATTERN:
                return None
        if not can_bind(bound):
            return None
        if column.kind in _value_kinds(bound):  # no value of another type is equal to it
            clauses.append(Clause(test_sql, (bound,)))
    return join_clauses(clauses, " OR ", empty="1 = 0")


def _range_clause(test: Condition, column: Column, dialect: Dialect) -> Clause | None:
    limit = test.values[0]
    expression, mark, kinds = column.expression, dialect.placeholder, ("text", "any")
    if isinstance(limit, Pattern) or not can_bind(limit):
        return None
    if isinstance(limit, str) and is_date(limit):
        # Time zones and whole days are compared exactly afterwards; here two days of tolerance suffice.
        days = timedelta(days=-2 if test.operator in (">", ">=") else 3)
        try:
            limit = (datetime.fromisoformat(limit).replace(tzinfo=None) + days).date().isoformat()
        except OverflowError:
            return None
        if column.kind == "time" and dialect.timestamp:
            kinds, mark = ("time", "time"), dialect.timestamp
    elif not isinstance(limit, str):
        kinds = ("number", "any")
    if column.kind not in kinds:
        return None
    if isinstance(limit, str) and column.kind != "time":
        expression += dialect.binary
    return Clause(f"{expression} {test.operator} {mark}", (limit,))


def _value_kinds(value: object) -> tuple[str, ...]:
    if isinstance(value, bool):
        return ("bool", "any")
    return ("text", "any") if isinstance(value, str) else ("number", "any")


def can_bind(value: object) -> bool:
    """Return whether every engine can take this value: no NUL, no lone surrogates, 64 bits."""
    if isinstance(value, str):
        return ("\0" not in value and value.isascii()) or (
            "\0" not in value and not any("\ud800" <= letter <= "\udfff" for letter in value)
        )
    return not isinstance(value, int) or abs(value) <= _MAX_INT


def _like_pattern(text: str) -> str:
    for letter in "!%_":
        text = text.replace(letter, "!" + letter)
    return text.replace("*", "%")


class TypedTable(TableStore):
    """A table whose columns have declared types."""

    def __init__(
        self,
        name: str,
        table: str,
        columns: TableColumns,
        arguments: ColumnArguments,
        found: Mapping[str, Column],
        *,
        primary_key: Sequence[str],
        threads: int,
    ) -> None:
        self.table = table
        self.column_types = found
        columns.check(table, found)
        columns.choose_fields(table, [name for name, column in found.items() if column.is_text])
        columns.choose_id(table, found, primary_key)
        vectors = [name for name, column in found.items() if column.kind == "vector"]
        if columns.vector is None and arguments.get("embedder") is not None and len(vectors) == 1:
            columns.vector = vectors[0]
        if columns.vector is not None and columns.vector not in vectors:
            shown = ", ".join(vectors) or "none"
            raise InputError(
                f"vector= names {columns.vector!r}, which has no vectors. Vector columns: {shown}."
            )
        super().__init__(name, columns, arguments, threads=threads, has_vectors=columns.vector is not None)
        hidden = ("vector", "tsvector", "binary")
        wanted = [name for name, column in found.items() if column.kind not in hidden]
        if columns.metadata is not None:
            named = {*columns.id, *(columns.fields or ()), *columns.metadata}
            named |= {name for argument, name in columns.named() if argument == "filter"}
            wanted = [name for name in found if name in named]
        self._selected = wanted

    def _selected_for(self, tests: Sequence[Test]) -> list[str]:
        """Return the columns to read: those of hits, and those that the tests need."""
        keys = [condition.key for condition in list_conditions(tests)]
        keys = [key if key in self.column_types else key.partition(".")[0] for key in keys]
        return list(dict.fromkeys([*self._selected, *keys]))

    def _filter_columns(self) -> list[str]:
        return list(self.column_types)

    def _vector_dimension(self, column: str) -> int:
        return self.column_types[column].dimension


class SQLTable(TypedTable):
    """A table or view that is read by SQL."""

    dialect: Dialect

    async def _run(self, statement: str, values: Sequence[JsonValue]) -> list[tuple[JsonValue, ...]]:
        """Execute a statement with bound values and return its rows."""
        raise NotImplementedError

    def _table_sql(self) -> str:
        """Return the quoted name of the table."""
        raise NotImplementedError

    def _select_sql(self, names: Sequence[str], prefix: str = "") -> str:
        return ", ".join(prefix + self.dialect.quote(name) for name in names)

    def _order_sql(self, prefix: str = "") -> str:
        return ", ".join(prefix + self.dialect.quote(name) for name in self.columns.id)

    async def _scan(self, tests: Sequence[Test], words: Sequence[str], limit: int) -> tuple[list[Row], int]:
        where = filter_clause(tests, self.column_types, self.dialect)
        names, table = self._selected_for(tests), self._table_sql()
        counted = await self._run(f"SELECT count(*) FROM {table} WHERE {where.sql}", where.values)  # noqa: S608
        total = int(counted[0][0])
        order, values = "", where.values
        if total > limit and words:
            # Rows with most of the words first; each is looked for in every text column.
            fields = [name for name in self.columns.fields or () if name in self.column_types]
            test = " OR ".join(
                f"lower({self.dialect.quote(name)}) LIKE {self.dialect.placeholder} ESCAPE '!'"
                for name in fields
            )
            patterns = [f"%{_like_pattern(word.replace('*', ''))}%" for word in words]
            count = " + ".join([f"CASE WHEN {test} THEN 1 ELSE 0 END"] * len(patterns))
            order = f" ORDER BY {count} DESC, {self._order_sql()}"
            values = (*values, *(pattern for pattern in patterns for _ in fields))
        columns = self._select_sql(names)
        statement = f"SELECT {columns} FROM {table} WHERE {where.sql}{order} LIMIT {int(limit)}"  # noqa: S608
        rows = await self._run(statement, values)
        return [Row(dict(zip(names, row, strict=True))) for row in rows], total
