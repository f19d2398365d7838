"""PostgresStore beyond the contract, on a real PostgreSQL: names, failures, concurrency, hostile input."""

# ruff: noqa: E402 - engines may be absent; statements read best on one line
from __future__ import annotations

import asyncio
from typing import Any

import pytest

from resift.errors import StoreError
from tests.stores.factories import HashingEmbedder
from tests.stores.postgres_server import dsn, fresh_table

psycopg = pytest.importorskip("psycopg")

from resift.stores.postgres import PostgresStore

HOSTILE = "x' OR 1=1; --\x00 \ud800 \" ` %s {}"


def run(body: Any, **options: Any) -> Any:
    async def inside() -> Any:
        store = PostgresStore(dsn(), **{"table": fresh_table(), **options})
        try:
            return await body(store)
        finally:
            await store.close()

    return asyncio.run(inside())


def test_documents_are_kept_exactly_and_nothing_in_them_is_syntax() -> None:
    """Quotes, NUL (which PostgreSQL text cannot hold) and lone surrogates in ids, texts, keys and values."""

    async def body(store: PostgresStore) -> None:
        document = {"id": HOSTILE, "text": HOSTILE, "metadata": {HOSTILE: HOSTILE, "nested": {"a": [1, None]}}}
        await store.add([document, {"id": "other", "text": "other"}])
        (held,) = await store.get([HOSTILE])
        assert (held.id, held.text, held.metadata) == (HOSTILE, HOSTILE, document["metadata"])
        assert [hit.id for hit in await store.search("x OR", k=5, where={HOSTILE: HOSTILE})] == [HOSTILE]
        assert await store.delete(["' OR '1'='1"]) == 0
        assert await store.delete([HOSTILE]) == 1

    run(body, embedder=HashingEmbedder(), mode="hybrid")


def test_the_table_name_is_an_identifier_and_never_syntax() -> None:
    """A name full of SQL is just an odd name; a dotted one is schema and table."""

    async def body(store: PostgresStore) -> None:
        await store.add([{"id": "a", "text": "apples"}])
        assert [hit.id for hit in await store.search("apples", k=1)] == ["a"]

    run(body, table='docs"; DROP TABLE x; --' + fresh_table())
    run(body, table="public." + fresh_table())


def test_an_add_is_all_or_nothing() -> None:
    """A failing row takes the whole call with it."""

    async def body(store: PostgresStore) -> None:
        await store.add([{"id": "a", "text": "one"}])
        store.embedder.dimension = 8  # type: ignore[union-attr]
        with pytest.raises(StoreError, match="22000"):
            await store.add([{"id": "b", "text": "two"}, {"id": "c", "text": "three"}])
        assert await store.count() == 1

    run(body, embedder=HashingEmbedder())


def test_vectors_of_another_embedder_are_refused() -> None:
    """The table remembers its embedder."""
    table = fresh_table()

    async def first(store: PostgresStore) -> None:
        await store.add([{"id": "a", "text": "b"}])

    async def second(store: PostgresStore) -> None:
        with pytest.raises(StoreError, match="'hashing-test', not from 'other'"):
            await store.search("b", k=1)

    run(first, table=table, embedder=HashingEmbedder())
    run(second, table=table, embedder=HashingEmbedder(name="other"))


def test_writers_at_once_lose_nothing() -> None:
    """Eight first writers with overlapping ids: one table, every id, no deadlock."""

    async def body(store: PostgresStore) -> None:
        await asyncio.gather(
            *(store.add([{"id": f"d{n}", "text": "x"} for n in range(at, at + 40)]) for at in range(0, 80, 10))
        )
        assert await store.count() == 110

    for _ in range(10):
        run(body, connections=4)


def test_a_long_document_and_a_long_word_are_stored() -> None:
    """The limits of tsvector cut the index, not the document."""

    async def body(store: PostgresStore) -> None:
        text = " ".join(f"word{n}" for n in range(60_000)) + " " + "y" * 9000
        await store.add([{"id": "long", "text": text}, {"id": "same", "text": "same " * 30_000}])
        assert [hit.id for hit in await store.search("word7", k=3)] == ["long"]
        assert (await store.get(["long"]))[0].text == text

    run(body, mode="text")


def test_an_unreachable_server_is_a_transient_store_error_without_the_password() -> None:
    """The connection string stays out of the message."""

    async def body() -> None:
        store = PostgresStore("postgresql://user:hush@127.0.0.1:1/db", timeout_s=2)
        with pytest.raises(StoreError) as caught:
            await store.search("anything", k=1)
        assert caught.value.transient
        assert "hush" not in str(caught.value)

    asyncio.run(body())


def test_a_broken_connection_is_replaced() -> None:
    """The server ends the connection; the call after that works again."""

    async def body(store: PostgresStore) -> None:
        await store.add([{"id": "a", "text": "apples"}])
        with psycopg.connect(dsn(), autocommit=True) as admin:
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        with pytest.raises(StoreError) as caught:
            await store.count()
        assert caught.value.transient
        assert await store.count() == 1

    run(body, mode="text")


def test_a_late_cancellation_does_not_stop_the_next_statement() -> None:
    """At a deadline, the server cancels a statement. If it has just ended, its connection may be in use again."""

    def sleep(seconds: float) -> Any:
        return store._job(lambda connection: connection.execute("SELECT pg_sleep(%s)", [seconds]))

    async def cancel_late() -> None:
        for i in range(60):
            task = asyncio.ensure_future(sleep(0.004))
            await asyncio.sleep(0.003 + i % 6 * 0.0005)
            task.cancel()
            await asyncio.wait([task])
            await asyncio.gather(*(sleep(0.003) for _ in range(4)))
        await store.close()

    store = PostgresStore(dsn(), table=fresh_table())
    asyncio.run(cancel_late())


def test_options_of_the_connection_string_stay_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search path and a statement timeout of the user, in the string or in PGOPTIONS."""
    from resift.stores import tables

    table = fresh_table()
    with psycopg.connect(dsn(), autocommit=True) as admin:
        admin.execute("CREATE SCHEMA IF NOT EXISTS library")
        admin.execute(f"CREATE TABLE library.{table} (id int PRIMARY KEY, body text)")
    chosen = "-c search_path=library -c statement_timeout=1234"
    shown = "SELECT current_setting('search_path'), current_setting('statement_timeout')"

    async def settings(store: Any) -> Any:
        rows = await store._job(lambda connection: connection.execute(shown).fetchall())
        await store.close()
        return rows[0]

    with_options = psycopg.conninfo.make_conninfo(dsn(), options=chosen)
    assert asyncio.run(settings(PostgresStore(with_options))) == ("library", "1234ms")
    assert asyncio.run(settings(tables.PostgresTable(with_options, table))) == ("library", "1234ms")
    monkeypatch.setenv("PGOPTIONS", chosen)
    assert asyncio.run(settings(PostgresStore(dsn()))) == ("library", "1234ms")
    monkeypatch.delenv("PGOPTIONS")
    assert asyncio.run(settings(PostgresStore(dsn(), timeout_s=7)))[1] == "7s"
