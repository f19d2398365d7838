"""Running a server: keys, limits, logs, metrics, overload, hang-ups, and an end that loses nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from resift.cli.main import main
from tests.server.process import ROOT, start

BODY = {"query": "red fox", "documents": ["a red fox", "a whale"]}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A server with two keys in a file and one in the environment."""
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text("# ours\none\ntwo\n", encoding="utf-8")
    server = start("--api-key-file", str(keys), "--embedder", "none", env={"RESIFT_API_KEYS": "three"})
    server.keys = keys
    yield server
    assert server.stop() == 0


MODEL = "cross-encoder/ms-marco-MiniLM-L-12-v2"


@pytest.fixture(scope="module")
def configured():
    """A server with an alias, small limits and one web page that may call it."""
    names = ("--alias", f"rerank-v3.5={MODEL}", "--strict", "--zero-means-all", "--embedder", "none")
    limits = ("--max-documents", "50", "--max-text-chars", "100", "--max-body-bytes", "5000", "--max-pairs", "10")
    server = start(*names, *limits, "--cors-origin", "https://page.example")
    yield server
    assert server.stop() == 0


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def test_keys_guard_every_path_but_health(guarded):
    """No key, a wrong key and an empty header get 401 in the path's own words, on aliases too."""
    described = guarded.get("/openapi.json", **bearer("one")).json()
    guarded_paths = [
        (method, path)
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
        if operation["security"]
    ]
    assert len(guarded_paths) > 20
    for method, path in [*guarded_paths, ("get", "/metrics"), ("post", "/nowhere")]:
        for headers in ({}, bearer("four"), {"authorization": ""}, {"authorization": "Bearer"}):
            answer = guarded.ask(method.upper(), path, BODY if method == "post" else None, headers)
            assert answer.status == 401, (method, path)
            assert answer.headers["www-authenticate"] == "Bearer"
    for path in ("/livez", "/readyz", "/health"):
        assert guarded.get(path).status == 200


@pytest.mark.parametrize("key", ["one", "two", "three"])
def test_each_key_opens(guarded, key):
    """Several keys hold at once, from both sources."""
    assert guarded.post("/v2/rerank", BODY, **bearer(key)).status == 200


def test_a_token_without_bearer_counts_on_teis_paths_only(guarded):
    """One TEI client sends its token bare."""
    texts = {"query": "fox", "texts": ["fox"]}
    assert guarded.post("/rerank", texts, authorization="one").status == 200
    assert guarded.post("/tei/rerank", texts, authorization="one").status == 200
    assert guarded.post("/v2/rerank", BODY, authorization="one").status == 401


def test_keys_change_without_a_restart(guarded):
    """A key that leaves the file is refused within seconds, a new one counts."""
    guarded.keys.write_text("new\n", encoding="utf-8")
    guarded.until(lambda server: server.post("/v2/rerank", BODY, **bearer("new")).status == 200, seconds=10)
    assert guarded.post("/v2/rerank", BODY, **bearer("one")).status == 401
    guarded.keys.write_text("one\ntwo\n", encoding="utf-8")
    guarded.until(lambda server: server.post("/v2/rerank", BODY, **bearer("one")).status == 200, seconds=10)


def test_a_path_cannot_be_dressed_up(guarded):
    """What stands in the Host header or before the path never opens a door."""
    for path in ("/livez/../v1/models", "//v1/models", "/readyz/v1/models", "/playground/../v1/models"):
        answer = guarded.ask("GET", path, None, {"host": "x/livez?"})
        assert answer.status in (401, 404), path


def test_model_names(guarded):
    """Without --any-model an unknown name is refused with the names that are served and the way out."""
    answer = guarded.post("/v2/rerank", {**BODY, "model": "rerank-v3.5"}, **bearer("one"))
    assert answer.status == 404
    assert "--any-model" in answer.json()["message"]
    assert guarded.post("/v2/rerank", {**BODY, "model": ""}, **bearer("one")).status == 200
    tei = guarded.post("/voyage/v1/rerank", {**BODY, "model": "rerank-2.5"}, **bearer("one"))
    assert (tei.status, set(tei.json())) == (400, {"detail"})


