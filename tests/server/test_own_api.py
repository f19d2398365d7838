"""Our own API: search over an index or given documents, fusion, explanation, and its description."""

from __future__ import annotations

import asyncio
import json

import pytest

import resift
from resift.server import ServerOptions, serve_app
from resift.stores.sqlite import SQLiteStore
from resift.testing import OverlapScorer
from tests.server.process import real, start
from tests.server.stub_server import StubEmbedder

DOCUMENTS = [
    {"id": "fox", "text": "the red fox runs", "metadata": {"kind": "animal"}},
    {"id": "whale", "text": "a blue whale", "metadata": {"kind": "animal"}},
    {"id": "apple", "text": "a red apple", "metadata": {"kind": "fruit"}},
]


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    file = tmp_path_factory.mktemp("index") / "docs.db"

    async def fill():
        store = SQLiteStore(file, create=True)
        await store.add(DOCUMENTS)
        await store.close()

    asyncio.run(fill())
    return file


@pytest.fixture(scope="module")
def server(index):
    server = start("--store", str(index))
    yield server
    assert server.stop() == 0


def ids(answer):
    return [hit["id"] for hit in answer.json()["hits"]]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/search", {"query": "red fox"}),
        ("/v1/search", {"query": "red fox", "documents": ["the red fox runs"]}),
        ("/v1/ask", {"question": "what runs?"}),
    ],
)
@pytest.mark.parametrize("milliseconds", [0, 1])
def test_a_deadline_that_is_too_short_is_told_and_no_failure(server, path, body, milliseconds):
    """Nothing is found in no time: an answer that says so, and not an error of the server."""
    answer = server.post(path, {**body, "deadline_ms": milliseconds})
    assert answer.status == 200, answer.body
    assert milliseconds or "x-resift-degraded" in answer.headers


def test_search_over_an_index(server):
    """Words find, the scorer orders, `where` filters, k cuts."""
    assert ids(server.post("/v1/search", {"query": "red fox"})) == ["fox", "apple"]
    assert ids(server.post("/v1/search", {"query": "red fox", "where": {"kind": "fruit"}})) == ["apple"]
    assert ids(server.post("/v1/search", {"query": "red fox", "where": {"kind": ["fruit", "animal"]}, "k": 1})) == [
        "fox"
    ]
    plain = server.post("/v1/search", {"query": "red"}).json()["hits"][0]
    assert set(plain) == {"id", "text", "score", "relevance", "source", "metadata"}
    assert 0 <= plain["relevance"] <= 1


def test_search_returns_a_context(server):
    """With context: text for a prompt within its budget; pruned if asked; wrong options are named."""

    def post(**options):
        return server.post("/v1/search", {"query": "red fox", "context": options})

    context = post(max_tokens=100).json()["context"]
    assert context["text"] == "[1] fox\nthe red fox runs\n\n[2] apple\na red apple"
    assert [source["id"] for source in context["sources"]] == ["fox", "apple"]
    assert context["text"][slice(*(context["sources"][1][key] for key in ("start", "end")))] == "a red apple"
    short = post(max_tokens=12, neighbors=0, prune=True).json()["context"]
    assert (short["text"], short["dropped"]) == ("[1] fox\nthe red fox runs", ["apple"])
    assert "context" not in server.post("/v1/search", {"query": "red fox"}).json()
    for wrong in ({"max_tokens": 0}, {"neighbors": 21}, {"prune": "yes"}, {"budget": 9}):
        answer = post(**wrong)
        assert answer.status in (400, 422)
        assert next(iter(wrong)) in answer.body.decode()


def test_search_explains(server):
    """With explain: the reasons and the picture; the answer can be explained again."""
    answer = server.post("/v1/search", {"query": "red fox", "explain": True}).json()
    assert "1st of 2" in answer["why"]["fox"]
    assert answer["flow"]["wide"].startswith("<svg")
    ranking = {**answer, "candidates": 2, "warnings": ["No document has the key 'colour'."]}
    again = server.post("/v1/explain", {"ranking": ranking, "query": "red fox", "id": "fox"})
    assert again.status == 200, again.body
    assert "1st of 2" in again.json()["why"]["fox"]
    assert again.json()["svg"].startswith("<svg")
    assert again.json()["notes"] == []
    assert server.post("/v1/explain", {"ranking": {"hits": 3}}).status == 400
    broken = server.post("/v1/explain", {"ranking": {"hits": [{"id": "a"}], "trace": [{"kind": "magic"}]}})
    assert broken.status == 200
    assert "trace was ignored" in broken.json()["notes"][0]


def test_ask_answers_from_the_index_or_says_that_it_cannot(server):
    """Sentences of the sources word for word, with their numbers."""
    answer = server.post("/v1/ask", {"question": "the red fox runs"}).json()
    assert answer["extractive"] is answer["found"]
    assert answer["found"] is True
    assert "the red fox runs" in answer["answer"]
    assert answer["sources"][0]["id"] == "fox"
    nothing = server.post("/v1/ask", {"question": "zzz qqq"}).json()
    assert (nothing["found"], nothing["sources"]) == (False, [])


def test_ask_without_anything_to_answer_from(stub):
    """404 with what is missing."""
    answer = stub.post("/v1/ask", {"question": "fox"})
    assert (answer.status, "--pack" in answer.json()["message"]) == (404, True)


