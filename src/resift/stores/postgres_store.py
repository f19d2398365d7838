"""PostgresStore: documents in one PostgreSQL table, found by pgvector, by full text, or by both."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from resift._internal.arrays import Array
from resift.errors import InputError, StoreError, require
from resift.external.candidates import Candidate
from resift.protocols import Embedder
from resift.stores.documents import ids_from, in_order
from resift.stores.engine_store import EngineStore
from resift.stores.memory import Mode
from resift.stores.postgres_connections import Connection, Connections, Fields
from resift.stores.records import (
    TAGS_VERSION,
    Record,
    Row,
    document_hit,
    key_of,
    records_from,
    refuse_other_embedder,
    refuse_other_table,
)
from resift.stores.store_options import SearchOptions
from resift.types import Hit, JsonObject
from resift.validation import check_arguments, check_number, option

T = TypeVar("T")

_EMBEDDER, _LANGUAGE, _TAGS = "resift embedder: ", "resift language: ", "resift tags: "
_MOST_WORDS = 20_000  # a tsvector ends at 1 MB
_VARIABLES = ("DATABASE_URL", "PGDATABASE", "PGHOST", "PGPASSWORD", "PGPORT", "PGUSER", "POSTGRES_PASSWORD")
_MOST_PLACES = 256  # PostgreSQL keeps no more positions of one word
_MOST_HALF, _MOST_WHOLE = 4000, 2000  # dimensions that an index of halfvec and of vector takes
_CANDIDATES = 200  # that HNSW keeps in view at least; more find more and take longer
_MOST_SCANNED = 100_000  # rows that a filtered search looks at before the index is passed by


@dataclass(frozen=True, kw_only=True)
class PostgresOptions(SearchOptions):
    """What a pipeline file can say of a PostgreSQL store."""

    dsn: str = option(
        "Connection string; keep the password out of the file with ${PGPASSWORD}.",
        kind="address",
        variables=_VARIABLES,
    )
    table: str = option("The table.", default="resift_documents")


class PostgresStore(EngineStore):
    """One table: cosine by pgvector, words by a tsvector, RRF(60) of both in hybrid mode.

    The table is made on the first `add`. Without an embedder the mode is "text"; with one it is "vector"
    unless told otherwise. Values travel as parameters, the table's name as a quoted identifier. Vectors are
    compared with every row until `optimise` builds the index; `exact=True` passes it by.
    """

    Options = PostgresOptions
    indexes = ("hnsw", "hnsw-half")

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
        check_number(connections, "connections", gt=0)
        check_number(timeout_s, "timeout_s", gt=0)
        super().__init__(
            name, embedder, mode, language=language, exact=exact, threads=connections, index=index
        )
        self._psycopg = require("psycopg", extra="postgres")
        self._connections = Connections(dsn, timeout_s=timeout_s)
        self._table = self._psycopg.sql.Identifier(*table.split("."))
        self._index_name = table.rsplit(".", maxsplit=1)[-1][:40] + "_resift_hnsw"
        self._comment: str | None = None

    async def add(self, documents: Iterable[Candidate]) -> int:
        """Store the documents, replacing those of the same id, all or none; return how many were given."""
        records = await records_from(documents, self.embedder, await self._analyzer(), store=self.name)
        if records:
            await self._job(lambda connection: self._upsert(connection, records))
        return len(records)

    async def delete(self, ids: Iterable[str | int]) -> int:
        """Remove documents; return how many were there."""
        keys = [key_of(id) for id in ids_from(ids)]

        def job(connection: Connection) -> int:
            if not self._ready(connection):
                return 0
            return connection.execute(self._sql("DELETE FROM {table} WHERE key = ANY(%s)"), [keys]).rowcount

        return await self._job(job)

    async def get(self, ids: Iterable[str | int]) -> list[Hit]:
        """Return the documents of these ids in the order asked; unknown ids are left out."""
        asked = ids_from(ids)
        keys = [key_of(id) for id in asked]
        rows = await self._rows(self._sql("SELECT document FROM {table} WHERE key = ANY(%s)"), [keys])
        hits = [document_hit(document, source=self.name) for (document,) in rows]
        return in_order(asked, {hit.id: hit for hit in hits})

    async def vectors_of(self, ids: Iterable[str | int]) -> JsonObject:
        """Return id -> unit vector of the documents that have one."""
        if self.embedder is None:
            return {}
        asked = {key_of(id): id for id in ids_from(ids)}
        statement = self._sql("SELECT key, embedding::text FROM {table} WHERE key = ANY(%s)")
        rows = await self._rows(statement, [list(asked)])
        return {asked[key]: json.loads(vector) for key, vector in rows if vector is not None}

    async def count(self) -> int:
        """Return how many documents there are."""
        rows = await self._rows(self._sql("SELECT count(*) FROM {table}"), [])
        return int(rows[0][0]) if rows else 0

    async def optimise(self) -> str:
        """Build the HNSW index of the vectors anew, without locking writers out; say what was done."""

        def job(connection: Connection) -> str:
            if not self._ready(connection):
                return "there is no table yet"
            connection.execute("SET statement_timeout = 0")
            try:
                if self.embedder is not None:
                    self._build_index(connection)
                connection.execute(self._sql("VACUUM (ANALYZE) {table}"))
            finally:
                connection.execute("RESET statement_timeout")
            return (
                "statistics renewed"
                if self.embedder is None
                else f"{self.index} index built, statistics renewed"
            )

        return await self._job(job)

    async def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        await self._workers.run(self._connections.close)
        self._workers.close()

    async def _exists(self) -> bool:
        return await self._job(self._ready)

    async def _table_language(self) -> str | None:
        if not await self._exists():
            return None
        # Tables of Resift 0.1 hold words that were not stemmed, and do not say so.
        return _remembered(self._comment or "", _LANGUAGE) or "none"

    async def _tags_lists(self) -> bool:
        return _remembered(self._comment or "", _TAGS) == TAGS_VERSION

    async def _has_index(self) -> bool:
        statement = self._sql(
            "SELECT count(*) FROM pg_catalog.pg_index WHERE indrelid = to_regclass(%s) AND indisvalid "
            "AND indexrelid::regclass::text LIKE %s"
        )
        rows = await self._rows(statement, [self._table.as_string(None), f"%{self._index_name}%"])
        return bool(rows and rows[0][0])

    async def _nearest(self, asked: Array, groups: list[list[str]], limit: int, *, exact: bool) -> list[Row]:
        filters, values = _filter(groups)
        column, kind = ("embedding", "vector") if exact or self.index == "hnsw" else self._half(len(asked))
        # <#> is the negative inner product: cosine for unit vectors, and defined for empty texts. The index
        # knows no second key, so ties are broken by it only where every row is compared.
        statement = self._sql(
            "SELECT document, -(embedding <#> %s::vector) AS score, embedding::text FROM {table} "
            "WHERE true {filters} ORDER BY {column} <#> %s::{kind}{ties} LIMIT %s",
            filters=filters,
            column=column,
            kind=kind,
            ties=", key" if exact else "",
        )
        vector = _vector(asked)

        def job(connection: Connection) -> list[Fields]:
            if not self._ready(connection):
                return []
            with connection.transaction():
                for setting in _settings(limit, exact=exact):
                    connection.execute(setting)
                return connection.execute(statement, [vector, *values, vector, limit]).fetchall()

        rows = [
            Row(document, float(score), json.loads(found)) for document, score, found in await self._job(job)
        ]
        return sorted(rows, key=lambda row: -row.score)

    async def _matching(self, terms: list[str], groups: list[list[str]], limit: int) -> list[Row]:
        filters, values = _filter(groups)
        statement = self._sql(
            "SELECT document, ts_rank(words, %s::tsquery) AS score FROM {table} "
            "WHERE words @@ %s::tsquery {filters} ORDER BY score DESC, key LIMIT %s",
            filters=filters,
        )
        any_of = " | ".join(f"'{term}'" for term in terms[:_MOST_WORDS])
        rows = await self._rows(statement, [any_of, any_of, *values, limit])
        return [Row(document, float(score)) for document, score in rows]

    def _sql(self, statement: str, **parts: str) -> object:
        """Return the statement with the table's quoted name and these pieces of our own SQL filled in."""
        sql = self._psycopg.sql.SQL
        return sql(statement).format(table=self._table, **{name: sql(part) for name, part in parts.items()})

    async def _rows(self, statement: object, values: Sequence[object]) -> list[Fields]:
        def job(connection: Connection) -> list[Fields]:
            if not self._ready(connection):
                return []
            return connection.execute(statement, values).fetchall()

        return await self._job(job)

    async def _job(self, job: Callable[[Connection], T]) -> T:
        """Run a job on a connection in a worker thread."""
        return await self._work(lambda: self._connections.run(job))

    def _failure(self, exc: Exception) -> StoreError:
        lost = isinstance(exc, (self._psycopg.OperationalError, self._psycopg.InterfaceError))
        code = exc.sqlstate if isinstance(exc, self._psycopg.Error) else None
        if lost and code is None:
            return StoreError(
                f"PostgreSQL store {self.name!r} cannot be reached. Is the server running, and are "
                "host, port, database, user and password right?",
                store=self.name,
                transient=True,
            )
        # The server's message may quote documents; its code says what happened.
        return StoreError(
            f"PostgreSQL store {self.name!r} failed: {type(exc).__name__}{f' {code}' if code else ''}.",
            store=self.name,
            transient=lost,
        )

    def _ready(self, connection: Connection) -> bool:
        """Say whether the table is there; refuses one with the vectors of another embedder."""
        if self._comment is None:
            # From pg_class, not a bare to_regclass: that may answer from a cache older than a lock we took.
            held = connection.execute(
                "SELECT obj_description(oid, 'pg_class') FROM pg_catalog.pg_class "
                "WHERE oid = to_regclass(%s)",
                [self._table.as_string(connection)],
            ).fetchone()
            if held is not None:
                name = self._table.as_string(connection)
                columns = connection.execute(
                    "SELECT attname FROM pg_catalog.pg_attribute WHERE attrelid = to_regclass(%s) "
                    "AND attnum > 0 AND NOT attisdropped",
                    [name],
                ).fetchall()
                needed = ("key", "document", "tags", "words")
                refuse_other_table(name, [column for (column,) in columns], needed, store=self.name)
                refuse_other_embedder(_remembered(held[0] or "", _EMBEDDER), self._identity, store=self.name)
                self._comment = held[0] or ""
        return self._comment is not None

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
        comment = f"{_EMBEDDER}{self._identity}\n{_LANGUAGE}{self._language or 'auto'}\n{_TAGS}{TAGS_VERSION}"
        note = self._psycopg.sql.Literal(comment)
        connection.execute(self._psycopg.sql.SQL("COMMENT ON TABLE {} IS {}").format(self._table, note))

    def _build_index(self, connection: Connection) -> None:
        name = self._psycopg.sql.Identifier(self._index_name)
        statement = self._sql("SELECT vector_dims(embedding) FROM {table} LIMIT 1")
        found = connection.execute(statement).fetchone()
        if found is None:
            return
        column, _ = ("embedding", "vector") if self.index == "hnsw" else self._half(found[0])
        if self.index == "hnsw" and found[0] > _MOST_WHOLE:
            raise InputError(f"'hnsw' takes up to {_MOST_WHOLE} dimensions, not {found[0]}; use 'hnsw-half'.")
        operators = "vector_ip_ops" if self.index == "hnsw" else "halfvec_ip_ops"
        schema = self._psycopg.sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(
            self._psycopg.sql.Identifier(*self._table._obj[:-1], self._index_name)
        )
        connection.execute(schema)
        connection.execute(
            self._psycopg.sql.SQL("CREATE INDEX CONCURRENTLY {} ON {} USING hnsw (({}) {})").format(
                name, self._table, self._psycopg.sql.SQL(column), self._psycopg.sql.SQL(operators)
            )
        )

    def _half(self, dimension: int) -> tuple[str, str]:
        if dimension > _MOST_HALF:
            raise InputError(
                f"'hnsw-half' takes up to {_MOST_HALF} dimensions, not {dimension}; use exact=True."
            )
        return f"embedding::halfvec({dimension})", f"halfvec({dimension})"

    def _upsert(self, connection: Connection, records: Sequence[Record]) -> None:
        if not self._ready(connection):
            with connection.transaction():
                # Two first writers at once: the second waits here and then finds the table.
                connection.execute("SELECT pg_advisory_xact_lock(hashtext('resift.create'))")
                if not self._ready(connection):
                    self._create(connection, records[0])
        with connection.transaction():
            with_vectors = self.embedder is not None
            statement = self._sql(
                "INSERT INTO {table} (key, document, tags, words{column}) "
                "VALUES (%s, %s, %s, %s::tsvector{value}) ON CONFLICT (key) DO UPDATE SET "
                "document = EXCLUDED.document, tags = EXCLUDED.tags, words = EXCLUDED.words{change}",
                column=", embedding" if with_vectors else "",
                value=", %s::vector" if with_vectors else "",
                change=", embedding = EXCLUDED.embedding" if with_vectors else "",
            )
            # In one order for all writers, so that two of them never wait for each other.
            rows = [_values(record) for record in sorted(records, key=lambda record: record.key)]
            with connection.cursor() as cursor:
                cursor.executemany(statement, rows)


