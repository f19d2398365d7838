"""One file over four real engines: SQLite, LanceDB, Qdrant and Ladybug."""

from __future__ import annotations

import asyncio
import json

import pytest

from resift.pipeline import Pipeline
from resift.stores import SQLiteStore

DOCUMENTS = [
    {"id": "d0", "text": "The breaker opens after three failures."},
    {"id": "d1", "text": "A cross-encoder reads the question and the passage together."},
    {"id": "d2", "text": "Reciprocal rank fusion adds up one over sixty plus the rank."},
]

FILE = """\
stores:
  - {name: docs, kind: sqlite, path: docs.db}
  - {name: lance, kind: lancedb, uri: lance, mode: hybrid, embedder: BAAI/bge-small-en-v1.5}
  - {name: points, kind: qdrant, path: qdrant, embedder: BAAI/bge-small-en-v1.5}
  - name: graph
    kind: ladybug
    path: graph.lbug
    cypher: MATCH (d:Doc) WHERE d.text CONTAINS $query RETURN d.id AS id, d.text AS text ORDER BY d.id
rerank: {kind: cross-encoder, depth: 10}
"""


def fill_graph(path) -> None:
    ladybug = pytest.importorskip("ladybug", reason="needs resift[graph]")
    database = ladybug.Database(str(path))
    connection = ladybug.Connection(database)
    connection.execute("CREATE NODE TABLE Doc(id STRING PRIMARY KEY, text STRING)")
    for row in DOCUMENTS:
        connection.execute("CREATE (:Doc {id: $id, text: $text})", row)
    connection.close()
    database.close()


async def fill_stores(folder) -> None:
    from resift.models.embedder import Embedder
    from resift.stores.lancedb import LanceDBVectorStore
    from resift.stores.qdrant import QdrantVectorStore

    embedder = Embedder()
    for store in (
        SQLiteStore(folder / "docs.db", embedder=embedder, create=True),
        LanceDBVectorStore(folder / "lance", embedder=embedder, mode="hybrid"),
        QdrantVectorStore(path=folder / "qdrant", embedder=embedder),
    ):
        await store.add(DOCUMENTS)
        await store.close()


def answered(file) -> tuple[Pipeline, dict]:
    async def work():
        pipe = Pipeline.from_yaml(file)
        try:
            return pipe, await pipe.search("breaker", deadline_s=20)
        finally:
            await pipe.close()

    pipe, ranking = asyncio.run(work())
    data = ranking.to_dict()
    return pipe, data


@pytest.mark.real_model
@pytest.mark.slow
def test_four_engines_from_one_file_give_one_list(tmp_path):
    """Every engine answers, the best hit is in all five lists, a second run is identical."""
    for module in ("lancedb", "qdrant_client", "tokenizers"):
        pytest.importorskip(module, reason="needs the extras of the engines")
    fill_graph(tmp_path / "graph.lbug")
    asyncio.run(fill_stores(tmp_path))
    file = tmp_path / "pipeline.yaml"
    file.write_text(FILE, encoding="utf-8")
    pipe, first = answered(file)
    assert pipe.requires == ("db.docs:read", "db.lance:read", "db.points:read", "db.graph:read")
    assert (first["failures"], first["degraded"]) == ({}, False)
    assert first["hits"][0]["id"] == "d0"
    found_by = [
        record["source"]
        for record in first["trace"]
        if record["kind"] == "retrieve" and first["hits"][0]["id"] in record["ids"]
    ]
    assert found_by == ["docs.text", "docs.vectors", "lance", "points", "graph"]
    assert json.dumps(answered(file)[1], sort_keys=True) == json.dumps(first, sort_keys=True)
