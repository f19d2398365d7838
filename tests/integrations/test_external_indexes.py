"""Indexes of others as stores: Chroma, Elasticsearch and OpenSearch shapes, txtai; k, filters, failures."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

import resift
from resift._internal.sync import run_sync
from resift.deadline import Deadline
from resift.errors import InputError, ResiftError, StoreError
from resift.integrations.external_store import (
    ExternalStore,
    Fields,
    Found,
    chroma_store,
    elasticsearch_store,
)
from resift.integrations.txtai import ResiftSimilarity, txtai_store
from resift.testing import OverlapScorer
from resift.types import Hit, Scores
from tests.integrations.documents import QUERY, TEXTS
from tests.stores.factories import HashingEmbedder


def make_documents(count: int) -> list[Found]:
    return [Found(f"d{n:03}", f"text {n}", 1.0 / (1 + n // 2), {"rare": n == 90}) for n in range(count)]


async def hundred(_query: str, k: int) -> list[Found]:
    return make_documents(100)[:k]


def test_paths_of_0_2_still_work():
    with pytest.deprecated_call():
        from resift.integrations.chroma import chroma_store as chroma
    with pytest.deprecated_call():
        from resift.integrations.elasticsearch import elasticsearch_store as elasticsearch
    assert (chroma, elasticsearch) == (chroma_store, elasticsearch_store)


def test_a_store_over_an_index_keeps_the_contract():
    store = ExternalStore("mine", hundred)
    hits = run_sync(store.search("x", k=5))
    assert [hit.id for hit in hits] == ["d000", "d001", "d002", "d003", "d004"]
    assert all(hit.source == "mine" for hit in hits)
    assert run_sync(store.search("x", k=0)) == run_sync(store.search("  ", k=3)) == []
    for wrong in (-1, True, 2.5):
        with pytest.raises(InputError, match="integer"):
            run_sync(store.search("x", k=wrong))


def test_a_rare_filter_is_found_by_fetching_more():
    store = ExternalStore("mine", hundred)
    assert [hit.id for hit in run_sync(store.search("x", k=3, where={"rare": True}))] == ["d090"]


def test_a_filter_that_may_miss_documents_is_marked_approximate():
    """The index has more than is fetched of it, and too few of those passed."""

    async def endless(_query: str, k: int) -> list[Found]:
        return make_documents(k)

    ranking = resift.Pipeline(ExternalStore("mine", endless), k=2).rank("x", where={"rare": True})
    assert ranking.ids == ["d090"]
    assert "approximate" in ranking.trace[0].note


@pytest.mark.parametrize(
    ("about", "said"),
    [({"_shards": {"total": 5, "failed": 2}}, "2 of 5 shards"), ({"timed_out": True}, "part of its hits")],
)
def test_a_partial_answer_is_a_failure(about, said):
    class Client:
        def search(self, *, index: str, body: Any) -> Any:
            return {**about, "hits": {"hits": [{"_id": "a", "_score": 1.0, "_source": {"text": "t"}}]}}

    with pytest.raises(StoreError, match=said):
        run_sync(elasticsearch_store(Client(), "books").search("x", k=1))


@pytest.mark.parametrize("wrong", [{"mode": "vektor"}, {"engine": "solr"}, {"fields": {"text": "body"}}])
def test_unknown_modes_and_engines_are_refused(wrong):
    with pytest.raises(InputError, match="pass"):
        elasticsearch_store(object(), "books", embedder=HashingEmbedder(), **wrong)


def test_a_failing_index_is_skipped_after_three_errors():
    async def broken(_query: str, _k: int) -> list[Found]:
        raise RuntimeError("secret document")

    store = ExternalStore("mine", broken)
    for _ in range(3):
        with pytest.raises(StoreError, match="mine failed: RuntimeError") as raised:
            run_sync(store.search("x", k=1))
        assert "secret" not in str(raised.value)
    with pytest.raises(resift.ResiftError, match="open"):
        run_sync(store.search("x", k=1))


def plain(_query: str, k: int) -> list[Found]:
    return [Found(number, f"text {number}", None, {}) for number in range(k)]  # type: ignore[arg-type]


def dicts(_query: str, k: int) -> list[dict[str, Any]]:
    return [{"id": number, "text": f"text {number}", "score": 1.0} for number in range(k)]


class Client:
    async def __call__(self, _query: str, k: int) -> list[Hit]:
        return [Hit(str(number), f"text {number}") for number in range(k)]


@pytest.mark.parametrize("fetch", [plain, dicts, Client(), lambda *words: hundred(*words[:2])])
def test_plain_functions_dicts_hits_and_integer_ids_work(fetch):
    store = ExternalStore("mine", fetch)
    hits = run_sync(store.search("x", k=3))
    assert len(hits) == 3
    assert all(isinstance(hit.id, str) and hit.text and hit.source == "mine" for hit in hits)


def test_a_slow_plain_function_does_not_stop_the_event_loop():
    async def both() -> float:
        started = time.monotonic()
        stores = [ExternalStore(f"s{n}", lambda q, k: time.sleep(0.5) or plain(q, k)) for n in range(3)]
        await asyncio.gather(*(store.search("x", k=1) for store in stores))
        return time.monotonic() - started

    assert run_sync(both()) < 1.4


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda q, k: [{"id": "a"}["missing_column"]], "missing_column"),
        (lambda q, k: q.embed(), "embed"),
        (lambda q: [], "positional"),
        (lambda q, k: None, "None"),
        (lambda q, k: [object()], "object"),
    ],
)
def test_a_mistake_in_the_function_is_shown(wrong, message):
    with pytest.raises(resift.ResiftError, match=message):
        run_sync(ExternalStore("mine", wrong).search("x", k=1))


def test_fetch_must_be_callable():
    with pytest.raises(InputError):
        ExternalStore("mine", [])  # type: ignore[arg-type]


class Index(BaseHTTPRequestHandler):
    """Speaks the `_search` shape of Elasticsearch: words count, vectors by their dot product."""

    documents: ClassVar[dict[str, dict[str, Any]]] = {}
    seen: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append(body)
        scores: dict[str, float] = {}
        for query in _queries(body):
            for id, score in self._scores(query).items():
                scores[id] = scores.get(id, 0.0) + score
        hits = [
            {
                "_id": id,
                "_score": score,
                "_source": {key: value for key, value in self.documents[id].items() if key != "embedding"},
            }
            for id, score in sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))
        ][: body["size"]]
        answer = json.dumps({"took": 1, "hits": {"total": {"value": len(hits)}, "hits": hits}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("X-Elastic-Product", "Elasticsearch")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _scores(self, query: dict[str, Any]) -> dict[str, float]:
        if "match" in query:
            [(field, asked)] = query["match"].items()
            words = set(asked["query"].lower().split())
            counts = {
                id: float(len(words & set(one[field].lower().split()))) for id, one in self.documents.items()
            }
            return {id: count for id, count in counts.items() if count}
        field, vector = query["field"], query["query_vector"]
        return {
            id: sum(a * b for a, b in zip(vector, one[field], strict=True))
            for id, one in self.documents.items()
        }

    def log_message(self, *_: Any) -> None:
        return


def _queries(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "knn" in body:
        yield body["knn"]
    query = body.get("query", {})
    if "match" in query:
        yield query
    for one in [query, *query.get("bool", {}).get("should", [])]:
        if "knn" in one:
            [(field, asked)] = one["knn"].items()
            yield {"field": field, "query_vector": asked["vector"]}
        elif "match" in one and one is not query:
            yield one


@pytest.fixture
def address() -> Iterator[str]:
    embedder = HashingEmbedder()
    vectors = asyncio.run(embedder.embed(TEXTS, kind="document"))
    Index.documents = {
        f"d{at}": {"text": text, "embedding": [float(x) for x in vectors[at]], "metadata": {"page": at}}
        for at, text in enumerate(TEXTS)
    }
    Index.seen = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Index)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("mode", ["text", "vector", "hybrid"])
@pytest.mark.parametrize("engine", ["elasticsearch", "opensearch"])
def test_elasticsearch_and_opensearch_over_http(address, mode, engine):
    """The official client against a server that speaks its shape: words, vectors and both."""
    elasticsearch = pytest.importorskip("elasticsearch")
    client = elasticsearch.Elasticsearch(address)
    embedder = None if mode == "text" else HashingEmbedder()
    store = elasticsearch_store(client, "books", mode=mode, embedder=embedder, engine=engine)
    hits = run_sync(store.search("late returns cost twenty", k=2))
    assert hits[0].id == "d1"
    assert hits[0].text == TEXTS[1]
    assert run_sync(store.search("late returns", k=1, where={"page": 2}))[0].id == "d2"
    assert Index.seen[0]["size"] == 2
    client.close()


def test_the_async_client_is_awaited(address):
    elasticsearch = pytest.importorskip("elasticsearch")
    pytest.importorskip("aiohttp")

    async def search() -> list[str]:
        async with elasticsearch.AsyncElasticsearch(address) as client:
            found = await elasticsearch_store(client, "books").search("late returns", k=1)
            return [hit.id for hit in found]

    assert asyncio.run(search()) == ["d1"]


def test_a_missing_embedder_is_an_error(address):
    elasticsearch = pytest.importorskip("elasticsearch")
    with elasticsearch.Elasticsearch(address) as client:
        with pytest.raises(InputError, match="needs the embedder"):
            elasticsearch_store(client, "books", mode="hybrid")
        store = elasticsearch_store(client, "books", fields=Fields(metadata="nowhere"))
        assert run_sync(store.search("late returns", k=1))[0].metadata == {}


def test_a_chroma_collection_is_a_store():
    chromadb = pytest.importorskip("chromadb")
    embedder = HashingEmbedder()

    class Function(chromadb.EmbeddingFunction):
        def __init__(self) -> None:
            return

        @staticmethod
        def name() -> str:
            return "words"

        def get_config(self) -> dict[str, Any]:
            return {}

        @staticmethod
        def build_from_config(config: dict[str, Any]) -> Any:
            return Function()

        def __call__(self, input: list[str]) -> Any:
            return list(asyncio.run(embedder.embed(input, kind="document")))

    client = chromadb.EphemeralClient(chromadb.Settings(anonymized_telemetry=False))
    collection = client.create_collection("books", embedding_function=Function())
    collection.add(ids=["a", "b", "c"], documents=TEXTS, metadatas=[{"page": n} for n in range(3)])
    store = chroma_store(collection)
    hits = run_sync(store.search("Late returns cost twenty cents a day.", k=2))
    assert (hits[0].id, hits[0].source, hits[0].metadata["page"]) == ("b", "chroma.books", 1)
    assert [hit.id for hit in run_sync(store.search("late", k=3, where={"page": 2}))] == ["c"]
    with pytest.raises(InputError, match="get_collection"):
        chroma_store("books")


class TxtaiIndex:
    """Answers as txtai's Embeddings does."""

    def search(self, query: str, limit: int) -> list[Any]:
        rows = [
            {"id": f"t{at}", "text": text, "score": 0.9 - at / 10, "page": at}
            for at, text in enumerate(TEXTS)
        ]
        return rows[:limit] if query != "bare" else [(7, 0.5)][:limit]


