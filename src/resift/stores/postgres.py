"""PostgreSQL: connections for all stores on it, and PostgresStore, a store whose table Resift creates."""

from __future__ import annotations

import json
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar

from resift._internal.arrays import Array, Vector
from resift._internal.forking import after_fork, leak
from resift.errors import InputError, StoreError, require
from resift.protocols import Embedder
from resift.stores import backend
from resift.stores.backend import BackendStore, Document, EngineStore, Record, Row
from resift.stores.base import Mode, deprecated_name
from resift.types import JsonObject, JsonValue
from resift.validation import Options, check_arguments, check_number, option

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg_pool import ConnectionPool

T = TypeVar("T")
P = ParamSpec("P")
S = TypeVar("S", bound="PostgresBackend")
Fields = tuple[JsonValue, ...]

_EMBEDDER, _LANGUAGE, _TAGS = "resift embedder", "resift language", "resift tags"
VARIABLES = ("DATABASE_URL", "PGDATABASE", "PGHOST", "PGPASSWORD", "PGPORT", "PGUSER", "POSTGRES_PASSWORD")
_MAX_TERMS = 20_000  # a tsvector is limited to 1 MB
_MAX_POSITIONS = 256  # PostgreSQL stores at most this many positions per term
_MAX_HALF_DIMENSION, _MAX_DIMENSION = 4000, 2000  # limits of an index on halfvec and on vector
_CANDIDATES = 200  # minimum size of HNSW's candidate list; a longer list finds more and is slower
_MAX_SCANNED = 100_000  # maximum number of rows that a filtered index search visits


@dataclass(frozen=True, kw_only=True)
class PostgresConnectionOptions(Options):
    """Connection to a PostgreSQL server in a pipeline file."""

    dsn: str = option("Connection string, with the password as ${PGPASSWORD}.", kind="address", variables=VARIABLES)


