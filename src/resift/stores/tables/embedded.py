"""SQLiteTable and DuckDBTable: existing tables in database files that are opened read-only."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Unpack
from urllib.parse import quote as quote_path

from resift._internal.arrays import Array
from resift._internal.forking import after_fork, leak
from resift.errors import InputError, StoreError, require
from resift.stores.backend import Row
from resift.stores.filters import Test
from resift.stores.tables import table_store
from resift.stores.tables.table_store import Column, ColumnArguments, ColumnOptions, Distance, TableColumns, quote_name
from resift.text import words as split_words
from resift.types import JsonValue
from resift.validation import check_arguments, check_path, option

_FTS5 = re.compile(r"\bUSING\s+fts5\s*\((.*)\)", re.IGNORECASE | re.DOTALL)
_FTS_OPTION = re.compile(r"\A\s*(\w+)\s*=\s*(.*?)\s*\Z", re.DOTALL)
_MAX_QUERY_WORDS = 64


@dataclass(frozen=True, kw_only=True)
class SQLiteTableOptions(ColumnOptions):
    """Options of a SQLite table in a pipeline file."""

    path: str = option("The database file.", kind="path", must_exist=True)
    table: str = option("The table or view.")
    fts: str | None = option("FTS5 table that indexes this one. Default: the one whose `content` it is.", default=None)


class FTSIndex(NamedTuple):
    """An FTS5 table: its name, its columns, and the column of the searched table that corresponds to its rowid."""

    name: str
    columns: tuple[str, ...]
    rowid: str


class SQLiteTable(table_store.SQLTable):
    """A table or view in a SQLite file, which is opened with `mode=ro`.

    An FTS5 table whose `content` is this table is detected. Without one, each search computes BM25 over a scan.
    """

    Options = SQLiteTableOptions
    dialect = table_store.Dialect("?", " COLLATE BINARY", quote_name)

    @check_arguments
    def __init__(
        self,
        path: str | Path,
        table: str,
        *,
        fts: str | None = None,
        name: str = "sqlite",
        **columns: Unpack[ColumnArguments],
    ) -> None:
        self.name, self.path = name, Path(check_path(path, "path"))
        if not self.path.is_file():
            raise self._error(f"{self.path} does not exist; pass the path of a SQLite file.")
        try:
            with contextlib.closing(_open_read_only(self.path)) as connection:
                tables = _list_tables(connection)
                by_case = {name.casefold(): name for name in tables}
                if table.casefold() not in by_case:
                    raise table_store.missing_column(str(self.path), table, list(tables), "table=", "tables")
                table = by_case[table.casefold()]
                column_types, primary_key = _read_columns(connection, table)
                self.fts = _find_fts(connection, table, fts, tables, column_types)
        except sqlite3.Error as exc:
            raise self._error(f"{self.path} cannot be read as a SQLite database: {type(exc).__name__}.") from exc
        chosen = TableColumns(store=name, **columns)
        if not chosen.id and not primary_key and "id" not in column_types and tables[table][0] == "table":
            primary_key = ["rowid"]
        if "rowid" in (*primary_key, *chosen.id) and "rowid" not in column_types:
            column_types["rowid"] = Column("any", f"{quote_name(table)}.rowid")
        if chosen.embedder is not None or chosen.vector:
            raise InputError("A SQLite table is searched by keywords only; omit embedder and vector.")
        self.has_text_index = self.fts is not None
        self._bools = {name for name, column in column_types.items() if column.kind == "bool"}
        super().__init__(table, chosen, column_types, primary_key=primary_key)

    async def _run(self, statement: str, values: Sequence[JsonValue]) -> list[tuple[JsonValue, ...]]:
        running: list[sqlite3.Connection] = []

        def job() -> list[tuple[JsonValue, ...]]:
            # Opening takes 0.1 ms, so no connection is kept that would have to be closed.
            with contextlib.closing(_open_read_only(self.path)) as connection:
                running.append(connection)
                try:
                    return connection.execute(statement, tuple(values)).fetchall()
                finally:
                    running.clear()

        def interrupt() -> None:
            for connection in running:
                with contextlib.suppress(sqlite3.ProgrammingError):  # closed in the meantime
                    connection.interrupt()

        return await self._work(job, interrupt=interrupt)

    def _table_sql(self) -> str:
        return quote_name(self.table)

    def _select_sql(self, names: Sequence[str]) -> str:
        return ", ".join(f"{self._table_sql()}.{'rowid' if name == 'rowid' else quote_name(name)}" for name in names)

    def _order_sql(self) -> str:
        return self._select_sql(self.columns.id)

    async def _fetch_text(self, query: str, tests: Sequence[Test], limit: int) -> list[Row]:
        fts = self.fts
        assert fts is not None  # noqa: S101 - _has_text_index
        terms = list(dict.fromkeys(split_words(query)))[:_MAX_QUERY_WORDS]
        if not terms:
            return []
        match = " OR ".join('"' + term.replace('"', '""') + '"' for term in terms)
        searched = [name for name in fts.columns if name in (self.columns.fields or ())]
        if searched and len(searched) < len(fts.columns):
            match = "{" + " ".join(map(quote_name, searched)) + "} : (" + match + ")"
        weights = ", ".join(repr(float(self.columns.weights.get(name, 1.0))) for name in fts.columns)
        index, table = quote_name(fts.name), self._table_sql()
        source = index if fts.name == self.table else f"{index} JOIN {table} ON {table}.{fts.rowid} = {index}.rowid"
        score = table_store.Clause(f"-bm25({index}, {weights})")
        matches = table_store.Clause(f"{index} MATCH ?", (match,))
        return await self._search_sql(tests, score, matches, f"DESC, {self._order_sql()}", limit, source=source)

    def _make_row(self, names: Sequence[str], values: Sequence[JsonValue], score: float | None = None) -> Row:
        # SQLite stores booleans as 0 and 1.
        pairs = zip(names, values, strict=False)  # the score may follow the columns
        typed = {name: bool(cell) if name in self._bools and cell in (0, 1) else cell for name, cell in pairs}
        return Row(typed, score)

    def _explain(self, exc: Exception) -> StoreError:
        code = getattr(exc, "sqlite_errorname", "") or type(exc).__name__
        table = f"SQLite table {self.table!r} of {self.path}"
        problem = f"{table} failed: {code}. Has the file changed since it was opened?"
        return self._error(problem, transient=code in ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_INTERRUPT"))


def _open_read_only(path: Path) -> sqlite3.Connection:
    uri = f"file:{quote_path(str(path.absolute()))}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, check_same_thread=False, timeout=5.0)
    try:
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
    except sqlite3.Error:
        connection.close()
        raise
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    return connection


def _list_tables(connection: sqlite3.Connection) -> dict[str, tuple[str, str]]:
    """Return name -> ("table" or "view", its SQL), without the internal tables of SQLite and FTS5."""
    rows = connection.execute(
        "SELECT name, type, coalesce(sql, '') FROM sqlite_master WHERE type IN ('table', 'view') "
        "AND name NOT LIKE 'sqlite!_%' ESCAPE '!' ORDER BY name"
    ).fetchall()
    virtual = [name for name, _, sql in rows if _FTS5.search(sql)]
    shadow = {f"{name}_{part}" for name in virtual for part in ("data", "idx", "content", "docsize", "config")}
    return {name: (kind, sql) for name, kind, sql in rows if name not in shadow}


def _read_columns(connection: sqlite3.Connection, table: str) -> tuple[dict[str, Column], list[str]]:
    rows = connection.execute("SELECT name, upper(type), pk, hidden FROM pragma_table_xinfo(?)", [table]).fetchall()
    columns: dict[str, Column] = {}
    for name, declared, _, hidden in rows:
        if hidden == 1:  # virtual tables have hidden columns: the table itself and its rank
            continue
        kind = "bool" if declared.startswith("BOOL") else "binary" if "BLOB" in declared else "any"
        is_text = not declared or any(part in declared for part in ("CHAR", "CLOB", "TEXT"))
        columns[name] = Column(kind, f"{quote_name(table)}.{quote_name(name)}", may_be_text=is_text)  # type: ignore[arg-type]
    keys = sorted((pk, name) for name, _, pk, _ in rows if pk)
    return columns, [name for _, name in keys]


def _fts_options(sql: str) -> dict[str, str] | None:
    """Return the options of a CREATE VIRTUAL TABLE … USING fts5 statement, or None for other tables."""
    match = _FTS5.search(sql)
    if match is None:
        return None
    options = {}
    for part in re.split(r",(?=(?:[^'\"]*['\"][^'\"]*['\"])*[^'\"]*\Z)", match[1]):
        option = _FTS_OPTION.match(part)
        if option is not None:
            options[option[1].lower()] = option[2].strip("'\"`[]")
    return options


def _find_fts(
    connection: sqlite3.Connection,
    table: str,
    fts: str | None,
    tables: Mapping[str, tuple[str, str]],
    columns: Mapping[str, Column],
) -> FTSIndex | None:
    """Return the FTS5 index of a table: `fts`, the table itself, or an FTS5 table whose content is the table."""
    indexes = {name: options for name, (_, sql) in tables.items() if (options := _fts_options(sql)) is not None}
    if fts is None:
        own = [name for name, options in indexes.items() if options.get("content", "").casefold() == table.casefold()]
        fts = table if table in indexes else own[0] if own else None
        if fts is None:
            return None
    elif fts not in indexes:
        raise table_store.missing_column(table, fts, list(indexes), "fts=", "FTS5 tables in the same file")
    options = indexes[fts]
    if fts == table and options.get("content") == "":
        raise InputError(
            f"{table!r} is an FTS5 table without content; pass the table with the texts, and fts={table!r}."
        )
    rowid = options.get("content_rowid", "rowid")
    return FTSIndex(fts, tuple(_read_columns(connection, fts)[0]), quote_name(rowid) if rowid in columns else "rowid")


# DuckDB


@dataclass(frozen=True, kw_only=True)
class DuckDBTableOptions(ColumnOptions):
    """Options of a DuckDB table in a pipeline file."""

    database: str = option("The database file.", kind="path", must_exist=True)
    table: str = option("The table or view; a schema may come first: main.articles.")
    distance: Distance = option("Distance of the vector column.", default="cosine")


_DISTANCES = {"cosine": "cosine_distance", "l2": "distance", "inner-product": "negative_inner_product"}
_ARRAY = re.compile(r"\A(FLOAT|DOUBLE)\[(\d*)\]\Z")
_KINDS: dict[str, table_store.ColumnKind] = {
    **dict.fromkeys(
        ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "FLOAT",
         "DOUBLE", "DECIMAL"), "number"),
    "VARCHAR": "text", "BOOLEAN": "bool", "DATE": "time", "TIMESTAMP": "time", "BLOB": "binary",
}  # fmt: skip


class DuckDBTable(table_store.SQLTable):
    """A table or view in a DuckDB file, which is opened read-only, or in an existing connection.

    Keyword search computes BM25 over a scan. Vector search compares every vector of a column of type FLOAT[n].
    """

    Options = DuckDBTableOptions
    dialect = table_store.Dialect("?", "", quote_name, timestamp="CAST(? AS TIMESTAMP)")

    @check_arguments
    def __init__(
        self,
        database: Any,
        table: str,
        *,
        distance: Distance = "cosine",
        name: str = "duckdb",
        **columns: Unpack[ColumnArguments],
    ) -> None:
        duckdb = require("duckdb", extra="duckdb")
        self.distance, self.name = distance, name
        self._forked = False
        self._owns = isinstance(database, (str, Path))
        if self._owns:
            path = Path(check_path(database, "database"))
            if not path.is_file():
                raise self._error(f"{path} does not exist; pass the path of a DuckDB file.")
            try:
                self._connection = duckdb.connect(str(path), read_only=True)
            except duckdb.ConnectionException as exc:
                problem = "is open for writing in this process; pass that connection instead of the path"
                raise self._error(f"{path} {problem}.") from exc
            except duckdb.Error as exc:
                advice = "Is it a DuckDB file that no other process writes to?"
                raise self._error(f"{path} cannot be opened read-only: {type(exc).__name__}. {advice}") from exc
        elif hasattr(database, "cursor") and hasattr(database, "execute"):
            self._connection = database
        else:
            raise InputError(f"database is a {type(database).__name__}; pass a path or a DuckDB connection.")
        self._path = table.split(".")
        try:
            schema = self._connection.cursor().execute(f"DESCRIBE {self._table_sql()}").fetchall()
        except duckdb.CatalogException as exc:
            rows = self._connection.cursor().execute("SELECT table_name FROM information_schema.tables").fetchall()
            tables = [row[0] for row in rows]
            raise table_store.missing_column("the database", table, tables, "table=", "tables") from exc
        except duckdb.Error as exc:
            raise self._error(f"{table!r} cannot be read: {type(exc).__name__}.") from exc
        self._array_types = {row[0]: row[1] for row in schema}
        column_types = {name: _duckdb_column(name, kind) for name, kind in self._array_types.items()}
        keys = [row[0] for row in schema if row[3] == "PRI"]
        super().__init__(table, TableColumns(store=name, **columns), column_types, primary_key=keys)
        after_fork(self)

    def reset_after_fork(self) -> None:
        """Make calls raise StoreError in a forked child, where DuckDB has no threads and would hang."""
        leak(self._connection)
        self._forked = True

    def _table_sql(self) -> str:
        return ".".join(map(quote_name, self._path))

    def _select_sql(self, names: Sequence[str]) -> str:
        # Reading timestamps with a time zone requires pytz, so select them as text.
        zoned = {name for name, kind in self._array_types.items() if "TIME ZONE" in kind}
        return ", ".join(
            f"CAST({quote_name(name)} AS VARCHAR)" if name in zoned else quote_name(name) for name in names
        )

    async def _run(self, statement: str, values: Sequence[JsonValue]) -> list[tuple[JsonValue, ...]]:
        if self._forked:
            raise self._error(f"{self.name!r} was opened before this process was forked. Open it again in the child.")
        cursor = self._connection.cursor()
        return await self._work(lambda: cursor.execute(statement, list(values)).fetchall(), interrupt=cursor.interrupt)

    async def _fetch_nearest(self, vector: Array, tests: Sequence[Test], limit: int, *, exact: bool) -> list[Row]:
        column = self.columns.vector or ""
        fixed = self.column_types[column].dimension > 0
        function = f"{'array' if fixed else 'list'}_{_DISTANCES[self.distance]}"
        quoted, kind = quote_name(column), self._array_types[column]
        distance = table_store.Clause(f"{function}({quoted}, CAST(? AS {kind}))", ([float(value) for value in vector],))
        size = "" if fixed else f" AND len({quoted}) = {len(vector)}"
        condition = table_store.Clause(f"{quoted} IS NOT NULL{size}")
        rows = await self._search_sql(tests, distance, condition, f", {self._order_sql()}", limit)
        return [row._replace(score=table_store.distance_score(row.score, self.distance)) for row in rows]

    def _disconnect(self) -> None:
        if self._owns and not self._forked:
            self._connection.close()


def _duckdb_column(name: str, declared: str) -> Column:
    quoted = quote_name(name)
    array = _ARRAY.match(declared)
    if array is not None:
        return Column("vector", quoted, int(array[2] or 0))
    if declared == "UUID" or declared.startswith("ENUM"):
        return Column("text", f"CAST({quoted} AS VARCHAR)")
    return Column(_KINDS.get("DECIMAL" if declared.startswith("DECIMAL") else declared, "other"), quoted)


def list_sqlite_tables(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the tables of a SQLite file with their columns, for `resift init`."""
    with contextlib.closing(_open_read_only(path)) as connection:
        for table, (_, sql) in _list_tables(connection).items():
            options = _fts_options(sql)
            if options is None or "content" not in options:
                yield table, [*_read_columns(connection, table)[0]]
