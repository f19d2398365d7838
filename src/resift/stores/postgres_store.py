"""PostgresStore: documents in one PostgreSQL table, found by pgvector, by full text, or by both (N7)."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from resift.candidates import Candidate
from resift.errors import ResiftError, StoreError, require
from resift.protocols import Embedder
from resift.stores.documents import ids_from, in_order, nothing_to_find, ranked
from resift.stores.embedding import identity_of, unit_vectors
from resift.stores.filtering import Where
from resift.stores.hybrid import DEPTH, fuse_views
from resift.stores.memory import Mode, resolve_mode
from resift.stores.postgres_connections import Connections
from resift.stores.records import (
    Record,
    Row,
    document_hit,
    enough,
    found_by_vector,
    found_by_words,
    index_words,
    key_of,
    records_from,
    refuse_other_embedder,
    tag_groups,
)
from resift.stores.workers import Workers
from resift.types import Hit

T = TypeVar("T")

_REMEMBERS = "resift embedder: "
_MOST_WORDS = 20_000  # a tsvector ends at 1 MB
_MOST_PLACES = 256  # PostgreSQL keeps no more positions of one word


class PostgresStore:
    """One table: exact cosine by pgvector, words by a tsvector, RRF(60) of both in hybrid mode.

    The table is made on the first `add`. Without an embedder the mode is "text"; with one it is "vector"
    unless told otherwise. Values travel as parameters, the table's name as a quoted identifier.
    """

    def __init__(
        self,
        dsn: str,
        *,
        table: str = "resift_documents",
        embedder: Embedder | None = None,
        mode: Mode | None = None,
        name: str = "postgres",
        connections: int = 4,
        timeout_s: float = 10.0,
    ) -> None:
        self.name = name
        self.embedder = embedder
        self.mode: Mode = resolve_mode(mode, embedder, default="vector")
        self._psycopg = require("psycopg", extra="postgres")
        self._connections = Connections(dsn, timeout_s=timeout_s)
        self._workers = Workers(name, threads=connections)
        self._table = self._psycopg.sql.Identifier(*table.split("."))
        self._ready = False

    async def add(self, documents: Iterable[Candidate]) -> int:
        """Store the documents, replacing those of the same id, all or none; return how many were given."""
        records = await records_from(documents, self.embedder, store=self.name)
        if records:
            await self._work(lambda connection: self._upsert(connection, records))
        return len(records)

    async def delete(self, ids: Iterable[str]) -> int:
        """Remove documents; return how many were there."""
        keys = [key_of(id) for id in ids_from(ids)]

        def job(connection: Any) -> int:
            if not self._exists(connection):
                return 0
            return int(
                connection.execute(self._sql("DELETE FROM {table} WHERE key = ANY(%s)"), [keys]).rowcount
            )

        return await self._work(job)

    async def get(self, ids: Iterable[str]) -> list[Hit]:
        """Return the documents of these ids in the order asked; unknown ids are left out."""
        asked = ids_from(ids)
        keys = [key_of(id) for id in asked]
        rows = await self._rows(self._sql("SELECT document FROM {table} WHERE key = ANY(%s)"), [keys])
        hits = [document_hit(document, source=self.name) for (document,) in rows]
        return in_order(asked, {hit.id: hit for hit in hits})

    async def vectors_of(self, ids: Iterable[str]) -> dict[str, Any]:
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

    async def search(self, query: str, *, k: int, where: Where | None = None) -> list[Hit]:
        """Return at most k hits, best first, whose metadata equals `where`."""
        groups = tag_groups(where)
        if nothing_to_find(query, k):
            return []
        if self.mode == "text":
            return await self._by_words(query, groups, k, self.name)
        if self.mode == "vector":
            return await self._by_vector(query, groups, k, self.name)
        depth = max(k, DEPTH)
        text = await self._by_words(query, groups, depth, f"{self.name}.text")
        vectors = await self._by_vector(query, groups, depth, f"{self.name}.vectors")
        return fuse_views([text, vectors], k=k, source=self.name)

    async def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        await self._workers.run(self._connections.close)
        self._workers.close()

    async def _by_vector(self, query: str, groups: list[list[str]], k: int, source: str) -> list[Hit]:
        assert self.embedder is not None  # noqa: S101 - resolve_mode refuses vector mode without one
        asked = (await unit_vectors(self.embedder, [query], kind="query", store=self.name))[0]
        filters, values = _filter(groups)
        # <#> is the negative inner product: cosine for unit vectors, and defined for empty texts.
        statement = self._sql(
            "SELECT document, -(embedding <#> %s::vector) AS score, embedding::text FROM {table} "
            "WHERE true {filters} ORDER BY embedding <#> %s::vector, key LIMIT %s",
            filters=filters,
        )
        vector = _vector(asked)

        async def fetch(limit: int) -> list[Row]:
            rows = await self._rows(statement, [vector, *values, vector, limit])
            return [Row(document, float(score), json.loads(found)) for document, score, found in rows]

        return ranked(found_by_vector(await enough(fetch, k), asked), k=k, source=source)

    async def _by_words(self, query: str, groups: list[list[str]], k: int, source: str) -> list[Hit]:
        asked = list(dict.fromkeys(index_words(query)))[:_MOST_WORDS]
        if not asked:
            return []
        filters, values = _filter(groups)
        statement = self._sql(
            "SELECT document, ts_rank(words, %s::tsquery) AS score FROM {table} "
            "WHERE words @@ %s::tsquery {filters} ORDER BY score DESC, key LIMIT %s",
            filters=filters,
        )
        any_of = " | ".join(f"'{word}'" for word in asked)

        async def fetch(limit: int) -> list[Row]:
            rows = await self._rows(statement, [any_of, any_of, *values, limit])
            return [Row(document, float(score)) for document, score in rows]

        return ranked(found_by_words(await enough(fetch, k)), k=k, source=source)

    def _sql(self, statement: str, **parts: str) -> Any:
        """Return the statement with the table's quoted name and these pieces of our own SQL filled in."""
        sql = self._psycopg.sql.SQL
        return sql(statement).format(table=self._table, **{name: sql(part) for name, part in parts.items()})

    async def _rows(self, statement: Any, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        def job(connection: Any) -> list[tuple[Any, ...]]:
            if not self._exists(connection):
                return []
            rows: list[tuple[Any, ...]] = connection.execute(statement, values).fetchall()
            return rows

        return await self._work(job)

    async def _work(self, job: Callable[[Any], T]) -> T:
        """Run blocking work in a worker thread; failures of the server become StoreError."""
        try:
            return await self._workers.run(lambda: self._connections.run(job))
        except (ResiftError, asyncio.CancelledError):
            raise
        except self._psycopg.Error as exc:
            lost = isinstance(exc, (self._psycopg.OperationalError, self._psycopg.InterfaceError))
            code = getattr(exc, "sqlstate", None) or type(exc).__name__
            # The server's message may quote documents; its code says what happened.
            raise StoreError(
                f"PostgreSQL store {self.name!r} failed with {code} ({type(exc).__name__}).",
                store=self.name,
                transient=lost,
            ) from exc

    def _exists(self, connection: Any) -> bool:
        if not self._ready:
            # From pg_class, not a bare to_regclass: that may answer from a cache older than a lock we took.
            held = connection.execute(
                "SELECT obj_description(oid, 'pg_class') FROM pg_catalog.pg_class "
                "WHERE oid = to_regclass(%s)",
                [self._table.as_string(connection)],
            ).fetchone()
            if held is not None:
                remembered = (held[0] or "").removeprefix(_REMEMBERS)
                refuse_other_embedder(remembered, self._identity, store=self.name)
            self._ready = held is not None
        return self._ready

    @property
    def _identity(self) -> str:
        return "" if self.embedder is None else identity_of(self.embedder)

    def _create(self, connection: Any, record: Record) -> None:
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
        note = self._psycopg.sql.Literal(_REMEMBERS + self._identity)
        connection.execute(self._psycopg.sql.SQL("COMMENT ON TABLE {} IS {}").format(self._table, note))

    def _upsert(self, connection: Any, records: Sequence[Record]) -> None:
        if not self._exists(connection):
            with connection.transaction():
                # Two first writers at once: the second waits here and then finds the table.
                connection.execute("SELECT pg_advisory_xact_lock(hashtext('resift.create'))")
                if not self._exists(connection):
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


def _filter(groups: Sequence[Sequence[str]]) -> tuple[str, list[list[str]]]:
    return "AND tags && %s::text[] " * len(groups), [list(group) for group in groups]


def _values(record: Record) -> list[Any]:
    values = [record.key, record.document, record.tags, _lexemes(record.words)]
    return values if record.vector is None else [*values, _vector(record.vector)]


def _vector(row: Any) -> str:
    return "[" + ",".join(str(float(value)) for value in row) + "]"


def _lexemes(words: Sequence[str]) -> str:
    """Return a tsvector literal; no parser of the server, so that its locale does not matter."""
    places: dict[str, list[int]] = defaultdict(list)
    for position, word in enumerate(words[:_MOST_WORDS], start=1):
        if len(places[word]) < _MOST_PLACES:
            places[word].append(min(position, 16_383))
    return " ".join(f"'{word}':{','.join(map(str, at))}" for word, at in places.items())
