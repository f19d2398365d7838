"""The engines' own vector indexes: built on request, said to be approximate, filters keep their promise."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.stores.test_sqlite_index import GivenVectors, clustered


def lancedb(folder: Path, embedder: Any, **options: Any) -> Any:
    pytest.importorskip("lancedb")
    from resift.stores.lancedb import LanceDBVectorStore

    return LanceDBVectorStore(folder / "lance", embedder=embedder, **options)


def postgres(_folder: Path, embedder: Any, **options: Any) -> Any:
    pytest.importorskip("psycopg")
    from resift.stores.postgres import PostgresStore
    from tests.stores.postgres_server import dsn

    return PostgresStore(dsn(), table=TABLE[0], embedder=embedder, timeout_s=60, **options)


TABLE = [""]


@pytest.mark.parametrize(
    ("make", "index"), [(lancedb, "hnsw"), (lancedb, "ivf"), (postgres, "hnsw"), (postgres, "hnsw-half")]
)
def test_an_index_is_used_once_built_and_filters_find_all(tmp_path: Path, make: Any, index: str) -> None:
    """Exact before `optimize` and with exact=True; approximate after, with exact scores and high recall."""
    if make is postgres:
        pytest.importorskip("psycopg")
        from tests.stores.postgres_server import fresh_table

        TABLE[0] = fresh_table()
    rows = clustered(1200, 48)
    embedder = GivenVectors(rows)

    async def body() -> None:
        store = make(tmp_path, embedder, index=index)
        scan = make(tmp_path, embedder, exact=True)
        await store.add([{"id": f"d{n:04}", "text": f"{n}", "metadata": {"n": n}} for n in range(1200)])
        assert not (await store.search("7", k=10)).approximate
        assert "index" in await store.optimize()
        shares = []
        for question in range(0, 1200, 100):
            found, wanted = await store.search(f"{question}", k=10), await scan.search(f"{question}", k=10)
            assert (found.approximate, wanted.approximate) == (True, False)
            exact = {f"d{n:04}": float(rows[n] @ rows[question]) for n in range(1200)}
            assert all(hit.score == pytest.approx(exact[hit.id], abs=1e-5) for hit in found)
            shares.append(len({hit.id for hit in found} & {hit.id for hit in wanted}) / 10)
        assert np.mean(shares) >= 0.9
        few = [3, 500, 1100]
        assert {hit.metadata["n"] for hit in await store.search("3", k=10, where={"n": few})} == set(few)
        ranged = await store.search("3", k=5, where={"n": {">=": 1195}})
        assert {hit.metadata["n"] for hit in ranged} == set(range(1195, 1200))
        await store.add([{"id": "late", "text": "5"}])
        assert (await store.search("5", k=2))[0].score == pytest.approx(1.0, abs=1e-5)
        assert {hit.id for hit in await store.search("5", k=2)} == {"d0005", "late"}
        await store.close()
        await scan.close()

    asyncio.run(body())


def test_tables_of_other_programs_are_refused_by_what_they_lack(tmp_path: Path) -> None:
    """The message names the table; nothing is changed."""
    lancedb, qdrant = pytest.importorskip("lancedb"), pytest.importorskip("qdrant_client")
    psycopg = pytest.importorskip("psycopg")
    from resift.errors import StoreError
    from resift.stores.lancedb import LanceDBVectorStore
    from resift.stores.postgres import PostgresStore
    from resift.stores.qdrant import QdrantVectorStore
    from tests.stores.factories import HashingEmbedder
    from tests.stores.postgres_server import dsn, fresh_table

    lancedb.connect(tmp_path).create_table("articles", [{"title": "x", "vector": [1.0, 2.0]}])
    table = fresh_table()
    with psycopg.connect(dsn(), autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {table} (id int, title text)")
    client = qdrant.QdrantClient(":memory:")
    size = qdrant.models.VectorParams(size=2, distance=qdrant.models.Distance.DOT)
    client.create_collection("articles", vectors_config=size)
    client.upsert("articles", [qdrant.models.PointStruct(id=1, vector=[1.0, 2.0], payload={"title": "x"})])
    stores: list[Any] = [
        LanceDBVectorStore(tmp_path, "articles"),
        LanceDBVectorStore(tmp_path, "articles", embedder=HashingEmbedder()),
        PostgresStore(dsn(), table),
        PostgresStore(dsn(), table, embedder=HashingEmbedder()),
        QdrantVectorStore("articles", client=client, embedder=HashingEmbedder()),
    ]

    async def body() -> None:
        for store in stores:
            with pytest.raises(StoreError, match="not created by Resift"):
                await store.search("x", k=1)
            with pytest.raises(StoreError, match="not created by Resift"):
                await store.add([{"id": "a", "text": "x"}])
            await store.close()

    asyncio.run(body())
    client.close()
