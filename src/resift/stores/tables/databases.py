"""PostgresTable: an existing PostgreSQL table. SQLStatement: a custom SELECT on any SQLAlchemy database."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, Any, Unpack

from resift._internal.arrays import Array
from resift.errors import InputError, StoreError, require
from resift.external.systems import to_number
from resift.stores.backend import Row
from resift.stores.base import embed_texts
from resift.stores.filters import Test
from resift.stores.postgres import VARIABLES, PostgresBackend, PostgresConnectionOptions, format_vector
from resift.stores.tables import table_store
from resift.stores.tables.table_store import Clause, Column, ColumnArguments, ColumnOptions, Distance, TableColumns
from resift.types import JsonMapping, JsonObject, JsonValue
from resift.validation import check_arguments, option

if TYPE_CHECKING:
    from psycopg import Connection

# Distance -> operator, and part of the name of the operator class of an index
_OPERATORS = {"cosine": ("<=>", "cosine"), "l2": ("<->", "l2"), "inner-product": ("<#>", "ip")}
_LABELS = "ABCD"
_CATALOG: dict[str, Any] = tomllib.loads(
    resources.files("resift.stores.tables").joinpath("postgres_catalog.toml").read_text(encoding="utf-8")
)
_CONFIGURATION = re.compile(r"to_tsvector\('([\w.]+)'::regconfig")
_KINDS: dict[str, table_store.ColumnKind] = {
    **dict.fromkeys(("int2", "int4", "int8", "float4", "float8", "numeric"), "number"),
    **dict.fromkeys(("date", "timestamp", "timestamptz"), "time"),
    "bool": "bool", "tsvector": "tsvector", "bytea": "binary",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PostgresTableOptions(PostgresConnectionOptions, ColumnOptions):
    """Options of a PostgreSQL table in a pipeline file."""

    table: str = option("The table or view; a schema may come first: public.articles.")
    tsvector: str | None = option("Column of type tsvector; without one, each search analyzes the text.", default=None)
    text_search: str | None = option(
        "Text search configuration, such as `english`. Default: the one of the tsvector column if it is a "
        "generated column, else the one of the database.",
        default=None,
    )
    distance: Distance = option("Distance of the vector column.", default="cosine")
    exact: bool = option("Compare every vector, even if an index would be faster.", default=False)


def quote_for_psycopg(name: str) -> str:
    """Return a quoted name with % escaped, because psycopg treats % as the start of a placeholder."""
    return table_store.quote_name(name).replace("%", "%%")


class PostgresTable(PostgresBackend, table_store.SQLTable):
    """A PostgreSQL table or view. All transactions are read-only.

    Keyword search ranks the rows with any word of the query by ts_rank. Without a tsvector column, the weights
    of `fields` become the labels A to D. Vector search uses pgvector, and the index of the column if there is one.
    """

    Options = PostgresTableOptions
    read_only = True
    has_text_index = True  # without a tsvector column, PostgreSQL analyzes the text during the search
    dialect = table_store.Dialect("%s", ' COLLATE "C"', quote_for_psycopg, timestamp="%s::timestamp")

    @check_arguments
    def __init__(
        self,
        dsn: str,
        table: str,
        *,
        tsvector: str | None = None,
        text_search: str | None = None,
        distance: Distance = "cosine",
        exact: bool = False,
        timeout_s: float = 10.0,
        name: str = "postgres",
        **columns: Unpack[ColumnArguments],
    ) -> None:
        self._set_server(dsn, name, timeout_s=timeout_s, connections=table_store.THREADS)
        self.distance, self.exact = distance, exact
        self._path = table.split(".")
        self.table, self.tsvector = table, tsvector
        with self._explained(), self._psycopg.connect(**self._arguments) as connection:
            column_types, primary_key = self._read_columns(connection)
            self._configuration = self._find_configuration(connection, text_search, column_types)
            # Only HNSW and IVFFlat indexes for this distance can be used.
            values = [self._regclass(), f"%_{_OPERATORS[self.distance][1]}_ops"]
            rows = connection.execute(_CATALOG["vector_indexes"], values).fetchall()
            self._vector_indexes = {row[0] for row in rows}
        super().__init__(table, TableColumns(store=name, **columns), column_types, primary_key=primary_key)

    def _regclass(self) -> str:
        return ".".join(map(table_store.quote_name, self._path))

    def _table_sql(self) -> str:
        return ".".join(map(quote_for_psycopg, self._path))

    def _read_columns(self, connection: Connection) -> tuple[dict[str, Column], list[str]]:
        rows = connection.execute(_CATALOG["columns"], [self._regclass()]).fetchall()
        if not rows:
            names = [row[0] for row in connection.execute(_CATALOG["tables"]).fetchall()]
            raise table_store.missing_column("the database", self.table, names, "table=", "tables")
        keys = connection.execute(_CATALOG["primary_key"], [self._regclass()]).fetchall()
        return {row[0]: _make_column(*row) for row in rows}, [row[0] for row in keys]

    def _find_configuration(
        self, connection: Connection, requested: str | None, column_types: dict[str, Column]
    ) -> str:
        """Return the text search configuration; raise InputError if it or the tsvector column does not exist."""
        known = [name for name, column in column_types.items() if column.kind == "tsvector"]
        if self.tsvector is not None and self.tsvector not in known:
            raise table_store.missing_column(self.table, self.tsvector, known, "tsvector=", "tsvector columns")
        if self.tsvector is None and len(known) == 1:
            self.tsvector = known[0]
        if requested is None and self.tsvector is not None:
            values = [self._regclass(), self.tsvector]
            row = connection.execute(_CATALOG["generated_column"], values).fetchone()
            generated = _CONFIGURATION.search(row[0]) if row and row[0] else None
            requested = generated[1] if generated else None
        if requested is None:
            row = connection.execute("SELECT get_current_ts_config()::text").fetchone()
            return str(row[0]) if row else "simple"
        names = [row[0] for row in connection.execute("SELECT cfgname FROM pg_catalog.pg_ts_config").fetchall()]
        if requested.rpartition(".")[2] not in names:
            raise table_store.missing_column("the server", requested, sorted(names), "text_search=", "configurations")
        return requested

    def _select_sql(self, names: Sequence[str]) -> str:
        # Casting char(n) to text removes its padding.
        expressions = ((name, self.column_types[name].expression) for name in names)
        return ", ".join(sql if sql.endswith("::text") else quote_for_psycopg(name) for name, sql in expressions)

    async def _has_vector_index(self) -> bool:
        return self.columns.vector in self._vector_indexes

    async def _fetch_text(self, query: str, tests: Sequence[Test], limit: int) -> list[Row]:
        statement = "SELECT tsvector_to_array(to_tsvector(%s::regconfig, %s))"
        [[lexemes]] = await self._run(statement, [self._configuration, query])
        if not lexemes:
            return []
        quoted = (lexeme.replace("\\", "\\\\").replace("'", "''") for lexeme in lexemes)
        any_word = " | ".join(f"'{lexeme}'" for lexeme in quoted)
        document = self._document_sql()
        score = f"ts_rank(%s::float4[], {document.sql}, %s::tsquery)"
        return await self._search_sql(
            tests,
            Clause(score, (self._label_weights(), *document.values, any_word)),
            Clause(f"{document.sql} @@ %s::tsquery", (*document.values, any_word)),
            f"DESC, {self._order_sql()}",
            limit,
        )

    def _document_sql(self) -> Clause:
        """Return the tsvector to search."""
        if self.tsvector is not None:
            return Clause(quote_for_psycopg(self.tsvector))
        parts: list[str] = []
        values: list[JsonValue] = []
        for name, label in self._labels().items():
            text = f"{quote_for_psycopg(name)}::text"
            values.append(self._configuration)
            if name not in self.column_types:  # a path inside a JSON column
                column, *path = name.split(".")
                text = f"to_jsonb({quote_for_psycopg(column)}) #>> %s"
                values.append(path)
            parts.append(f"setweight(to_tsvector(%s::regconfig, coalesce({text}, '')), '{label}')")
        return Clause("(" + " || ".join(parts) + ")", tuple(values))

    def _labels(self) -> dict[str, str]:
        """Return field -> label: A for the highest weight, and D for the fourth and all lower weights."""
        levels = sorted(set(self.columns.weights.values()), reverse=True)
        return {name: _LABELS[min(levels.index(weight), 3)] for name, weight in self.columns.weights.items()}

    def _label_weights(self) -> list[float]:
        """Return the weights of the labels D, C, B and A; a tsvector column has PostgreSQL's defaults."""
        if self.tsvector is not None:
            return [0.1, 0.2, 0.4, 1.0]
        labels, weights = self._labels(), self.columns.weights
        top = max(weights.values())
        by_label = {label: weights[name] / top for name, label in reversed(labels.items())}
        return [by_label.get(label, 0.1) for label in reversed(_LABELS)]

    async def _fetch_nearest(self, vector: Array, tests: Sequence[Test], limit: int, *, exact: bool) -> list[Row]:
        column = quote_for_psycopg(self.columns.vector or "")
        kind = self.column_types[self.columns.vector or ""].expression.rpartition("::")[2]  # vector or halfvec
        distance = Clause(f"{column} {_OPERATORS[self.distance][0]} %s::{kind}", (format_vector(vector),))
        # An index scan has no second sort key, so ties are broken by id only in an exact search.
        ties = f", {self._order_sql()}" if exact else ""
        run = partial(self._select_nearest, limit=limit, exact=exact)
        rows = await self._search_sql(tests, distance, Clause(f"{column} IS NOT NULL"), ties, limit, run=run)
        return [row._replace(score=table_store.distance_score(row.score, self.distance)) for row in rows]

    async def _run(self, statement: str, values: Sequence[JsonValue]) -> list[tuple[JsonValue, ...]]:
        return await self._job(lambda connection: connection.execute(statement, list(values)).fetchall())


