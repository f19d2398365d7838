"""`resift serve` itself, with the real models: the order of `resift.rerank`, and of real clients."""

from __future__ import annotations

import re

import numpy as np
import pytest

import resift
from resift.models.embedder import DEFAULT_EMBEDDER, Embedder
from resift.models.loading import load
from resift.rerankers.cross_encoder import DEFAULT_MODEL
from resift.server.api_dialects import ROUTES
from tests.lazy import LazyModule
from tests.server.process import real

pytestmark = pytest.mark.real_model

QUERY = "What governs subatomic particles?"
DOCUMENTS = [
    "Newton's laws describe motion.",
    "Quantum mechanics describes subatomic particles.",
    "Cooking pasta takes ten minutes.",
    "The standard model names the forces between particles.",
    "Quantum mechanics describes subatomic particles.",
]

cohere, voyageai = LazyModule("cohere"), LazyModule("voyageai")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text("# the test's key\nsecret\n", encoding="utf-8")
    server = real("--api-key-file", str(keys), "--any-model")
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="module")
def expected():
    return [int(id) for id in resift.rerank(QUERY, DOCUMENTS).ids]


def test_cohere_v2(server, expected):
    """Cohere's newest client, only with another base URL."""
    client = cohere.ClientV2(api_key="secret", base_url=server.url)
    answer = client.rerank(model="rerank-v3.5", query=QUERY, documents=DOCUMENTS)
    assert [row.index for row in answer.results] == expected
    assert answer.results[0].relevance_score > 0.8


def test_cohere_v1_with_documents(server, expected):
    """The old client, also under its own mount."""
    client = cohere.Client(api_key="secret", base_url=f"{server.url}/cohere")
    objects = [{"text": text} for text in DOCUMENTS]
    answer = client.rerank(model="m", query=QUERY, documents=objects, top_n=2, return_documents=True)
    assert [row.index for row in answer.results] == expected[:2]
    assert answer.results[0].document.text == DOCUMENTS[expected[0]]


def test_cohere_errors_are_its_own(server):
    """The client turns statuses into its exceptions, which needs its error bodies."""
    from cohere.errors import BadRequestError, UnauthorizedError

    with pytest.raises(UnauthorizedError):
        cohere.ClientV2(api_key="wrong", base_url=server.url).rerank(model="m", query="q", documents=["a"])
    client = cohere.ClientV2(api_key="secret", base_url=server.url)
    with pytest.raises(BadRequestError, match="documents must not be empty"):
        client.rerank(model="m", query="q", documents=[])


@pytest.mark.parametrize("base", ["/v1", "/voyage/v1"])
def test_voyage(server, expected, base):
    """Voyage's client, at the root and under its mount."""
    client = voyageai.Client(api_key="secret", base_url=server.url + base)
    answer = client.rerank(QUERY, DOCUMENTS, model="rerank-2.5", top_k=3)
    assert [row.index for row in answer.results] == expected[:3]
    assert answer.total_tokens > 40
    with pytest.raises(voyageai.error.InvalidRequestError):
        client.rerank(QUERY, [], model="rerank-2.5")


def test_relevant_spans(server):
    """Cohere v2's spans: the sentence that answers, with its place in the document."""
    text = "Rome is old. Quantum mechanics governs subatomic particles! Bread is made of flour."
    body = {"query": QUERY, "documents": [text, "Nothing here."], "model": "m"}
    spans = {"mode": "enabled", "threshold": 0.5, "max_spans": 1}
    answer = server.post("/v2/rerank", {**body, "relevant_spans": spans}, authorization="Bearer secret").json()
    found = answer["results"][0]["relevant_spans"]
    assert len(found) == 1
    assert text[found[0]["start"] : found[0]["end"]] == "Quantum mechanics governs subatomic particles!"
    assert answer["results"][1]["relevant_spans"] == []
    off = server.post("/v2/rerank", {**body, "relevant_spans": None}, authorization="Bearer secret").json()
    assert "relevant_spans" not in off["results"][0]


def test_a_long_document_is_read_in_windows(server):
    """The sentence that matters is found wherever it stands, and the query is not cut."""
    filler = "The committee met again and talked about the budget of the harbour. " * 120
    buried = filler + "Quantum mechanics governs subatomic particles. " + filler
    answer = server.post("/rerank", {"query": QUERY, "texts": [filler, buried]}, authorization="secret").json()
    assert answer[0]["index"] == 1
    assert answer[0]["score"] > 0.5 > answer[1]["score"]


