"""What applications really send: bodies written down from their sources, and the fields that they read."""

from __future__ import annotations

import pytest

DOCUMENTS = ["a blue whale", "the red fox", "a red apple"]


def test_open_webui(stub):
    """It sends top_n = n, sorts by index itself and reads relevance_score, so every index must be there."""
    body = {"model": "BAAI/bge-reranker-v2-m3", "query": "red fox", "documents": DOCUMENTS, "top_n": 3}
    headers = {"Content-Type": "application/json", "Authorization": "Bearer "}
    answer = stub.ask("POST", "/v1/rerank", body, headers).json()
    rows = sorted(answer["results"], key=lambda row: row["index"])
    assert [row["index"] for row in rows] == [0, 1, 2]
    assert max(rows, key=lambda row: row["relevance_score"])["index"] == 1


@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank"])
def test_dify(stub, path):
    """An empty Authorization header, scores against a threshold, documents back."""
    body = {"model": "any-reranker", "query": "red fox", "documents": DOCUMENTS, "top_n": 3, "return_documents": True}
    answer = stub.ask("POST", path, body, {"Content-Type": "application/json", "Authorization": ""}).json()
    kept = [row for row in answer["results"] if row["relevance_score"] >= 0.8]
    assert [(row["index"], row["document"]["text"]) for row in kept] == [(1, "the red fox")]


def test_dify_without_a_limit(stub):
    """It may send top_n 0, which is refused unless the server is told that 0 means all."""
    body = {"model": "m", "query": "red fox", "documents": DOCUMENTS, "top_n": 0}
    assert stub.post("/v1/rerank", body).status == 400


def test_ragflow_xinference(stub):
    """Its Xinference mode drops any prefix and sends booleans as strings."""
    body = {
        "model": "bge-reranker",
        "query": "red fox",
        "return_documents": "true",
        "return_len": "true",
        "documents": DOCUMENTS,
    }
    answer = stub.post("/rerank", body).json()
    scores = [0.0] * len(DOCUMENTS)
    for row in answer["results"]:
        scores[row["index"]] = row["relevance_score"]
    assert scores[1] > scores[2] > scores[0]


def test_ragflow_jina(stub):
    """Its Jina mode asks for all documents and reads usage."""
    body = {"model": "jina-reranker-v2", "query": "red fox", "documents": DOCUMENTS, "top_n": 3}
    answer = stub.post("/v1/rerank", body).json()
    assert answer["usage"]["total_tokens"] > 0
    assert len(answer["results"]) == 3


def test_librechat(stub):
    """Its agents have their models' names in the code."""
    for model in ("rerank-v3.5", "jina-reranker-v2-base-multilingual"):
        body = {"model": model, "query": "red fox", "documents": DOCUMENTS, "top_n": 5, "return_documents": True}
        assert stub.post("/v1/rerank", body).json()["results"][0]["document"]["text"] == "the red fox"


def test_litellm_huggingface(stub):
    """It sends TEI's body with top_n and truncate=false, and wants a bare array."""
    body = {"query": "red fox", "texts": DOCUMENTS, "top_n": 2, "truncate": False, "raw_scores": False}
    answer = stub.post("/rerank", {**body, "return_text": True}).json()
    assert isinstance(answer, list)
    assert answer[0] == {"index": 1, "score": pytest.approx(0.88079708), "text": "the red fox"}