def test_a_txtai_index_is_a_store():
    store = txtai_store(TxtaiIndex())
    assert [(hit.id, hit.score) for hit in run_sync(store.search("x", k=2))] == [("t0", 0.9), ("t1", 0.8)]
    assert run_sync(store.search("bare", k=2))[0].id == "7"
    assert run_sync(store.search("x", k=2, where={"page": 2}))[0].id == "t2"


def test_the_similarity_has_txtais_shape():
    similarity = ResiftSimilarity(scorer=OverlapScorer("overlap"))
    pairs = similarity(QUERY, TEXTS)
    assert [at for at, _ in pairs] == [1, 2, 0]
    assert similarity([QUERY, "lunch"], TEXTS) == [pairs, similarity("lunch", TEXTS)]
    assert similarity(QUERY, [(at, text, None) for at, text in enumerate(TEXTS)]) == pairs
    assert similarity(QUERY, []) == []


class EveryOtherScorer(OverlapScorer):
    """Scores every second hit, as a scorer does whose deadline passes."""

    async def score(self, query: str, hits: Sequence[Hit], *, deadline: Deadline) -> Scores:
        scores = await super().score(query, hits, deadline=deadline)
        return replace(scores, values=[None if at % 2 else -1.0 - at for at in range(len(hits))])


def test_the_similarity_raises_if_its_scorer_fails():
    with pytest.raises(ResiftError, match="mine failed"):
        ResiftSimilarity(scorer=OverlapScorer("mine", fails=True))(QUERY, TEXTS)
    assert ResiftSimilarity(scorer=EveryOtherScorer("half"))(QUERY, TEXTS) == [
        (0, -1.0),
        (2, -3.0),
        (1, -3.0),
    ]