def _settings(limit: int, *, exact: bool) -> list[str]:
    """Return the settings of one search: no index, or one that goes on until the limit is reached."""
    if exact:
        return ["SET LOCAL enable_indexscan = off"]
    return [
        f"SET LOCAL hnsw.ef_search = {min(1000, max(_CANDIDATES, limit))}",
        "SET LOCAL hnsw.iterative_scan = relaxed_order",
        f"SET LOCAL hnsw.max_scan_tuples = {_MOST_SCANNED}",
        "SET LOCAL enable_seqscan = off",
    ]


def _remembered(comment: str, name: str) -> str:
    lines = [line.removeprefix(name) for line in comment.split("\n") if line.startswith(name)]
    return lines[0] if lines else ""


def _filter(groups: Sequence[Sequence[str]]) -> tuple[str, list[list[str]]]:
    return "AND tags && %s::text[] " * len(groups), [list(group) for group in groups]


def _values(record: Record) -> list[object]:
    values: list[object] = [record.key, record.document, record.tags, _lexemes(record.terms)]
    return values if record.vector is None else [*values, _vector(record.vector)]


def _vector(row: Iterable[float]) -> str:
    return "[" + ",".join(str(float(value)) for value in row) + "]"


def _lexemes(terms: Sequence[str]) -> str:
    """Return a tsvector literal; no parser of the server, so that its locale does not matter."""
    places: dict[str, list[int]] = defaultdict(list)
    for position, term in enumerate(terms[:_MOST_WORDS], start=1):
        if len(places[term]) < _MOST_PLACES:
            places[term].append(min(position, 16_383))
    return " ".join(f"'{term}':{','.join(map(str, at))}" for term, at in places.items())