def test_an_alias_is_a_name(configured):
    """--alias, --strict and --zero-means-all."""
    assert configured.post("/v2/rerank", {**BODY, "model": "rerank-v3.5", "top_n": 0}).status == 200
    assert configured.post("/v2/rerank", {**BODY, "model": "other"}).status == 404
    unknown = configured.post("/v2/rerank", {**BODY, "top_k": 1})
    assert unknown.status == 422
    assert "top_k" in unknown.json()["message"]
    assert configured.post("/v2/rerank", b'{"query":"a","query":"b","documents":["x"]}').status == 400
    ids = {row["id"]: row["root"] for row in configured.get("/v1/models").json()["data"]}
    assert ids == {MODEL: MODEL, "rerank-v3.5": MODEL}


def test_the_log_has_no_texts(stub):
    """One JSON line per request: id, route, status, time, counts; never a query or a document."""
    body = {"query": "hush secret", "documents": ["hush secret document"]}
    stub.post("/v2/rerank?key=hush", body, x_request_id="my-id-1", x_forwarded_for="hush " * 100)
    stub.until(lambda server: any("my-id-1" in line for line in server.lines), seconds=10)
    line = json.loads(next(line for line in stub.lines if "my-id-1" in line))
    assert line["route"] == "/v2/rerank"
    assert line["client"] == "127.0.0.1"  # not a header that anybody can send
    assert (line["status"], line["documents"], line["dialect"]) == (200, 1, "cohere-v2")
    assert not any("hush" in line for line in stub.lines)


def test_request_ids(stub):
    """A harmless id comes back; anything else is replaced."""
    assert stub.post("/v2/rerank", BODY, x_request_id="abc-1").headers["x-request-id"] == "abc-1"
    assert stub.post("/v2/rerank", BODY, x_request_id="a b<script>").headers["x-request-id"] != "a b<script>"


def test_metrics(stub):
    """Prometheus finds requests by dialect, pairs, the queue and refusals."""
    stub.post("/v2/rerank", BODY)
    told = stub.get("/metrics").body.decode()
    assert re.search(r'resift_http_requests_total\{dialect="cohere-v2",route="/v2/rerank",status="200"\} \d', told)
    assert re.search(r'resift_pairs_total\{dialect="cohere-v2"\} \d', told)
    for name in ("resift_pairs_in_flight", "resift_pairs_waiting", "resift_refusals_total", "resift_ready 1.0"):
        assert name in told


def test_unknown_paths_and_methods(stub):
    """404 and 405 are told in JSON, with the methods that are allowed."""
    assert stub.get("/nowhere").status == 404
    answer = stub.get("/v2/rerank")
    assert (answer.status, answer.headers["allow"]) == (405, "POST")
    assert stub.ask("HEAD", "/livez").body == b""


def test_limits_on_size(configured):
    """Too many documents, too long a text, too large a body are refused before any work."""
    assert configured.post("/v2/rerank", {"query": "q", "documents": ["x"] * 51}).status == 400
    assert configured.post("/v2/rerank", {"query": "q", "documents": ["x" * 101]}).status == 400
    assert configured.post("/v2/rerank", {"query": "q" * 101, "documents": ["x"]}).status == 400
    assert configured.post("/v2/rerank", b" " * 6000).status == 413
    lied = (
        b"POST /v2/rerank HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
        + b"1000\r\n" + b" " * 4096 + b"\r\n" + b"1000\r\n" + b" " * 4096 + b"\r\n0\r\n\r\n"
    )  # fmt: skip
    assert raw(configured.port, lied).startswith(b"HTTP/1.1 413")


