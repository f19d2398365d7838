"""Tables and collections of other programs, each filled by its own client, and the store that searches it.

`SYSTEMS` is name -> context manager that yields an `Opened`. The documents are the same everywhere.
"""

# ruff: noqa: E501 - rows and shapes read best on one line
from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from resift.stores.filters import matches
from resift.text import words
from tests.stores.factories import HashingEmbedder

DOCUMENTS: list[dict[str, Any]] = [
    {"nr": 1, "headline": "Parking", "body": "Cars are parked behind the building.", "topic": "site", "price": 2.5, "year": 2021, "active": True},
    {"nr": 2, "headline": "Travel", "body": "Travel costs are signed off by the head of department.", "topic": "money", "price": 10.0, "year": 2022, "active": True},
    {"nr": 3, "headline": "Lunch", "body": "Lunch is served from noon, also to guests who travel.", "topic": "food", "price": 7.25, "year": 2023, "active": False},
    {"nr": 4, "headline": "O'Brien's \"50%_off\" week", "body": "Travel bags cost half; see C:\\deals; ask O'Brien.", "topic": "it's", "price": 5.0, "year": 2023, "active": True},
    {"nr": 5, "headline": "Books", "body": "Books go back after four weeks.", "topic": "Food", "price": 0.0, "year": 2019, "active": False},
]  # fmt: skip
TEXTS = [f"{row['headline']} {row['body']}" for row in DOCUMENTS]
EMBEDDER = HashingEmbedder()
VECTORS = [[float(x) for x in row] for row in asyncio.run(EMBEDDER.embed(TEXTS, kind="document"))]
FIELDS = ["headline", "body"]


@dataclass
class Opened:
    """A filled table: a function that opens a store over it, and one that reads its present content."""

    make: Callable[..., Any]
    snapshot: Callable[[], Any]
    has_booleans: bool = True
    vector: dict[str, Any] | None = None
    """Arguments for vector search; None if the system has none."""
    store: Any = None
    """One store over the table, with `fields=FIELDS`, for tests that need no other."""


def _columns(kind: dict[type, str]) -> str:
    names = {name: kind[type(value)] for name, value in DOCUMENTS[0].items()}
    return ", ".join(f"{name} {column}{' PRIMARY KEY' if name == 'nr' else ''}" for name, column in names.items())


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@contextlib.contextmanager
def sqlite_table(folder: Path, *, fts: bool = False) -> Iterator[Opened]:
    from resift.stores.tables import SQLiteTable

    path = folder / "library.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        kinds = {int: "INTEGER", str: "TEXT", float: "REAL", bool: "BOOLEAN"}
        connection.execute(f"CREATE TABLE articles ({_columns(kinds)})")
        connection.executemany("INSERT INTO articles VALUES (?,?,?,?,?,?,?)", [tuple(r.values()) for r in DOCUMENTS])
        if fts:
            connection.execute(
                "CREATE VIRTUAL TABLE articles_fts USING fts5(headline, body, content='articles', content_rowid='nr')"
            )
            connection.execute("INSERT INTO articles_fts(articles_fts) VALUES ('rebuild')")
    yield Opened(lambda **options: SQLiteTable(path, "articles", **options), lambda: _files(folder))


def sqlite_fts(folder: Path) -> AbstractContextManager[Opened]:
    return sqlite_table(folder, fts=True)


@contextlib.contextmanager
def duckdb_table(folder: Path) -> Iterator[Opened]:
    duckdb = pytest.importorskip("duckdb")
    from resift.stores.tables import DuckDBTable

    path = folder / "library.duckdb"
    with duckdb.connect(str(path)) as connection:
        kinds = {int: "INTEGER", str: "VARCHAR", float: "DOUBLE", bool: "BOOLEAN"}
        connection.execute(f"CREATE TABLE articles ({_columns(kinds)}, embedding FLOAT[64])")
        rows = [[*row.values(), vector] for row, vector in zip(DOCUMENTS, VECTORS, strict=True)]
        connection.executemany("INSERT INTO articles VALUES (?,?,?,?,?,?,?,?)", rows)
    yield Opened(lambda **options: DuckDBTable(path, "articles", **options), lambda: _files(folder), vector={})