def _make_column(name: str, kind: str, category: str, modifier: int) -> Column:
    quoted = quote_for_psycopg(name)
    if kind in ("vector", "halfvec"):
        return Column("vector", f"{quoted}::{kind}", max(0, modifier))
    if kind in ("uuid", "bpchar") or category == "E":
        return Column("text", f"{quoted}::text")
    return Column("text" if category == "S" else _KINDS.get(kind, "other"), quoted)


# Statements

_OWN = ("query", "k", "vector")
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_READS = re.compile(r"\A\s*(?:SELECT|WITH|VALUES|FROM|TABLE)\b", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class SQLStatementOptions(ColumnOptions):
    """Options of an SQL statement in a pipeline file."""

    url: str = option(
        "SQLAlchemy URL of the database; keep the password out of the file.",
        kind="address",
        variables=(*VARIABLES, "MYSQL_PASSWORD"),
    )
    statement: str = option("One SELECT; `:query`, `:k` and `:vector` are bound as parameters.")
    parameters: JsonMapping | None = option("Further parameters of the statement.", default=None)
    score: str | None = option("Column with the score, if there is one.", default="score")

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield an error for an invalid statement."""
        try:
            check_statement(self.statement)
        except InputError as exc:
            yield "statement", f".statement: {exc}"


class SQLStatement(table_store.TableStore):
    """The rows of a SELECT, in the order of the statement, from an SQLAlchemy engine or URL.

    The transaction is read-only if the database supports that, and is always rolled back.
    """

    Options = SQLStatementOptions
    table = "the statement"
    has_text_index = True

    @check_arguments
    def __init__(
        self,
        engine: Any = None,
        statement: str = "",
        *,
        url: str | None = None,
        parameters: JsonMapping | None = None,
        score: str | None = "score",
        name: str = "sql",
        **columns: Unpack[ColumnArguments],
    ) -> None:
        alchemy = require("sqlalchemy", extra="sqlalchemy")
        self.name, self._score = name, score
        engine = engine or url
        if engine is None:
            raise InputError("The database is missing: pass an SQLAlchemy engine or a URL.")
        check_statement(statement)
        self._owns = isinstance(engine, str)
        try:
            if isinstance(engine, str):
                # SQLite opens in microseconds, and a pooled connection would stay open if the store is not closed.
                is_sqlite = alchemy.make_url(engine).get_backend_name() == "sqlite"
                engine = alchemy.create_engine(engine, poolclass=alchemy.pool.NullPool if is_sqlite else None)
            self._engine = engine
        except (alchemy.exc.ArgumentError, alchemy.exc.NoSuchModuleError, ImportError) as exc:
            raise InputError(
                f"SQLAlchemy cannot open this URL: {type(exc).__name__}. Correct it, or install its driver."
            ) from exc
        if not hasattr(self._engine, "connect") or hasattr(self._engine, "sync_engine"):
            raise InputError(f"engine is a {type(engine).__name__}; pass an SQLAlchemy Engine or a URL.")
        self._statement = alchemy.text(statement)
        self._parameters = dict(parameters or {})
        used = set(self._statement.compile().params)
        missing = sorted(used - {*_OWN, *self._parameters})
        if missing:
            raise InputError(f"The statement uses :{missing[0]}; pass its value in parameters=.")
        unused = sorted(set(self._parameters) - used)
        if unused:
            raise InputError(f"parameters= contains {unused[0]!r}, which the statement does not use.")
        self._uses = used & set(_OWN)
        if not self._uses & {"query", "vector"}:
            raise InputError("The statement uses neither :query nor :vector, so every query returns the same rows.")
        if "vector" in self._uses and columns.get("embedder") is None:
            raise InputError("The statement uses :vector; pass the embedder of the vector column as embedder=.")
        columns["mode"] = "text"
        super().__init__(TableColumns(store=name, **columns))
        self.kind = "search"
        if "vector" not in self._uses:  # the length of vectors is known only after the first query
            with self._explained():
                self._settle_columns(self._execute({"query": "resift", "k": 1})[0])

    def _settle_columns(self, names: list[str]) -> None:
        self.filter_columns = names
        texts = [name for name in names if name not in (*self.columns.id, self._score)]
        self.columns.choose(self.table, names, texts)

    def _execute(self, values: JsonMapping) -> tuple[list[str], list[tuple[JsonValue, ...]]]:
        bound = {name: value for name, value in values.items() if name in self._uses}
        connection, dialect = self._engine.connect(), self._engine.dialect.name
        try:
            if dialect == "postgresql":
                connection = connection.execution_options(postgresql_readonly=True)
            elif dialect == "sqlite":
                connection.exec_driver_sql("PRAGMA query_only = ON")
            elif dialect in ("mysql", "mariadb"):
                connection.exec_driver_sql("SET TRANSACTION READ ONLY")
            result = connection.execute(self._statement, {**self._parameters, **bound})
            if not result.returns_rows:
                raise InputError("The statement returns no rows; write one SELECT.")
            names = list(result.keys())
            repeated = [name for name in names if names.count(name) > 1]
            if repeated:
                raise InputError(f"Two columns are named {repeated[0]!r}; rename one with AS.")
            return names, [tuple(row) for row in result.fetchall()]
        finally:
            connection.rollback()
            if dialect == "sqlite":
                connection.exec_driver_sql("PRAGMA query_only = OFF")
                connection.rollback()
            connection.close()

    async def _fetch_text(self, query: str, tests: Sequence[Test], limit: int) -> list[Row]:
        values: JsonObject = {"query": query, "k": limit}
        if "vector" in self._uses and self.embedder is not None:
            vectors = await embed_texts(self.embedder, [query], kind="query", store=self.name)
            values["vector"] = format_vector(vectors[0])
        names, rows = await self._work(lambda: self._execute(values))
        if not self.filter_columns:
            self._settle_columns(names)
        records = [dict(zip(names, row, strict=True)) for row in rows[:limit]]
        return [Row(record, to_number(record.pop(self._score or "", None))) for record in records]

    def _explain(self, exc: Exception) -> StoreError:
        kind = type(getattr(exc, "orig", None) or exc).__name__
        problem = f"The statement of {self.name!r} failed: {kind}. Try it in the shell of the database."
        return self._error(problem, transient="Operational" in kind or "Interface" in kind)

    def _disconnect(self) -> None:
        if self._owns:
            self._engine.dispose()


def check_statement(statement: str) -> None:
    """Raise InputError unless this is a single read-only statement."""
    plain = _COMMENT.sub(" ", statement).strip().rstrip(";").strip()
    if not _READS.match(plain):
        raise InputError("The statement must be one SELECT, or WITH … SELECT.")
    if ";" in re.sub(r"'(?:[^']|'')*'", "", plain):
        raise InputError("The text has more than one statement; write one SELECT.")
