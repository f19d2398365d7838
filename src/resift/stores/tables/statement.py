"""SQLStatement: the rows of your own SELECT on any database that SQLAlchemy knows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from resift.errors import InputError, StoreError, require
from resift.stores.backend import Row
from resift.stores.base import embed_texts
from resift.stores.filters import Test
from resift.stores.postgres import VARIABLES, format_vector
from resift.stores.tables.table_store import ColumnArguments, ColumnOptions, TableColumns, TableStore
from resift.types import JsonMapping, JsonObject, JsonValue
from resift.validation import check_arguments, option

_THREADS = 4
_OWN = ("query", "k", "vector")
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_READS = re.compile(r"\A\s*(?:SELECT|WITH|VALUES|FROM|TABLE)\b", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class SQLStatementOptions(ColumnOptions):
    """Options of a statement on a database in a pipeline file."""

    url: str = option(
        "Address of the database as SQLAlchemy writes it; keep the password out of the file.",
        kind="address",
        variables=(*VARIABLES, "MYSQL_PASSWORD"),
    )
    statement: str = option("One SELECT; `:query`, `:k` and `:vector` are bound as parameters.")
    parameters: JsonMapping | None = option("Further parameters of the statement.", default=None)
    score: str | None = option("Column with the score, if there is one.", default="score")

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield an error for a statement that cannot work."""
        try:
            check_statement(self.statement)
        except InputError as exc:
            yield "statement", f".statement: {exc}"


class SQLStatement(TableStore):
    """The rows of a SELECT, in its order, on an SQLAlchemy engine or a URL.

    `:query`, `:k` and `:vector` are bound as parameters, and so are `parameters`. The transaction is
    read-only where the database has that mode, and is always rolled back. A filter is tested on the rows.
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
        self._alchemy, self.name, self._score = alchemy, name, score
        engine = url if engine is None else engine
        if engine is None:
            raise InputError("Say where the database is: pass an SQLAlchemy engine or its URL.")
        check_statement(statement)
        self._owns = isinstance(engine, str)
        try:
            self._engine = self._create_engine(engine) if isinstance(engine, str) else engine
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
            raise InputError(f"parameters= has {unused[0]!r}, which the statement does not use.")
        self._uses = used & set(_OWN)
        if not self._uses & {"query", "vector"}:
            raise InputError("The statement uses neither :query nor :vector, so every query gets the same answer.")
        chosen = TableColumns(store=name, **columns)
        if "vector" in self._uses and columns.get("embedder") is None:
            raise InputError("The statement uses :vector; pass embedder= of the model that filled the column.")
        super().__init__(name, chosen, {**columns, "mode": "text"}, threads=_THREADS, has_vectors=False)
        self.kind = "search"
        if "vector" not in self._uses:  # the length of vectors is known with the first query
            with self._explained():
                self._settle_columns(self._execute({"query": "resift", "k": 1})[0])

    def _create_engine(self, url: str) -> Any:
        # SQLite opens in microseconds, and a pooled connection would stay open if nobody closes the store.
        is_sqlite = self._alchemy.make_url(url).get_backend_name() == "sqlite"
        pool = {"poolclass": self._alchemy.pool.NullPool} if is_sqlite else {}
        return self._alchemy.create_engine(url, **pool)

    def _settle_columns(self, names: list[str]) -> None:
        self.filter_columns, columns = names, self.columns
        columns.check(self.table, names)
        texts = [name for name in names if name not in (*columns.id, self._score)]
        columns.choose_fields(self.table, texts)
        columns.choose_id(self.table, names, [])

    def _execute(self, values: JsonMapping) -> tuple[list[str], list[tuple[JsonValue, ...]]]:
        bound = {name: value for name, value in values.items() if name in self._uses}
        connection = self._engine.connect()
        try:
            dialect = self._engine.dialect.name
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
            if self._engine.dialect.name == "sqlite":
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
        found = [dict(zip(names, row, strict=True)) for row in rows[:limit]]
        scores = [_number(row.pop(self._score or "", None)) for row in found]
        return [Row(row, score) for row, score in zip(found, scores, strict=True)]

    def _explain(self, exc: Exception) -> StoreError:
        kind = type(getattr(exc, "orig", None) or exc).__name__
        return StoreError(
            f"The statement of {self.name!r} failed: {kind}. Try it in the database's own shell.",
            store=self.name,
            transient="Operational" in kind or "Interface" in kind,
        )

    def _disconnect(self) -> None:
        if self._owns:
            self._engine.dispose()


def check_statement(statement: str) -> None:
    """Raise InputError unless this is one statement that reads."""
    plain = _COMMENT.sub(" ", statement).strip().rstrip(";").strip()
    if not _READS.match(plain):
        raise InputError("The statement must be one SELECT, or WITH … SELECT.")
    if ";" in re.sub(r"'(?:[^']|'')*'", "", plain):
        raise InputError("There is more than one statement; write one SELECT.")


def _number(value: JsonValue) -> float | None:
    try:
        return None if value is None else float(value)
    except (TypeError, ValueError):
        return None