@contextlib.contextmanager
def postgres_table(_folder: Path) -> Iterator[Opened]:
    psycopg = pytest.importorskip("psycopg")
    from resift.stores.tables import PostgresTable
    from tests.stores.postgres_server import dsn, fresh_table

    table = fresh_table()
    kinds = {int: "bigint", str: "text", float: "double precision", bool: "boolean"}
    with psycopg.connect(dsn(), autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        connection.execute(
            f"CREATE TABLE {table} ({_columns(kinds)}, embedding vector(64), search tsvector "
            "GENERATED ALWAYS AS (to_tsvector('english', headline || ' ' || body)) STORED)"
        )
        with connection.cursor() as cursor:
            columns = ", ".join(DOCUMENTS[0])
            cursor.executemany(
                f"INSERT INTO {table} ({columns}, embedding) VALUES (%s,%s,%s,%s,%s,%s,%s,%s)",
                [[*row.values(), str(vector)] for row, vector in zip(DOCUMENTS, VECTORS, strict=True)],
            )

        def snapshot() -> Any:
            return connection.execute(f"SELECT * FROM {table} ORDER BY nr").fetchall(), connection.execute(
                "SELECT count(*) FROM pg_class"
            ).fetchone()

        yield Opened(lambda **options: PostgresTable(dsn(), table, **options), snapshot, vector={})
        connection.execute(f"DROP TABLE {table}")


@contextlib.contextmanager
def lancedb_table(folder: Path, *, fts: bool = False) -> Iterator[Opened]:
    lancedb = pytest.importorskip("lancedb")
    import pyarrow

    from resift.stores.tables import LanceDBTable

    rows = [{**row, "embedding": vector} for row, vector in zip(DOCUMENTS, VECTORS, strict=True)]
    table = pyarrow.Table.from_pylist(rows).drop_columns(["embedding"])
    vectors = pyarrow.array(VECTORS, pyarrow.list_(pyarrow.float32(), 64))
    made = lancedb.connect(folder / "lance").create_table("articles", table.append_column("embedding", vectors))
    if fts:
        made.create_index("body", config=lancedb.index.FTS())
    yield Opened(
        lambda **options: LanceDBTable(folder / "lance", "articles", **{"id": "nr", **options}),
        lambda: _files(folder),
        vector={},
    )


def lancedb_fts(folder: Path) -> AbstractContextManager[Opened]:
    return lancedb_table(folder, fts=True)


@contextlib.contextmanager
def qdrant_collection(_folder: Path) -> Iterator[Opened]:
    qdrant = pytest.importorskip("qdrant_client")
    from resift.stores.tables import QdrantCollection

    models = qdrant.models
    client = qdrant.QdrantClient(":memory:")
    config = {"dense": models.VectorParams(size=64, distance=models.Distance.COSINE)}
    client.create_collection("articles", vectors_config=config)
    points = [
        models.PointStruct(id=row["nr"], vector={"dense": vector}, payload=row)
        for row, vector in zip(DOCUMENTS, VECTORS, strict=True)
    ]
    client.upsert("articles", points)

    def snapshot() -> Any:
        return client.scroll("articles", limit=100, with_vectors=True), client.get_collections()

    yield Opened(
        lambda **options: QdrantCollection("articles", client=client, **{"id": "nr", **options}),
        snapshot,
        vector={"vector": "dense"},
    )
    client.close()


@contextlib.contextmanager
def chroma_collection(_folder: Path) -> Iterator[Opened]:
    chromadb = pytest.importorskip("chromadb")
    from resift.stores.tables import ChromaCollection

    client = chromadb.EphemeralClient(chromadb.Settings(anonymized_telemetry=False))
    collection = client.create_collection(f"articles{id(_folder)}", embedding_function=None)
    collection.add(
        ids=[str(row["nr"]) for row in DOCUMENTS],
        documents=[row["body"] for row in DOCUMENTS],
        embeddings=VECTORS,
        metadatas=[{name: value for name, value in row.items() if name != "body"} for row in DOCUMENTS],
    )

    def make(**options: Any) -> Any:
        fields = [name.replace("body", "document") for name in options.pop("fields", FIELDS)]
        mode = {} if "embedder" in options else {"mode": "text"}
        return ChromaCollection(collection, name="chroma", fields=fields, **{**mode, **options})

    yield Opened(make, collection.get, vector={})
    client.delete_collection(collection.name)


class SearchServer(BaseHTTPRequestHandler):
    """Speaks the wire format of `_mapping` and `_search`; one switch per fault.

    The answer of `_search` has the shape that the public guide of Elasticsearch shows. Mappings and the kNN
    bodies of both engines are written from memory; no server ran here.
    """

    fault: ClassVar[str] = ""
    vector_type: ClassVar[str] = "dense_vector"
    seen: ClassVar[list[dict[str, Any]]] = []

    def do_GET(self) -> None:
        keyword = {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}}
        size = {"dims": 64} if self.vector_type == "dense_vector" else {"dimension": 64}
        properties = {
            "nr": {"type": "long"}, "headline": keyword, "body": {"type": "text"}, "topic": {"type": "keyword"},
            "price": {"type": "double"}, "year": {"type": "integer"}, "active": {"type": "boolean"},
            "embedding": {"type": self.vector_type, **size},
        }  # fmt: skip
        if not self.path.startswith("/articles/"):
            return self._send(404, {"error": {"type": "index_not_found_exception"}, "status": 404})
        return self._send(200, {"articles": {"mappings": {"properties": properties}}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append(body)
        if self.fault.isdigit():
            return self._send(int(self.fault), {"error": {"reason": "secret document"}})
        if self.fault == "broken json":
            return self._send(200, b'{"hits": {"hits": [')
        if self.fault == "no hits":
            return self._send(200, {"took": 1})
        scores = {i: self._score(i, body) for i in range(len(DOCUMENTS))}
        best = sorted((i for i in scores if scores[i] > 0), key=lambda i: (-scores[i], i))[: body["size"]]
        hits = [
            {"_index": "articles", "_id": f"a{DOCUMENTS[i]['nr']}", "_score": scores[i], "_source": DOCUMENTS[i]}
            for i in best
        ]
        total = {"value": len(hits), "relation": "eq"}
        failed = 1 if self.fault == "shards" else 0
        return self._send(
            200,
            {
                "took": 3,
                "timed_out": self.fault == "timed out",
                "_shards": {"total": 2, "successful": 2 - failed, "skipped": 0, "failed": failed},
                "hits": {"total": total, "max_score": max(scores.values()), "hits": hits},
            },
        )

    def _score(self, i: int, body: dict[str, Any]) -> float:
        if "knn" in body:
            knn = body["knn"]
            if not all(self._passes(i, clause) for clause in knn.get("filter", [])):
                return 0.0
            return 1 + sum(a * b for a, b in zip(knn["query_vector"], VECTORS[i], strict=True))
        return self._query(i, body["query"])

    def _query(self, i: int, query: dict[str, Any]) -> float:
        [(kind, about)] = query.items()
        if kind == "bool":
            if not all(self._passes(i, clause) for clause in about.get("filter", [])):
                return 0.0
            return sum(self._query(i, part) for part in about["must"])
        if kind == "knn":
            [(_, asked)] = about.items()
            clauses = asked.get("filter", {}).get("bool", {}).get("filter", [])
            if not all(self._passes(i, clause) for clause in clauses):
                return 0.0
            return 1 + sum(a * b for a, b in zip(asked["vector"], VECTORS[i], strict=True))
        names = about.get("fields") or list(about)
        text = about["query"] if "query" in about else about[names[0]]
        found = set(words(text)) & {w for n in names for w in words(DOCUMENTS[i][n.partition("^")[0]])}
        return float(len(found))

    def _passes(self, i: int, clause: dict[str, Any]) -> bool:
        [(kind, about)] = clause.items()
        if kind == "bool":
            if "should" in about:
                return any(self._passes(i, part) for part in about["should"])
            return all(self._passes(i, part) for part in about["filter"])
        if kind == "match_none":
            return False
        [(field, value)] = about.items()
        if kind == "terms":
            return matches(DOCUMENTS[i], {field: {"=": value}})
        names = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
        return matches(DOCUMENTS[i], {field: {names[name]: limit for name, limit in value.items()}})

    def _send(self, status: int, answer: Any) -> None:
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("X-Elastic-Product", "Elasticsearch")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        return


@contextlib.contextmanager
def search_server() -> Iterator[str]:
    """Yield the address of a server that answers as Elasticsearch and OpenSearch do."""
    SearchServer.fault, SearchServer.vector_type, SearchServer.seen = "", "dense_vector", []
    server = ThreadingHTTPServer(("127.0.0.1", 0), SearchServer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@contextlib.contextmanager
def elasticsearch_index(_folder: Path) -> Iterator[Opened]:
    pytest.importorskip("httpx")
    from resift.stores.tables import ElasticsearchQuery

    with search_server() as url:
        yield Opened(
            lambda **options: ElasticsearchQuery("articles", url=url, **{"id": "nr", **options}),
            lambda: None,
            vector={},
        )


@contextlib.contextmanager
def sql_statement(folder: Path) -> Iterator[Opened]:
    alchemy = pytest.importorskip("sqlalchemy")
    from resift.stores.tables import SQLStatement

    with sqlite_table(folder, fts=True) as opened:
        engine = alchemy.create_engine(f"sqlite:///{folder / 'library.db'}")
        statement = (
            "SELECT *, 1.0 / (length(body)) AS score FROM articles WHERE "
            "instr(lower(headline || ' ' || body), lower(substr(:query, 1, 6))) > 0 ORDER BY score DESC LIMIT :k"
        )
        yield Opened(
            lambda **options: SQLStatement(engine, statement, **{"id": "nr", **options}),
            opened.snapshot,
            has_booleans=False,
        )
        engine.dispose()
        engine.dispose()


SYSTEMS: dict[str, Callable[[Path], AbstractContextManager[Opened]]] = {
    "sqlite": sqlite_table,
    "sqlite fts5": sqlite_fts,
    "duckdb": duckdb_table,
    "postgres": postgres_table,
    "lancedb": lancedb_table,
    "lancedb fts": lancedb_fts,
    "qdrant": qdrant_collection,
    "chroma": chroma_collection,
    "elasticsearch": elasticsearch_index,
    "statement": sql_statement,
}

FILTERS: list[dict[str, Any]] = [
    {"topic": "food"},
    {"topic": ["food", "site"]},
    {"topic": "it's"},
    {"topic": "f*"},
    {"topic": {"!=": "food"}},
    {"year": 2023},
    {"year": 2023.0},
    {"year": "2023"},
    {"year": {">": 2021, "<=": 2023}},
    {"price": {">=": 5}},
    {"price": 7.25},
    {"price": {"<": 2.5}},
    {"active": True},
    {"active": 1},
    {"active": False, "year": {"<": 2023}},
    {"headline": "O'Brien's \"50%_off\" week"},
    {"headline": {">": "L"}},
    {"or": [{"topic": "food"}, {"price": 10}]},
    {"or": [{"topic": "f*"}, {"year": {"!=": 2023}}]},
    {"topic": []},
    {"year": 2**70},
    {"year": {"<": 2**70}},
    {"topic": "food\0"},
    {"topic": "\ud800"},
]
HOSTILE = [
    "'", '"', "';--", "' OR '1'='1", '" OR ""="', "'); DROP TABLE articles;--", "\\", "\\'", "\\\\' OR 1=1 --",
    "%", "_", "%s", "%(x)s", "?", ":query", "$1", "$query", "$k", "{query}", "${query}", "{{query}}", "\0", "a\0b",
    "\ud800", "\U0001f600", "\u202e", "\ufeff", "`", "``", "[", "]", "()", "(", ")", "*", "**", "!", "~", "^", "|",
    "&", "& |", "!!", ":*", "'a':*", "a:b", "headline:x", "NEAR(a b)", "a AND", "OR", "NOT a", "a* OR b*", '"a',
    "<->", "<2>", "@@", "/*", "*/", "--", "#", "\n", "\r\n", "\t", "1; SELECT pg_sleep(5)", "1 UNION SELECT 1",
    "x" * 5000, "1e999", "NaN", "-1", "null", "true", "{}", "[]", '{"$gt": ""}', "$where", "../../etc/passwd",
    "<script>", "0x41", "é" * 50, "日本語", "ß", "İ", "\x1b[31m", "a' COLLATE NOCASE --", "ESCAPE '!'", "!%", "!",
]  # fmt: skip