def on_connection(
    method: Callable[Concatenate[S, Connection, P], T],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Run a store method in one of the store's threads, with a pooled connection as its first argument."""

    @wraps(method)
    async def run(store: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store._job(lambda connection: method(store, connection, *args, **kwargs))

    return run


class PostgresBackend(BackendStore):
    """Pooled connections to a PostgreSQL server. The `options` of the connection string and PGOPTIONS still apply."""

    read_only = False

    def _set_server(self, dsn: str, name: str, *, timeout_s: float, connections: int) -> None:
        """Check the arguments without connecting to the server."""
        self._psycopg = require("psycopg", extra="postgres")
        self._pools = require("psycopg_pool", extra="postgres")
        self.name = name
        self._timeout_s = check_number(timeout_s, "timeout_s", gt=0)
        self._connections = int(check_number(connections, "connections", gt=0))
        try:
            arguments: JsonObject = self._psycopg.conninfo.conninfo_to_dict(dsn)
        except self._psycopg.Error as exc:
            raise InputError("dsn is not a connection string; pass postgresql://user@host/database.") from exc
        options = arguments.get("options") or os.environ.get("PGOPTIONS", "")
        read_only = "-c default_transaction_read_only=on" if self.read_only else ""
        arguments["options"] = f"-c statement_timeout={int(timeout_s * 1000)} {options} {read_only}"
        arguments.setdefault("connect_timeout", max(2, int(timeout_s)))
        self._arguments = {**arguments, "autocommit": True}
        self._pool: ConnectionPool | None = None
        self._lock = threading.Lock()
        after_fork(self)

    def reset_after_fork(self) -> None:
        """Start with no connections in a forked child; the parent continues to use its own."""
        self._lock = threading.Lock()
        leak(self._pool)
        self._pool = None

    async def _job(self, job: Callable[[Connection], T]) -> T:
        """Run a job on a pooled connection; the server stops it if the caller cancels."""
        running: list[Connection] = []
        cancellations: list[threading.Thread] = []
        lock = threading.Lock()

        def work() -> T:
            try:
                with self._open_pool().connection() as connection:
                    running.append(connection)
                    stopped = False
                    try:
                        return job(connection)
                    except self._psycopg.errors.QueryCanceled:
                        stopped = True
                        raise
                    finally:
                        with lock:
                            running.clear()
                        # A cancellation that arrives late would stop the next statement of the connection.
                        if cancellations:
                            cancellations[0].join()
                            if not stopped:
                                connection.close()
            except self._psycopg.OperationalError as exc:
                if exc.sqlstate is None:  # the connection is lost; the next call reconnects or fails fast
                    self._disconnect()
                raise

        def interrupt() -> None:
            with lock:
                for connection in running:
                    thread = threading.Thread(target=connection.cancel_safe, kwargs={"timeout": 2.0}, daemon=True)
                    thread.start()
                    cancellations.append(thread)

        return await self._work(work, interrupt=interrupt)

    @on_connection
    def _select_nearest(
        self, connection: Connection, statement: Any, values: Sequence[object], *, limit: int, exact: bool
    ) -> list[Fields]:
        """Run a search by distance, with the vector index or, if `exact`, without any index."""
        settings = ["enable_indexscan = off"]
        if not exact:  # let the index scan continue until it reaches the limit
            settings = [
                f"hnsw.ef_search = {min(1000, max(_CANDIDATES, limit))}",
                "hnsw.iterative_scan = relaxed_order",
                f"hnsw.max_scan_tuples = {_MAX_SCANNED}",
                "enable_seqscan = off",
            ]
        with connection.transaction():
            for setting in settings:
                connection.execute(f"SET LOCAL {setting}")
            return connection.execute(statement, values).fetchall()

    def _open_pool(self) -> ConnectionPool:
        with self._lock:
            if self._pool is None:
                # A pool retries in the background until its timeout, but a single connection fails at once.
                self._psycopg.connect(**self._arguments).close()
                self._pool = self._pools.ConnectionPool(
                    kwargs=self._arguments, min_size=0, max_size=self._connections, timeout=self._timeout_s, open=True
                )
            return self._pool

    def _disconnect(self) -> None:
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def _explain(self, exc: Exception) -> StoreError:
        lost = isinstance(exc, (self._psycopg.OperationalError, self._psycopg.InterfaceError))
        code = exc.sqlstate if isinstance(exc, self._psycopg.Error) else None
        # The server's message may quote documents, so only its error code is shown.
        reason = f"failed: {type(exc).__name__}{f' {code}' if code else ''}."
        if lost and code is None:
            reason = "cannot be reached. Is the server running, and are host, port, database, user and "
            reason += "password correct?"
        return StoreError(f"PostgreSQL store {self.name!r} {reason}", store=self.name, transient=lost)


def format_vector(row: Iterable[float]) -> str:
    """Return a vector in the text format of pgvector."""
    return "[" + ",".join(str(float(value)) for value in row) + "]"


@dataclass(frozen=True, kw_only=True)
class PostgresOptions(PostgresConnectionOptions, backend.SearchOptions):
    """Options of a PostgreSQL store in a pipeline file."""

    table: str = option("The table.", default="resift_documents")


class PostgresStore(PostgresBackend, EngineStore):
    """A PostgreSQL table, created by the first `add`: pgvector cosine, tsvector keyword search, RRF(60) of both.

    Without an embedder the mode is "text"; with one the default is "vector". Every row is compared until
    `optimize` builds the vector index; `exact=True` bypasses the index.
    """

    Options = PostgresOptions
    table_store = "PostgresTable"
    needed_columns = ("key", "document", "tags", "words")

    @check_arguments
    def __init__(
        self,
        dsn: str,
        table: str = "resift_documents",
        *,
        embedder: Embedder | None = None,
        mode: Mode | None = None,
        name: str = "postgres",
        connections: int = 4,
        timeout_s: float = 10.0,
        language: str | None = None,
        index: Literal["hnsw", "hnsw-half"] = "hnsw-half",
        exact: bool = False,
    ) -> None:
        self._set_server(dsn, name, timeout_s=timeout_s, connections=connections)
        super().__init__(name, embedder, mode, language=language, exact=exact, threads=connections)
        self.index = index
        self._table_path = table.split(".")
        self._table = self._psycopg.sql.Identifier(*self._table_path)
        self._index_name = self._table_path[-1][:40] + "_resift_hnsw"
        self._notes: dict[str, str] | None = None  # from the comment of the table

    async def count(self) -> int:
        """Return the number of documents."""
        rows = await self._select(self._sql("SELECT count(*) FROM {table}"), [])
        return int(rows[0][0]) if rows else 0

    async def optimize(self) -> str:
        """Rebuild the HNSW index without blocking writers; return a summary."""
        return await self._optimize()

    @on_connection
    def _optimize(self, connection: Connection) -> str:
        if not self._has_table(connection):
            return "the table does not exist yet"
        connection.execute("SET statement_timeout = 0")
        try:
            if self.embedder is not None:
                self._build_index(connection)
            connection.execute(self._sql("VACUUM (ANALYZE) {table}"))
        finally:
            connection.execute("RESET statement_timeout")
        summary = "statistics updated"
        return summary if self.embedder is None else f"{self.index} index built, {summary}"

    optimise = deprecated_name("optimise", optimize)

    async def _delete(self, keys: list[str]) -> int:
        statement = self._sql("DELETE FROM {table} WHERE key = ANY(%s) RETURNING key")
        return len(await self._select(statement, [keys]))

    async def _fetch(self, keys: list[str], *, vectors: bool) -> list[tuple[Document, Vector]]:
        vector = "embedding::text" if vectors else "'[]'"
        statement = self._sql("SELECT document, {vector} FROM {table} WHERE key = ANY(%s)", vector=vector)
        return [(json.loads(document), json.loads(row)) for document, row in await self._select(statement, [keys])]

    @on_connection
    def _read_notes(self, connection: Connection) -> backend.TableNotes | None:
        if not self._has_table(connection) or self._notes is None:
            return None
        return backend.TableNotes(self._notes.get(_LANGUAGE, "none"), self._notes.get(_TAGS, ""))

    async def _has_vector_index(self) -> bool:
        statement = self._sql(
            "SELECT count(*) FROM pg_catalog.pg_index WHERE indrelid = to_regclass(%s) AND indisvalid "
            "AND indexrelid::regclass::text LIKE %s"
        )
        rows = await self._select(statement, [self._table.as_string(None), f"%{self._index_name}%"])
        return bool(rows and rows[0][0])

    async def _fetch_near(
        self, query: Array, groups: list[list[str]], limit: int, *, exact: bool
    ) -> list[tuple[Document, Vector]]:
        use_vector = exact or self.index == "hnsw"
        column, kind = ("embedding", "vector") if use_vector else _half_column(len(query))
        # <#> is the negative inner product. For unit vectors it equals −cosine, and it is defined for empty
        # texts. An index scan has no second sort key, so ties are broken by key only in an exact search.
        statement = self._sql(
            "SELECT document, embedding::text FROM {table} "
            "WHERE true {filters} ORDER BY {column} <#> %s::{kind}{ties} LIMIT %s",
            filters=_FILTER * len(groups),
            column=column,
            kind=kind,
            ties=", key" if exact else "",
        )
        values = [*groups, format_vector(query), limit]
        rows = await self._select_nearest(statement, values, limit=limit, exact=exact)
        return [(json.loads(document), json.loads(vector)) for document, vector in rows]

    async def _fetch_matching(self, terms: list[str], groups: list[list[str]], limit: int) -> list[Row]:
        statement = self._sql(
            "SELECT document, ts_rank(words, %s::tsquery) AS score FROM {table} "
            "WHERE words @@ %s::tsquery {filters} ORDER BY score DESC, key LIMIT %s",
            filters=_FILTER * len(groups),
        )
        query = " | ".join(f"'{term}'" for term in terms[:_MAX_TERMS])
        rows = await self._select(statement, [query, query, *groups, limit])
        return [Row(json.loads(document), float(score)) for document, score in rows]

    def _sql(self, statement: str, **parts: str) -> Any:
        """Return the statement with the quoted table name and these trusted pieces of SQL."""
        sql = self._psycopg.sql.SQL
        return sql(statement).format(table=self._table, **{name: sql(part) for name, part in parts.items()})

    @on_connection
    def _select(self, connection: Connection, statement: Any, values: Sequence[object]) -> list[Fields]:
        return connection.execute(statement, values).fetchall() if self._has_table(connection) else []

    def _has_table(self, connection: Connection) -> bool:
        """Return whether the table exists; raise StoreError if its vectors come from another embedder."""
        if self._notes is not None:
            return True
        name = self._table.as_string(connection)
        # Read pg_class, because to_regclass alone may use a cache that predates our lock.
        row = connection.execute(
            "SELECT coalesce(obj_description(c.oid, 'pg_class'), ''), ARRAY(SELECT attname::text FROM "
            "pg_catalog.pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped) "
            "FROM pg_catalog.pg_class c WHERE c.oid = to_regclass(%s)",
            [name],
        ).fetchone()
        if row is None:
            return False
        comment, columns = row
        notes = dict(line.split(": ", 1) for line in comment.split("\n") if ": " in line)
        self._check_table(name, columns, notes.get(_EMBEDDER, ""))
        self._notes = notes
        return True

    def _create(self, connection: Connection, record: Record) -> None:
        embedding = ""
        if record.vector is not None:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            embedding = f", embedding vector({len(record.vector)}) NOT NULL"
        connection.execute(
            self._sql(
                "CREATE TABLE {table} (key text PRIMARY KEY, document text NOT NULL, "
                "tags text[] NOT NULL, words tsvector NOT NULL {embedding})",
                embedding=embedding,
            )
        )
        connection.execute(self._sql("CREATE INDEX ON {table} USING gin (words)"))
        connection.execute(self._sql("CREATE INDEX ON {table} USING gin (tags)"))
        notes = {_EMBEDDER: self._embedder_name, _LANGUAGE: self._language or "auto", _TAGS: backend.TAGS_VERSION}
        comment = self._psycopg.sql.Literal("\n".join(f"{name}: {value}" for name, value in notes.items()))
        connection.execute(self._psycopg.sql.SQL("COMMENT ON TABLE {} IS {}").format(self._table, comment))

    def _build_index(self, connection: Connection) -> None:
        statement = self._sql("SELECT vector_dims(embedding) FROM {table} LIMIT 1")
        row = connection.execute(statement).fetchone()
        if row is None:
            return
        if self.index == "hnsw" and row[0] > _MAX_DIMENSION:
            raise InputError(f"'hnsw' supports up to {_MAX_DIMENSION} dimensions, not {row[0]}; use 'hnsw-half'.")
        column = "embedding" if self.index == "hnsw" else _half_column(row[0])[0]
        operators = "vector_ip_ops" if self.index == "hnsw" else "halfvec_ip_ops"
        sql = self._psycopg.sql
        old = sql.Identifier(*self._table_path[:-1], self._index_name)
        connection.execute(sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(old))
        connection.execute(
            sql.SQL("CREATE INDEX CONCURRENTLY {} ON {} USING hnsw (({}) {})").format(
                sql.Identifier(self._index_name), self._table, sql.SQL(column), sql.SQL(operators)
            )
        )

    @on_connection
    def _write(self, connection: Connection, records: Sequence[Record]) -> None:
        if not self._has_table(connection):
            with connection.transaction():
                # If two writers start at the same time, the second waits here and then finds the table.
                connection.execute("SELECT pg_advisory_xact_lock(hashtext('resift.create'))")
                if not self._has_table(connection):
                    self._create(connection, records[0])
        with_vectors = self.embedder is not None
        statement = self._sql(
            "INSERT INTO {table} (key, document, tags, words{column}) "
            "VALUES (%s, %s, %s, %s::tsvector{value}) ON CONFLICT (key) DO UPDATE SET "
            "document = EXCLUDED.document, tags = EXCLUDED.tags, words = EXCLUDED.words{change}",
            column=", embedding" if with_vectors else "",
            value=", %s::vector" if with_vectors else "",
            change=", embedding = EXCLUDED.embedding" if with_vectors else "",
        )
        rows = []
        # All writers use the same order, so that they cannot deadlock.
        for record in sorted(records, key=lambda record: record.key):
            row = [record.key, record.document, record.tags, _format_terms(record.terms)]
            rows.append(row if record.vector is None else [*row, format_vector(record.vector)])
        with connection.transaction(), connection.cursor() as cursor:
            cursor.executemany(statement, rows)


_FILTER = "AND tags && %s::text[] "


def _half_column(dimension: int) -> tuple[str, str]:
    """Return the column expression and the type of half-precision vectors."""
    if dimension > _MAX_HALF_DIMENSION:
        raise InputError(
            f"'hnsw-half' supports up to {_MAX_HALF_DIMENSION} dimensions, not {dimension}; use exact=True."
        )
    return f"embedding::halfvec({dimension})", f"halfvec({dimension})"


def _format_terms(terms: Sequence[str]) -> str:
    """Return the terms as a tsvector literal, which bypasses the server's locale-dependent parser."""
    positions: dict[str, list[int]] = defaultdict(list)
    for position, term in enumerate(terms[:_MAX_TERMS], start=1):
        if len(positions[term]) < _MAX_POSITIONS:
            positions[term].append(min(position, 16_383))
    return " ".join(f"'{term}':{','.join(map(str, numbers))}" for term, numbers in positions.items())
