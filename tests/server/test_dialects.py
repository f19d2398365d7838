"""Every rerank dialect: what goes in, what comes out, and how each tells a failure."""

from __future__ import annotations

import pytest

from resift.server import ServerOptions, serve_app
from resift.types import Scores

QUERY = "red fox"
DOCUMENTS = ["a blue whale", "the red fox", "a red apple"]
BEST_FIRST = [1, 2, 0]


def rows_of(answer):
    if isinstance(answer, list):
        return answer
    return answer.get("results") or answer["data"]


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/cohere/v2/rerank", "documents"),
        ("/cohere/v1/rerank", "documents"),
        ("/jina/v1/rerank", "documents"),
        ("/voyage/v1/rerank", "documents"),
        ("/tei/rerank", "texts"),
        ("/vllm/rerank", "documents"),
        ("/vllm/v1/rerank", "documents"),
        ("/vllm/v2/rerank", "documents"),
        ("/infinity/rerank", "documents"),
        ("/v2/rerank", "documents"),
        ("/v1/rerank", "documents"),
        ("/rerank", "documents"),
        ("/rerank", "texts"),
        ("/", "texts"),
    ],
)
def test_every_route_gives_the_same_order(stub, path, field):
    """All routes rank best first, with each index once and scores from 0 to 1 that fall."""
    answer = stub.post(path, {"model": "any", "query": QUERY, field: DOCUMENTS})
    assert answer.status == 200, answer.body
    rows = rows_of(answer.json())
    assert [row["index"] for row in rows] == BEST_FIRST
    scores = [row.get("relevance_score", row.get("score")) for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    assert answer.headers["x-resift-tier"] == "stub"
    assert answer.headers["x-request-id"]


def test_the_answer_of_each_dialect_has_its_own_envelope(stub):
    """Clients find the fields that they read."""
    body = {"model": "m", "query": QUERY, "documents": DOCUMENTS}
    cohere = stub.post("/v2/rerank", body).json()
    assert set(cohere) == {"id", "results", "meta"}
    assert cohere["meta"] == {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}}
    voyage = stub.post("/v1/rerank", {**body, "top_k": None, "truncation": True}).json()
    assert set(voyage) == {"object", "data", "model", "usage"}
    assert voyage["object"] == "list"
    assert voyage["model"] == "m"
    assert voyage["usage"]["total_tokens"] > 0
    union = stub.post("/v1/rerank", body).json()
    assert set(union) == {"id", "model", "results", "usage", "meta"}
    jina = stub.post("/jina/v1/rerank", body).json()
    assert set(jina) == {"model", "usage", "results"}
    infinity = stub.post("/infinity/rerank", body).json()
    assert {"object", "results", "model", "usage", "id", "created"} == set(infinity)
    assert infinity["object"] == "rerank"


@pytest.mark.parametrize(
    ("path", "ask", "shown"),
    [
        ("/v1/rerank", "return_documents", {"text": "the red fox"}),
        ("/jina/v1/rerank", "return_documents", {"text": "the red fox"}),
        ("/cohere/v1/rerank", "return_documents", {"text": "the red fox"}),
        ("/vllm/rerank", "return_documents", {"text": "the red fox"}),
        ("/voyage/v1/rerank", "return_documents", "the red fox"),
        ("/infinity/rerank", "return_documents", "the red fox"),
    ],
)
@pytest.mark.parametrize("yes", [True, "true", "True"])
def test_documents_come_back_when_asked_for(stub, path, ask, shown, yes):
    """Each dialect has its own form of a returned document; a boolean may come as a string."""
    answer = stub.post(path, {"query": QUERY, "documents": DOCUMENTS, ask: yes})
    assert rows_of(answer.json())[0]["document"] == shown


@pytest.mark.parametrize(
    ("path", "by_default", "on_refusal"),
    [
        ("/jina/v1/rerank", True, False),
        ("/vllm/rerank", True, True),
        ("/vllm/v1/rerank", True, True),
        ("/rerank", True, False),
        ("/v1/rerank", True, False),
        ("/cohere/v1/rerank", False, False),
        ("/v2/rerank", False, False),
        ("/voyage/v1/rerank", False, False),
        ("/infinity/rerank", False, False),
    ],
)
def test_documents_by_default_are_as_in_each_api(stub, path, by_default, on_refusal):
    """Jina returns documents unless told not to, vLLM always, the others only on request."""
    body = {"model": "any", "query": QUERY, "documents": DOCUMENTS}
    rows = rows_of(stub.post(path, body).json())
    assert ["document" in row for row in rows] == [by_default] * len(DOCUMENTS)
    rows = rows_of(stub.post(path, {**body, "return_documents": False}).json())
    assert ["document" in row for row in rows] == [on_refusal] * len(DOCUMENTS)