MINUTES = " ".join(f"Minute {number} of the meeting: the budget was read." for number in range(80))


@pytest.mark.parametrize("path", [*ROUTES, "/score"])
def test_a_query_is_never_cut(server, path):
    """A question behind nine hundred tokens of other text counts in every dialect; the answer says how."""
    query = f"{MINUTES} {QUERY}"
    documents = "texts" if path in ("/", "/tei/", "/tei/rerank") else "documents"
    body = {"queries" if path == "/score" else "query": query, documents: DOCUMENTS}
    answer = server.post(path, body, authorization="Bearer secret")
    note = answer.headers["x-resift-note"]
    assert re.fullmatch(r"query of \d+ tokens split into \d+ parts, 8 scored with each text", note)
    said = answer.json()
    if isinstance(said, list):
        first = said[0]["index"]
    elif path == "/score":
        first = max(said["data"], key=lambda row: row["score"])["index"]
    else:
        first = (said.get("results") or said["data"])[0]["index"]
        assert [note] == (said.get("warnings") or said["meta"]["warnings"])
    assert DOCUMENTS[first] == "Quantum mechanics describes subatomic particles."


def test_openai_embeddings(server):
    """OpenAI's client, which asks for base64 unless told otherwise."""
    import openai

    client = openai.OpenAI(api_key="secret", base_url=f"{server.url}/v1")
    texts = ["a red fox", "a blue whale"]
    answer = client.embeddings.create(model="text-embedding-3-small", input=texts)
    direct = Embedder().embed_sync(texts, kind="document")
    assert np.allclose([row.embedding for row in answer.data], direct, atol=1e-6)
    plain = client.embeddings.create(model="m", input="a red fox", encoding_format="float")
    assert plain.data[0].embedding == pytest.approx(direct[0].tolist())
    with pytest.raises(openai.BadRequestError, match="token ids"):
        client.embeddings.create(model="m", input=[1, 2, 3])
    with pytest.raises(openai.BadRequestError, match="dimensions must be 384"):
        client.embeddings.create(model="m", input="x", dimensions=7)
    assert client.models.list().data[0].id == "cross-encoder/ms-marco-MiniLM-L-12-v2"
    client.close()


def test_usage_counts_the_tokens_of_the_model(server):
    """Words without letters to spare: four characters per token would be far off."""
    documents = ["a b c d e f g h", "one two", "antidisestablishmentarianism"]
    tokenizer = load(DEFAULT_MODEL, kind="cross-encoder").tokenizer
    pairs = sum(tokenizer.count("x y z") + tokenizer.count(text) for text in documents)
    for path, body in {
        "/score": {"queries": "x y z", "documents": documents},
        "/rerank": {"query": "x y z", "documents": documents},
        "/jina/v1/rerank": {"query": "x y z", "documents": documents},
        "/vllm/rerank": {"query": "x y z", "documents": documents},
        "/infinity/rerank": {"query": "x y z", "documents": documents},
        "/voyage/v1/rerank": {"query": "x y z", "documents": documents},
    }.items():
        usage = server.post(path, body, authorization="Bearer secret").json()["usage"]
        assert usage["total_tokens"] == pairs, path
    two = {"text_1": ["x y z", "x"], "text_2": ["one two", "one two"]}
    usage = server.post("/score", two, authorization="Bearer secret").json()["usage"]
    assert usage == dict.fromkeys(("prompt_tokens", "total_tokens"), 3 + 2 + 1 + 2)
    embedded = server.post("/v1/embeddings", {"input": documents}, authorization="Bearer secret").json()
    count = sum(map(load(DEFAULT_EMBEDDER, kind="bi-encoder").tokenizer.count, documents))
    assert embedded["usage"] == {"prompt_tokens": count, "total_tokens": count}


def test_tei_embeddings_and_info(server):
    """TEI's bare array; queries get the model's prefix when their prompt is named."""
    answer = server.post("/embed", {"inputs": ["a red fox"]}, authorization="Bearer secret").json()
    assert answer == [pytest.approx(Embedder().embed_sync(["a red fox"], kind="document")[0].tolist())]
    asked = {"inputs": "a red fox", "prompt_name": "query"}
    query = server.post("/tei/embed", asked, authorization="Bearer secret").json()
    assert query == [pytest.approx(Embedder().embed_sync(["a red fox"], kind="query")[0].tolist())]
    info = server.get("/info", authorization="Bearer secret").json()
    assert info["model_id"] == "cross-encoder/ms-marco-MiniLM-L-12-v2"
    assert info["max_client_batch_size"] == 10_000