def test_search_over_documents_of_the_request(server):
    """Pasted documents are searched by words and by meaning, with the settings that are given."""
    body = {"query": "red fox", "documents": [row["text"] for row in DOCUMENTS]}
    assert ids(server.post("/v1/search", body))[0] == "0"
    settings = {"fusion": "borda", "reranker": "none"}
    answer = server.post("/v1/search", {**body, "settings": settings}).json()
    assert answer["tier"] is None
    assert "x-resift-tier" not in server.post("/v1/search", {**body, "settings": settings}).headers
    twins = [{"id": "a", "text": "red"}, {"id": "a", "text": "fox"}]
    assert sorted(ids(server.post("/v1/search", {"query": "red fox", "documents": twins}))) == ["a", "a #2"]
    for year in (2023, 2024):
        # The same texts with other facts are other documents.
        dated = [{"id": "a", "text": "red fox", "metadata": {"year": year}}]
        answer = server.post("/v1/search", {"query": "red fox", "documents": dated, "where": {"year": year}})
        assert ids(answer) == ["a"]
    assert server.post("/v1/search", {**body, "settings": {"fusion": "guess"}}).status == 400
    assert server.post("/v1/search", {"query": "  "}).status == 400
    assert server.post("/v1/search", {"query": "x", "surprise": 1}).status == 422


def test_search_without_an_index_says_what_to_do(stub):
    """404 with the option that is missing."""
    answer = stub.post("/v1/search", {"query": "fox"})
    assert answer.status == 404
    assert "--store" in answer.json()["message"]


@pytest.mark.slow
def test_a_pipeline_file_makes_a_resilient_proxy(index, tmp_path):
    """--pipeline with a hosted tier: the answer names who scored, and the fallback when it is gone."""
    upstream = start("--any-model", "--embedder", "none")
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        f"""
stores:
  - {{name: docs, kind: sqlite, path: {json.dumps(str(index))}}}
rerank:
  tiers:
    - {{kind: cohere, base_url: "{upstream.url}", allow_loopback: true}}
    - {{kind: semantic-bm25}}
""",
        encoding="utf-8",
    )
    server = real("--pipeline", str(file), "--any-model", "--embedder", "none", env={"COHERE_API_KEY": "x"})
    try:
        assert ids(server.post("/v1/search", {"query": "red fox"}))[0] == "fox"
        body = {"query": "red fox", "documents": ["whale", "red fox"]}
        answer = server.post("/v2/rerank", body)
        assert answer.headers["x-resift-tier"] == "cohere"
        assert "x-resift-degraded" not in answer.headers
        assert answer.json()["results"][0] == {"index": 1, "relevance_score": pytest.approx(0.8807970779778823)}
        upstream.stop()
        answer = server.post("/v2/rerank", body)
        assert answer.headers["x-resift-tier"] == "semantic-bm25"
        assert "api_error" in answer.headers["x-resift-degraded"]
        assert answer.json()["results"][0]["index"] == 1
        assert "resift_circuit_breaker_state" in server.get("/metrics").body.decode()
        assert server.get("/readyz").status == 200
    finally:
        upstream.stop()
        assert server.stop() == 0


def test_fuse_is_the_librarys(server):
    """Same order and scores as resift.fuse; a list may carry a weight."""
    lists = {"words": ["x", "y", "z"], "vectors": ["y", "w"]}
    answer = server.post("/v1/fuse", {"lists": lists, "k": 3}).json()
    expected = resift.fuse(lists, k=3)
    assert [(hit["id"], hit["score"]) for hit in answer["hits"]] == [(hit.id, hit.score) for hit in expected]
    weighted = {"words": {"hits": ["x", "y"], "weight": 5}, "vectors": ["y"]}
    fused = server.post("/v1/fuse", {"lists": weighted}).json()
    direct = resift.fuse({"words": ["x", "y"], "vectors": ["y"]}, weights=[5, 1])
    assert [hit["id"] for hit in fused["hits"]] == [hit.id for hit in direct]
    scored = [[{"id": "a", "score": 2}, {"id": "b", "score": 1}]]
    assert server.post("/v1/fuse", {"lists": scored, "method": "linear", "normalize": "rank"}).status == 200
    assert server.post("/v1/fuse", {"lists": [["a"]], "method": "linear"}).status == 400
    assert server.post("/v1/fuse", {"lists": [["a"]], "method": "nothing"}).status == 400


def test_the_description_names_every_route(server):
    """OpenAPI 3.1, with request, answers and errors of each operation."""
    described = server.get("/openapi.json").json()
    assert described["openapi"] == "3.1.0"
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            assert "200" in operation["responses"], path
            assert ("requestBody" in operation) == (method == "post"), path
    assert {"/v1/search", "/v1/fuse", "/v1/explain", "/v2/rerank", "/rerank"} <= set(described["paths"])


def test_the_page_of_the_api_names_every_route_and_loads_nothing(server):
    """`/docs` is the description as HTML, without an address of another site."""
    described = server.get("/openapi.json").json()
    answer = server.get("/docs")
    page = answer.body.decode()
    assert answer.headers["content-type"].startswith("text/html")
    for path in described["paths"]:
        assert path.startswith("/playground/") or f"<code>{path}</code>" in page
    assert "return_documents" in page
    assert "://" not in page
    assert "src=" not in page


def test_the_page_of_the_api_needs_a_key_as_the_description_does():
    """Where there are keys, neither tells what is served."""
    from starlette.testclient import TestClient

    options = ServerOptions(embedder=None, keys=("sesame",), access_log=False)
    with TestClient(serve_app(options, scorer=OverlapScorer())) as client:
        for path in ("/docs", "/openapi.json"):
            assert client.get(path).status_code == 401
            assert client.get(path, headers={"Authorization": "Bearer sesame"}).status_code == 200


def test_the_stub_embedder_is_an_embedder():
    """What the other tests lean on."""
    vectors = asyncio.run(StubEmbedder().embed(["a fox", "whale"], kind="query"))
    assert vectors.shape == (2, 8)