def test_cohere_clients_at_the_root_get_no_documents(stub):
    """Cohere v1 and Jina share /v1/rerank; the model's name or a field of Cohere's tells them apart."""
    body = {"query": QUERY, "documents": DOCUMENTS}
    for cohere in ({"model": "rerank-v3.5"}, {"rank_fields": ["text"]}, {"max_chunks_per_doc": 1}):
        rows = rows_of(stub.post("/v1/rerank", {**body, **cohere}).json())
        assert not any("document" in row for row in rows)


def test_tei_returns_texts_when_asked_for(stub):
    """TEI calls it return_text."""
    answer = stub.post("/rerank", {"query": QUERY, "texts": DOCUMENTS, "return_text": True})
    assert answer.json()[0] == {"index": 1, "score": pytest.approx(0.8807970779778823), "text": "the red fox"}


def test_what_was_not_judged_has_no_raw_score_above_what_was():
    """Logits of what does not fit are below 0, and clients sort by them."""
    from starlette.testclient import TestClient

    class Logits:
        name = "logits"

        async def score(self, query, hits, *, deadline):
            return Scores([-7.0 if "whale" in hit.text else -3.0 for hit in hits], self.name)

    app = serve_app(ServerOptions(embedder=None, key_env=None), scorer=Logits())
    body = {"query": QUERY, "texts": ["", "a whale", "a fox"], "raw_scores": True}
    with TestClient(app) as client:
        rows = client.post("/rerank", json=body).json()
    assert [(row["index"], row["score"]) for row in rows] == [(2, -3.0), (1, -7.0), (0, -7.0)]


def test_raw_scores_are_the_scorers_own(stub):
    """Without a sigmoid, when a client asks for that."""
    answer = stub.post("/rerank", {"query": QUERY, "texts": DOCUMENTS, "raw_scores": "true"})
    assert [row["score"] for row in answer.json()] == [2.0, 1.0, 0.0]


def test_cutoff_in_each_word(stub):
    """top_n and top_k keep the best; more than there are is fine; null is no cutoff."""
    body = {"query": QUERY, "documents": DOCUMENTS}
    assert len(stub.post("/v2/rerank", {**body, "top_n": 1}).json()["results"]) == 1
    assert len(stub.post("/v1/rerank", {**body, "top_k": 2}).json()["data"]) == 2
    assert len(stub.post("/v2/rerank", {**body, "top_n": 99}).json()["results"]) == 3
    assert len(stub.post("/v2/rerank", {**body, "top_n": None}).json()["results"]) == 3
    for wrong in (0, -1, 1.5, "2", True):
        assert stub.post("/v2/rerank", {**body, "top_n": wrong}).status == 400


def test_objects_as_documents(stub):
    """Cohere v1 and Jina take objects with a text, or fields to rank by."""
    objects = [{"text": text, "id": at} for at, text in enumerate(DOCUMENTS)]
    answer = stub.post("/v1/rerank", {"query": QUERY, "documents": objects, "return_documents": True})
    assert [row["index"] for row in answer.json()["results"]] == BEST_FIRST
    assert answer.json()["results"][0]["document"] == {"text": "the red fox", "id": 1}
    fields = [{"a": "nothing", "b": "x"}, {"a": "red", "b": "fox"}]
    answer = stub.post("/v1/rerank", {"query": QUERY, "documents": fields, "rank_fields": ["a", "b"]})
    assert answer.json()["results"][0]["index"] == 1
    answer = stub.post("/v1/rerank", {"query": QUERY, "documents": [{"image": "x"}, "fox"]}).json()
    assert [row["index"] for row in answer["results"]] == [1, 0]
    assert answer["warnings"] == ["1 of 2 documents have no text and are ranked last"]


ERRORS = [
    ("/v2/rerank", 400, {"message", "id"}),
    ("/cohere/v1/rerank", 400, {"message", "id"}),
    ("/jina/v1/rerank", 400, {"detail"}),
    ("/voyage/v1/rerank", 400, {"detail"}),
    ("/tei/rerank", 422, {"error", "error_type"}),
    ("/vllm/rerank", 400, {"error"}),
    ("/v1/rerank", 400, {"message", "detail", "id"}),
    ("/rerank", 400, {"message", "detail", "id"}),
]


@pytest.mark.parametrize(("path", "status", "fields"), ERRORS)
def test_an_empty_list_is_refused_in_the_dialects_words(stub, path, status, fields):
    """No documents: a clear 4xx, never an empty result."""
    name = "texts" if path == "/tei/rerank" else "documents"
    answer = stub.post(path, {"query": QUERY, name: []})
    assert answer.status == (400 if name == "texts" else status)
    assert set(answer.json()) == fields