def raw(port: int, data: bytes, *, timeout: float = 10) -> bytes:
    """Send bytes and return what comes back until the server closes or falls silent."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as connection:
        connection.sendall(data)
        found = b""
        try:
            while part := connection.recv(65536):
                found += part
                if b"\r\n\r\n" in found and b"content-length" in found.lower():
                    return found
        except TimeoutError:
            pass
        return found


SLOW = """
import asyncio, sys
from resift.server import Limits, ServerOptions, serve_app
from resift.server.server_options import ListenOptions
from resift.server.running import bind_socket, run_worker
from tests.server.stub_server import StubScorer
limits = Limits(first_byte_timeout_s=0.6, header_timeout_s=0.3, stall_timeout_s=0.5, max_connections=3)
listening = ListenOptions(port=0, drain_delay_s=0.1)
listener = bind_socket(listening)
print(f"Resift is at http://127.0.0.1:{listener.getsockname()[1]}", file=sys.stderr, flush=True)
make = lambda options: serve_app(options, scorer=StubScorer())
sys.exit(run_worker(ServerOptions(limits=limits, embedder=None), listening, listener, make_app=make))
"""


def test_slow_clients_lose_their_connection():
    """Headers, a body or nothing at all, sent too slowly: closed; and so are connections over the limit."""
    process = subprocess.Popen([sys.executable, "-c", SLOW], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        port = int(re.search(r":(\d+)$", process.stderr.readline().strip())[1])
        for sent in (b"", b"GET /livez HTTP/1.1\r\nhost: ", b"POST /v2/rerank HTTP/1.1\r\ncontent-length: 9\r\n\r\n{"):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                connection.sendall(sent)
                told = b"".join(iter(lambda: connection.recv(1000), b""))
                assert told[:12] == b"HTTP/1.1 408"
        many = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(4)]
        assert many[3].recv(100).startswith(b"HTTP/1.1 429")
        for connection in many:
            connection.close()
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        process.stderr.close()


def test_too_much_at_once_is_refused_with_429(configured):
    """Over the limit of pairs a request waits, then gets 429 with whole seconds to wait; never 503."""
    body = {"query": "q", "documents": ["wait 0.4", *["x"] * 8]}
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda _: configured.post("/v2/rerank", body), range(12)))
    statuses = [answer.status for answer in answers]
    assert set(statuses) == {200, 429}
    refused = next(answer for answer in answers if answer.status == 429)
    assert int(refused.headers["retry-after"]) >= 1
    assert set(refused.json()) == {"message", "id"}
    assert configured.post("/v2/rerank", body).status == 200
    assert configured.post("/v2/rerank", {"query": "q", "documents": ["x"] * 50}).status == 200
    told = configured.get("/metrics").body.decode()
    assert float(re.search(r"resift_refusals_total (\d\S*)", told)[1]) == statuses.count(429)


def test_work_of_a_client_that_hung_up_is_dropped(configured):
    """Its pairs leave the count long before they would have been done."""
    body = json.dumps({"query": "q", "documents": ["wait 20"]}).encode()
    head = f"POST /v2/rerank HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    connection = socket.create_connection(("127.0.0.1", configured.port))
    connection.sendall(head + body)
    flying = lambda one: "resift_pairs_in_flight 1.0" in one.get("/metrics").body.decode()  # noqa: E731
    configured.until(flying, seconds=10)
    connection.close()
    configured.until(lambda one: not flying(one), seconds=5)
    assert "resift_hangups_total 1.0" in configured.get("/metrics").body.decode()


def test_drain_finishes_what_was_accepted():
    """After SIGTERM: readyz 503 while requests are still answered, work in flight ends well, exit code 0."""
    server = start("--any-model", "--embedder", "none", "--drain-delay", "1.5")
    with ThreadPoolExecutor(9) as pool:
        slow = [pool.submit(server.post, "/v2/rerank", {"query": "q", "documents": ["wait 2.5"]}) for _ in range(8)]
        in_flight = "resift_pairs_in_flight 8.0"
        server.until(lambda one: in_flight in one.get("/metrics").body.decode(), seconds=10)
        server.process.send_signal(signal.SIGTERM)
        server.until(lambda one: one.get("/readyz").status == 503, seconds=5)
        late = server.post("/v2/rerank", BODY)
        assert (late.status, late.headers["connection"]) == (200, "close")
        assert [future.result().status for future in slow] == [200] * 8
    assert server.stop() == 0


def test_what_outlives_the_drain_hears_503():
    """Work that takes longer than the drain allows is told so, and the exit code is 0."""
    server = start("--any-model", "--embedder", "none", "--drain", "1")
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(server.post, "/v2/rerank", {"query": "q", "documents": ["wait 30"]})
        server.until(lambda one: "resift_pairs_in_flight 1.0" in one.get("/metrics").body.decode(), seconds=10)
        server.process.send_signal(signal.SIGTERM)
        answer = slow.result()
        assert (answer.status, set(answer.json())) == (503, {"message", "id"})
    assert server.stop() == 0


def test_more_signals_during_the_shutdown_do_not_change_the_exit_code():
    """A supervisor may repeat SIGTERM at any moment, also while the event loop closes."""
    server = start("--any-model", "--embedder", "none", "--drain", "1")
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(server.post, "/v2/rerank", {"query": "q", "documents": ["wait 30"]})
        server.until(lambda one: "resift_pairs_in_flight 1.0" in one.get("/metrics").body.decode(), seconds=10)
        end = time.monotonic() + 20
        while server.process.poll() is None and time.monotonic() < end:
            server.process.send_signal(signal.SIGTERM)
        assert slow.result().status == 503
    assert server.stop() == 0, server.lines


def test_ctrl_c_ends_at_once():
    """Who pressed it waits neither for the delay of a drain nor for its time; work in flight hears 503."""
    server = start("--any-model", "--embedder", "none", "--drain-delay", "60", "--drain", "60")
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(server.post, "/v2/rerank", {"query": "q", "documents": ["wait 60"]})
        server.until(lambda one: "resift_pairs_in_flight 1.0" in one.get("/metrics").body.decode(), seconds=10)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(20) == 0
        assert slow.result().status == 503
    assert server.stop() == 0


def test_cors_is_off_unless_named(stub, configured):
    """A web page may ask only when its origin is named."""
    origin = {"origin": "https://page.example"}
    assert "access-control-allow-origin" not in stub.ask("POST", "/v2/rerank", BODY, origin).headers
    answer = configured.ask("POST", "/v2/rerank", BODY, origin)
    assert answer.headers["access-control-allow-origin"] == "https://page.example"
    other = configured.ask("POST", "/v2/rerank", BODY, {"origin": "https://other.example"})
    assert "access-control-allow-origin" not in other.headers


def test_mistakes_are_told_before_anything_listens(tmp_path, capsys):
    """One line, exit code 1, and what to do."""
    for words, told in (
        (["--api-key-file", str(tmp_path / "none.txt")], "cannot read the keys"),
        (["--alias", "x"], "NAME=MODEL"),
        (["--alias", "x=other"], "not served"),
        (["--model", "someone/unknown"], "someone/unknown"),
        (["--store", str(tmp_path / "none.db")], "resift index"),
        (["--tls-cert", "x.pem"], "--tls-key"),
        (["--host", "256.0.0.1"], "--host"),
    ):
        code = main(["serve", "--port", "0", *words])
        told_by_us = capsys.readouterr().err
        assert code == 1, words
        assert told in told_by_us
        assert len(told_by_us.splitlines()) == 1


@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.real_model
def test_several_workers_share_one_port():
    """Two processes answer, one that is killed is replaced, and SIGTERM ends them all with 0."""
    from tests.server.process import real

    server = real("--workers", "2", "--any-model", "--embedder", "none")
    children = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(server.process.pid)], capture_output=True, text=True, check=True
    ).stdout.split()
    assert server.post("/v2/rerank", BODY).status == 200
    workers = [int(pid) for pid in children if b"spawn_main" in cmdline(pid)]
    assert len(workers) == 2
    os.kill(workers[0], signal.SIGKILL)
    server.until(lambda one: any("starting another" in line for line in one.lines), seconds=20)
    assert server.post("/v2/rerank", BODY).status == 200
    assert "resift_http_requests_total" in server.get("/metrics").body.decode()
    assert server.stop() == 0


def cmdline(pid: str) -> bytes:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read()
