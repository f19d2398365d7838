"""The fake provider server: strict about documented fields, deterministic, with faults on command."""

import http.client
import json
import socket
from urllib.parse import urlsplit

import pytest

from resift.errors import InputError
from tests.providers import FAULTS, ProviderServer
from tests.providers.faults import bomb
from tests.providers.forms import FORMS, overlap

GOOD = {
    "voyage": {"query": "a b", "documents": ["a", "b c"], "model": "m"},
    "cohere": {"query": "a b", "documents": ["a", "b c"], "model": "m"},
    "cohere-v1": {"query": "a b", "documents": [{"text": "a"}, "b c"]},
    "jina": {"query": "a b", "documents": ["a", {"text": "b c"}], "model": "m"},
    "mixedbread": {"query": "a b", "input": ["a", "b c"]},
    "tei": {"query": "a b", "texts": ["a", "b c"]},
    "vllm": {"query": "a b", "documents": ["a", "b c"]},
    "infinity": {"query": "a b", "documents": ["a", "b c"]},
    "chat": {"model": "m", "messages": [{"role": "user", "content": "Query: b\n[1] a\n[2] b c"}]},
}
ERRORS = {
    "voyage": ["detail"], "jina": ["detail"], "mixedbread": ["detail"], "cohere": ["message"],
    "cohere-v1": ["message"], "tei": ["error", "error_type"], "vllm": ["error"], "infinity": ["error"],
    "chat": ["error"],
}  # fmt: skip


@pytest.fixture
def server():
    with ProviderServer() as running:
        yield running


def post(server, provider, body, *, path=None, key="k"):
    parts = urlsplit(server.url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=5)
    try:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request("POST", f"/{provider}{path or FORMS[provider].paths[-1]}", data, headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def rows(answer):
    return answer if isinstance(answer, list) else answer.get("results") or answer.get("data")


@pytest.mark.parametrize("provider", [name for name in GOOD if name != "chat"])
def test_each_provider_scores_by_shared_words(server, provider):
    status, answer = post(server, provider, GOOD[provider])
    assert status == 200
    scores = {row["index"]: row.get("relevance_score", row.get("score")) for row in rows(answer)}
    assert scores == {0: overlap("a b", "a"), 1: overlap("a b", "b c")}


def test_chat_orders_numbered_lines(server):
    _, answer = post(server, "chat", GOOD["chat"])
    assert answer["choices"][0]["message"]["content"] == "[2] > [1]"


@pytest.mark.parametrize("provider", GOOD)
def test_unknown_missing_and_mistyped_fields_get_the_error_format_of_the_provider(server, provider):
    good = GOOD[provider]
    first = next(iter(good))
    wrong = [{**good, "surprise": 1}, {**good, first: 7}, {k: v for k, v in good.items() if k != first}, [], None]
    for body in wrong:
        status, answer = post(server, provider, body)
        assert status == 422
        assert list(answer)[: len(ERRORS[provider])] == ERRORS[provider]
    assert post(server, provider, b"{half")[0] == 422


@pytest.mark.parametrize("provider", GOOD)
def test_a_missing_key_is_rejected_where_the_provider_requires_one(server, provider):
    assert post(server, provider, GOOD[provider], key=None)[0] == (401 if FORMS[provider].bearer else 200)


def test_only_the_configured_key_is_accepted():
    with ProviderServer(api_key="right") as server:
        assert post(server, "voyage", GOOD["voyage"], key="wrong")[0] == 401
        assert post(server, "voyage", GOOD["voyage"], key="right")[0] == 200


def test_caps_cutoffs_and_unknown_paths(server):
    assert post(server, "tei", {"query": "a", "texts": ["x"] * 33})[0] == 413
    assert post(server, "voyage", {**GOOD["voyage"], "documents": ["x"] * 1001})[0] == 413
    assert len(rows(post(server, "jina", {**GOOD["jina"], "top_n": 1})[1])) == 1
    assert len(rows(post(server, "vllm", {**GOOD["vllm"], "top_n": 0})[1])) == 2
    assert post(server, "voyage", GOOD["voyage"], path="/v9/rerank")[0] == 404


def test_requests_are_recorded_and_their_texts_stay_out_of_reprs(server):
    post(server, "tei", GOOD["tei"])
    request = server.requests[0]
    assert (request.provider, request.path, request.body, request.fault) == ("tei", "/rerank", GOOD["tei"], None)
    assert "b c" not in repr(request)


def test_faults_can_be_counted_and_chosen(server):
    server.misbehave("500", times=2)
    assert [post(server, "tei", GOOD["tei"])[0] for _ in range(3)] == [500, 500, 200]
    server.misbehave("429", when=lambda request: request.provider == "jina")
    assert post(server, "tei", GOOD["tei"])[0] == 200
    assert post(server, "jina", GOOD["jina"])[0] == 429
    server.behave()
    assert post(server, "jina", GOOD["jina"])[0] == 200


def test_refuse_closes_the_port_and_behave_reopens_it(server):
    url = server.url
    server.misbehave("refuse")
    with pytest.raises(ConnectionRefusedError):
        post(server, "tei", GOOD["tei"])
    server.behave()
    assert server.url == url
    assert post(server, "tei", GOOD["tei"])[0] == 200


def test_reset_happens_at_the_requested_byte(server):
    server.misbehave("reset", at=20)
    body = json.dumps(GOOD["tei"]).encode()
    parts = urlsplit(server.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=5) as raw:
        raw.sendall(b"POST /tei/rerank HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        received = []
        with pytest.raises(ConnectionResetError):
            received.extend(iter(lambda: raw.recv(100), b""))
    # The kernel may drop bytes that were sent before the reset.
    assert sum(map(len, received)) <= 20


def test_unknown_names_get_a_suggestion(server):
    with pytest.raises(InputError, match="Did you mean 'gzip-bomb'"):
        server.misbehave("gzip-bom")
    with pytest.raises(InputError, match="Did you mean 'voyage'"):
        server.base_url("voyag")


def test_the_gzip_bomb_is_small():
    assert len(bomb()) < 2_000_000
    assert len(FAULTS) >= 40
