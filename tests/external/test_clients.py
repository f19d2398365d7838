"""Results made by the clients of other systems, which are installed only for these tests."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

import resift
from resift.external.candidates import read_hits
from tests.external.recorded import IDS, RESPONSES, SOURCES
from tests.external.test_results import TEXTS, ByWord

VECTORS = [[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]
ROWS = [{"id": i, **SOURCES[i], "vector": VECTORS[i]} for i in range(3)]


def check(documents: Any, *, ids: list[str] | None = None, best: object = None) -> None:
    """Rerank and fuse three results: the second document is the best one."""
    hits = read_hits(documents)
    assert [hit.text for hit in hits] == TEXTS
    if ids is not None:
        assert [hit.id for hit in hits] == ids
    if hits[0].score is not None:
        assert hits[0].score > hits[1].score > hits[2].score  # type: ignore[operator]
    ranking = resift.rerank("travel", documents, scorer=ByWord())
    assert ranking[0].text == TEXTS[1]
    assert ranking[0].metadata["views"] == 10
    assert not ranking.degraded
    fused = resift.fuse([documents, documents])
    assert [hit.text for hit in fused] == TEXTS
    if best is not None:
        assert ranking.originals()[0] is best
        assert fused.originals()[1] is best


def test_qdrant():
    client_module = pytest.importorskip("qdrant_client")
    models = client_module.models
    client = client_module.QdrantClient(":memory:")
    client.create_collection("docs", models.VectorParams(size=2, distance=models.Distance.COSINE))
    client.upsert(
        "docs", [models.PointStruct(id=i, vector=VECTORS[i], payload=source) for i, source in enumerate(SOURCES)]
    )
    response = client.query_points("docs", query=[1.0, 0.0], limit=3)
    check(response, ids=["0", "1", "2"], best=response.points[1])
    check(response.points, best=response.points[1])
    records, _ = client.scroll("docs")
    check(records, best=records[1])
    check(response.model_dump())
    client.close()


def test_chroma():
    chromadb = pytest.importorskip("chromadb")
    client = chromadb.EphemeralClient(chromadb.Settings(anonymized_telemetry=False))
    collection = client.create_collection("resift-results")
    collection.add(
        ids=IDS,
        embeddings=VECTORS,
        documents=TEXTS,
        metadatas=[{"title": source["title"], "views": source["views"]} for source in SOURCES],
    )
    check(collection.query(query_embeddings=[[1.0, 0.0]], n_results=3), ids=IDS)
    check(collection.get(), ids=IDS)


def test_langchain():
    documents = pytest.importorskip("langchain_core.documents")
    metadata = [{"title": source["title"], "views": source["views"]} for source in SOURCES]
    found = [documents.Document(page_content=text, metadata=each) for text, each in zip(TEXTS, metadata, strict=True)]
    check(found, best=found[1])
    pairs = list(zip(found, (0.1, 0.2, 0.3), strict=True))  # distances: the list is sorted upward
    check(pairs, best=pairs[1])
    check({"input": "travel", "context": found}, best=found[1])


def test_llama_index():
    schema = pytest.importorskip("llama_index.core.schema")
    nodes = [
        schema.TextNode(id_=id, text=text, metadata={"title": source["title"], "views": source["views"]})
        for id, text, source in zip(IDS, TEXTS, SOURCES, strict=True)
    ]
    check(nodes, ids=IDS, best=nodes[1])
    scored = [schema.NodeWithScore(node=node, score=score) for node, score in zip(nodes, (3, 2, 1), strict=True)]
    check(scored, ids=IDS, best=scored[1])
    check([node.to_dict() for node in scored], ids=IDS)
    responses = pytest.importorskip("llama_index.core.base.response.schema")
    check(responses.Response("an answer", source_nodes=scored), ids=IDS, best=scored[1])


def test_haystack():
    haystack = pytest.importorskip("haystack")
    found = [
        haystack.Document(id=id, content=text, meta={"title": source["title"], "views": source["views"]})
        for id, text, source in zip(IDS, TEXTS, SOURCES, strict=True)
    ]
    check(found, ids=IDS, best=found[1])
    check({"documents": found}, ids=IDS, best=found[1])
    check([document.to_dict(flatten=False) for document in found], ids=IDS)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_empty_cells_of_a_table_are_left_out_and_dates_become_text(library):
    """The same columns give the same hits, whichever library holds them."""
    columns = {
        "id": ["a", "b"],
        "text": ["Travel costs are signed off.", "Lunch is served from noon."],
        "price": [1.5, None],
        "day": [dt.date(2026, 1, 2), None],
        "photo": [b"x", None],
        "tags": [["x", "y"], None],
    }
    module = pytest.importorskip(library)
    table = module.table(columns) if library == "pyarrow" else module.DataFrame(columns)
    first, second = read_hits(table)
    assert first.metadata == {"price": 1.5, "day": "2026-01-02", "tags": ["x", "y"]}
    assert second.metadata == {}
    assert second.original == {"id": "b", "text": "Lunch is served from noon."}


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_tables(library):
    module = pytest.importorskip(library)
    table = module.Table.from_pylist(ROWS) if library == "pyarrow" else module.DataFrame(ROWS)
    check(table, ids=["0", "1", "2"])


def test_duckdb():
    duckdb = pytest.importorskip("duckdb")
    database = duckdb.connect()
    database.execute("create table docs (id integer, title text, body text, views integer)")
    rows = [(row["id"], row["title"], row["body"], row["views"]) for row in ROWS]
    database.executemany("insert into docs values (?, ?, ?, ?)", rows)
    ranking = resift.rerank("travel", database.execute("select * from docs"), scorer=ByWord())
    assert ranking[0].text == TEXTS[1]
    check(database.table("docs"), ids=["0", "1", "2"])
    check(database.table("docs").df())
    check(database.table("docs").to_arrow_table())


def test_lancedb(tmp_path):
    lancedb = pytest.importorskip("lancedb")
    table = lancedb.connect(tmp_path).create_table("docs", ROWS)
    found = table.search([1.0, 0.0]).limit(3)
    check(found.to_list(), ids=["0", "1", "2"])
    check(found.to_arrow())
    check(found.to_pandas())


def test_sqlalchemy():
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine("sqlite://")
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text("create table docs (id text, title text, body text, views int)"))
        insert = sqlalchemy.text("insert into docs values (:id, :title, :body, :views)")
        connection.execute(insert, [{"id": id, **source} for id, source in zip(IDS, SOURCES, strict=True)])
        select = sqlalchemy.text("select * from docs")
        ranking = resift.rerank("travel", connection.execute(select), scorer=ByWord())
        assert ranking.ids[0] == "d2"
        rows = connection.execute(select).all()
        check(rows, ids=IDS, best=rows[1])
        check(connection.execute(select).mappings().all(), ids=IDS)


def test_elasticsearch_response():
    elastic = pytest.importorskip("elastic_transport")
    response = elastic.ObjectApiResponse(body=RESPONSES["elasticsearch"], meta=None)
    check(response, ids=IDS, best=RESPONSES["elasticsearch"]["hits"]["hits"][1])


def test_openai_vector_store():
    types = pytest.importorskip("openai.types")
    pagination = pytest.importorskip("openai.pagination")
    found = [types.VectorStoreSearchResponse.model_validate(row) for row in RESPONSES["openai"]["data"]]
    check(found, ids=IDS, best=found[1])
    page = pagination.SyncPage(data=found, object="page")
    check(page, ids=IDS, best=found[1])


class Plain:
    """An object with attributes, as the clients of Weaviate and Pinecone return."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


def test_objects_as_the_documentation_describes_them():
    scores = (3.0, 2.0, 1.0)
    rows = list(zip(IDS, SOURCES, scores, strict=True))
    weaviate = [Plain(uuid=id, properties=own, metadata=Plain(score=score)) for id, own, score in rows]
    check(Plain(objects=weaviate), ids=IDS, best=weaviate[1])
    far = [Plain(uuid=id, properties=own, metadata=Plain(distance=-score)) for id, own, score in rows]
    check(far, ids=IDS, best=far[1])
    pinecone = [Plain(id=id, score=score, values=[], metadata=own) for id, own, score in rows]
    check(Plain(matches=pinecone, namespace=""), ids=IDS, best=pinecone[1])
    milvus = [Plain(id=id, distance=score, entity=own) for id, own, score in rows]
    check([milvus], ids=IDS, best=milvus[1])
