"""Tables with unusual schemas: nested values, odd names, missing texts, indexes of another distance."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from resift.errors import InputError
from resift.stores import tables
from tests.stores.table_systems import EMBEDDER


def search(store: Any, query: str = "travel", **options: Any) -> list[Any]:
    async def run() -> list[Any]:
        try:
            return list(await store.search(query, k=5, **options))
        finally:
            await store.close()

    return asyncio.run(run())


def embed(text: str) -> list[float]:
    return [float(value) for value in asyncio.run(EMBEDDER.embed([text], kind="document"))[0]]


def test_postgres_reads_json_paths_padded_text_and_indexes_of_its_distance() -> None:
    psycopg = pytest.importorskip("psycopg")
    from tests.stores.postgres_server import dsn, fresh_table

    name = fresh_table()
    with psycopg.connect(dsn(), autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        columns = f"id int PRIMARY KEY, about jsonb, code char(5), e vector({len(embed('x'))})"
        connection.execute(f"CREATE TABLE {name} ({columns})")
        for id, text in enumerate(("Travel costs", "Lunch")):
            row = [id, f'{{"head": {{"line": "{text}"}}, "n": {id}}}', "ab", str(embed(text))]
            connection.execute(f"INSERT INTO {name} VALUES (%s, %s, %s, %s)", row)
        connection.execute(f"CREATE INDEX ON {name} USING hnsw (e vector_l2_ops)")
        connection.execute(f"CREATE MATERIALIZED VIEW {name}_m AS SELECT id, code FROM {name}")
    fields: dict[str, Any] = {"fields": ["about.head.line", "code"]}
    (hit,) = search(tables.PostgresTable(dsn(), name, **fields), where={"about.n": 0, "code": "ab"})
    assert (hit.id, hit.metadata["about"]["n"]) == ("0", 0)
    assert hit.text == "line: Travel costs\n\ncode: ab"
    assert search(tables.PostgresTable(dsn(), name, **fields), where={"about.n": 1}) == []
    for distance, is_approximate in (("cosine", False), ("l2", True)):
        store = tables.PostgresTable(dsn(), name, **fields, embedder=EMBEDDER, mode="vector", distance=distance)
        assert asyncio.run(store._has_vector_index()) is is_approximate
        assert search(store, "Lunch")[0].id == "1"
    with pytest.raises(InputError, match=f"{name}_m"):
        tables.PostgresTable(dsn(), f"{name}_x")


def test_a_table_with_a_title_and_other_texts_must_name_its_fields(tmp_path: Path) -> None:
    import sqlite3

    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute('CREATE TABLE docs (id INTEGER PRIMARY KEY, Title TEXT, "Full Story" TEXT, n INT)')
        connection.execute("INSERT INTO docs VALUES (1, 'Costs', 'travel', 3)")
        connection.execute("CREATE TABLE names (id INTEGER PRIMARY KEY, name VARCHAR(9), n INT)")
        connection.execute("INSERT INTO names VALUES (1, 'travel', 3)")
    connection.close()
    with pytest.raises(InputError, match=r"Only Title.*Full Story"):
        tables.SQLiteTable(tmp_path / "a.db", "docs")
    assert search(tables.SQLiteTable(tmp_path / "a.db", "docs", fields=["Title", "Full Story"]))[0].id == "1"
    assert search(tables.SQLiteTable(tmp_path / "a.db", "names"))[0].metadata["n"] == 3


def test_filters_reach_into_nested_values(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(tmp_path / "a.duckdb")) as connection:
        connection.execute("CREATE TABLE docs (id INT, body VARCHAR, author STRUCT(name VARCHAR, born INT))")
        connection.execute("INSERT INTO docs VALUES (1, 'travel', {'name': 'Ann', 'born': 1980})")
        connection.execute("INSERT INTO docs VALUES (2, 'travel', NULL)")
    for where in ({"author.name": "Ann"}, {"author.born": {"<": 1990}}):
        assert [hit.id for hit in search(tables.DuckDBTable(tmp_path / "a.duckdb", "docs"), where=where)] == ["1"]
    with pytest.raises(InputError, match="writer"):
        search(tables.DuckDBTable(tmp_path / "a.duckdb", "docs"), where={"writer.name": "Ann"})


def test_qdrant_ids_and_filters_in_nested_metadata() -> None:
    qdrant = pytest.importorskip("qdrant_client")
    client = qdrant.QdrantClient(":memory:")
    size = qdrant.models.VectorParams(size=len(embed("x")), distance=qdrant.models.Distance.COSINE)
    client.create_collection("docs", vectors_config={"dense": size})
    payload = {"page_content": "travel", "metadata": {"source": "a.txt", "n": 1}}
    point = qdrant.models.PointStruct(id=7, vector={"dense": embed("travel")}, payload=payload)
    client.upsert("docs", [point])
    for where in ({"n": 1}, {"metadata.n": 1}, None):
        store = tables.QdrantCollection("docs", client=client, embedder=EMBEDDER, id="source")
        assert [hit.id for hit in search(store, where=where)] == ["a.txt"]
    client.close()


def test_a_chroma_collection_without_documents_uses_its_metadata() -> None:
    chromadb = pytest.importorskip("chromadb")
    client = chromadb.EphemeralClient(chromadb.Settings(anonymized_telemetry=False))
    collection = client.create_collection("schemas", embedding_function=None)
    collection.add(ids=["1"], embeddings=[embed("travel")], metadatas=[{"title": "Travel costs", "n": 1}])
    (hit,) = search(tables.ChromaCollection(collection, embedder=EMBEDDER))
    assert hit.text == "Travel costs"
    client.delete_collection("schemas")


def test_lancedb_reads_dictionary_columns_and_scores_inner_products(tmp_path: Path) -> None:
    lancedb, arrow = pytest.importorskip("lancedb"), pytest.importorskip("pyarrow")
    vectors = arrow.array([embed("travel"), embed("lunch")], arrow.list_(arrow.float32(), len(embed("x"))))
    texts = arrow.array(["travel", "lunch"]).dictionary_encode()
    table = arrow.table({"id": ["a", "b"], "text": texts, "vector": vectors})
    lancedb.connect(tmp_path).create_table("docs", table)
    assert [hit.id for hit in search(tables.LanceDBTable(tmp_path, "docs"), where={"text": "travel"})] == ["a"]
    store = tables.LanceDBTable(tmp_path, "docs", embedder=EMBEDDER, mode="vector", distance="inner-product")
    assert [round(hit.score, 3) for hit in search(store)] == [1.0, 0.0]