@pytest.mark.parametrize(("path", "status", "fields"), ERRORS)
@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"\xff\xfe", b'{"query": NaN}', b"null", b"[" * 20_000])
def test_what_is_no_request_is_refused_in_the_dialects_words(stub, path, status, fields, body):
    """Broken bodies get 4xx with the dialect's error body."""
    answer = stub.post(path, body)
    assert 400 <= answer.status < 500
    assert set(answer.json()) == fields


def test_tei_names_the_kind_of_error(stub):
    """Its clients read error_type, spelled as in TEI's own schema."""
    assert stub.post("/tei/rerank", {"query": "q", "texts": []}).json()["error_type"] == "Empty"
    assert stub.post("/tei/rerank", {"query": "q", "texts": 3}).json()["error_type"] == "Validation"


def test_nulls_and_unknown_fields_do_no_harm(stub):
    """Clients send null for what they do not set, and fields of other servers."""
    body = {"query": QUERY, "documents": DOCUMENTS, "return_documents": None, "top_n": None, "surprise": 1}
    assert stub.post("/v1/rerank", body).status == 200
    tei = {"query": QUERY, "texts": DOCUMENTS, "top_n": 2, "truncate": None, "truncation_direction": "Right"}
    assert len(stub.post("/rerank", tei).json()) == 3


def test_ties_and_twins_stand_as_in_the_library(stub):
    """Equal texts get equal scores, and every index is there once."""
    answer = stub.post("/rerank", {"query": QUERY, "texts": ["fox"] * 12})
    assert sorted(row["index"] for row in answer.json()) == list(range(12))
    assert len({row["score"] for row in answer.json()}) == 1


def test_documents_without_text_come_last(stub):
    """An empty document scores 0 and is not lost."""
    rows = stub.post("/rerank", {"query": QUERY, "texts": ["", "red", " "]}).json()
    assert [row["index"] for row in rows] == [1, 0, 2]
    assert rows[-1]["score"] == 0


def test_a_deadline_gives_what_is_there_and_says_so(stub):
    """What came too late is last and counted, in header and body."""
    body = {"query": "fox", "documents": ["fox", "wait 0.3", "red fox", "fox"]}
    for headers, more in (({"x_resift_deadline_ms": "100"}, {}), ({}, {"deadline_ms": 100})):
        answer = stub.post("/v2/rerank", {**body, **more}, **headers)
        assert answer.status == 200
        assert sorted(row["index"] for row in answer.json()["results"]) == [0, 1, 2, 3]
        assert answer.headers["x-resift-unscored"] == "2"
        assert "deadline" in answer.headers["x-resift-degraded"]
        assert "deadline" in answer.json()["meta"]["warnings"][0]
    assert stub.post("/v2/rerank", body, x_resift_deadline_ms="soon").status == 400
    assert stub.post("/v2/rerank", {**body, "deadline_ms": 10**400}).status == 400


def test_a_scorer_that_fails_leaves_the_order_and_says_so(stub):
    """Reranking is never fatal, and no exception text reaches a client."""
    answer = stub.post("/v2/rerank", {"query": "fox", "documents": ["a", "fail now", "fox"]})
    assert answer.status == 200
    assert [row["index"] for row in answer.json()["results"]] == [0, 1, 2]
    assert "RuntimeError" in answer.headers["x-resift-degraded"]
    assert b"secret" not in answer.body


def test_score_takes_all_of_vllms_words(stub):
    """queries+documents, queries+items, text_1+text_2, data_1+data_2; one text on the left stands for all."""
    for left, right in (("queries", "documents"), ("queries", "items"), ("text_1", "text_2"), ("data_1", "data_2")):
        answer = stub.post("/score", {left: QUERY, right: DOCUMENTS}).json()
        scores = [row["score"] for row in answer["data"]]
        assert scores[1] > scores[2] > scores[0]
        assert answer["object"] == "list"
    answer = stub.post("/v1/score", {"text_1": ["red", "blue"], "text_2": ["red", "red"]}).json()
    assert answer["data"][0]["score"] > answer["data"][1]["score"]
    assert stub.post("/score", {"text_1": ["a", "b"], "text_2": ["c"]}).status == 400
    assert stub.post("/score", {"text_1": "a"}).status == 400


def test_score_without_any_score_is_an_error(stub):
    """A list of zeros would look like an answer."""
    answer = stub.post("/score", {"queries": "red", "documents": ["fail", "fail"]})
    assert answer.status == 502
    assert "scored" in answer.json()["error"]["message"]
    assert stub.post("/score", {"queries": "red", "documents": ["", "red"]}).json()["data"][0]["score"] == 0.0
